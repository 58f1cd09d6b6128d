"""The section `[server]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.rpc.listen import TlsFiles, is_loopback
from modelmeter_server.telemetry.log import LEVELS

from .addresses import check_address
from .files import certificate_problem, readable_file, trust_problem
from .settings import ServerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from .tables import Table

DEFAULTS = ServerSettings()


def read_server(table: Table, folder: Path) -> ServerSettings:
    """Read `[server]`; relative paths start at `folder`."""
    tls = _read_tls(table.table("tls"), folder) if "tls" in table else None
    allow_insecure = table.flag("allow_insecure", default=DEFAULTS.allow_insecure)
    settings = ServerSettings(
        listen=_read_listen(table, shielded="tls" in table or allow_insecure),
        drain_seconds=table.seconds("drain_seconds", DEFAULTS.drain_seconds, zero=True),
        max_concurrent_calls=table.integer(
            "max_concurrent_calls", DEFAULTS.max_concurrent_calls, least=1, most=1_000_000
        ),
        max_sessions=table.integer("max_sessions", DEFAULTS.max_sessions, least=1, most=1_000_000),
        session_idle_seconds=table.seconds("session_idle_seconds", DEFAULTS.session_idle_seconds),
        session_age_seconds=table.seconds("session_age_seconds", DEFAULTS.session_age_seconds),
        allow_anonymous=table.flag("allow_anonymous", default=DEFAULTS.allow_anonymous),
        allow_insecure=allow_insecure,
        tls=tls,
        log_level=table.choice("log_level", LEVELS, DEFAULTS.log_level),
        reflection=table.flag("reflection", default=DEFAULTS.reflection),
    )
    table.close()
    return settings


def _read_listen(table: Table, *, shielded: bool) -> tuple[str, ...]:
    addresses = table.texts("listen")
    if addresses is None:
        return DEFAULTS.listen
    if not addresses:
        table.mistake("listen", "names no address", "remove it or write one address at least")
    sound = [address for address in addresses if table.checked("listen", address, check_address)]
    for address in sound:
        if not shielded and not is_loopback(address):
            table.mistake(
                "listen",
                f"other machines can reach {address}, and there is no TLS",
                "set tls = { certificate, key }, or allow_insecure = true if something else shields it",
            )
    return tuple(dict.fromkeys(sound))


def _read_tls(table: Table, folder: Path) -> TlsFiles | None:
    fix = 'write tls = { certificate = "server.pem", key = "server.key" }'
    certificate = readable_file(table, "certificate", table.required_text("certificate", fix), folder)
    key = readable_file(table, "key", table.required_text("key", fix), folder)
    client_ca = _read_client_ca(table, folder)
    table.close()
    if certificate is None or key is None:
        return None
    problem = certificate_problem(certificate, key)
    if problem is not None:
        table.mistake("certificate", problem, "give the PEM chain and the unencrypted key that belongs to it")
    return TlsFiles(certificate, key, client_ca)


def _read_client_ca(table: Table, folder: Path) -> Path | None:
    """Return the authorities of clients. gRPC for Python cannot ask for a certificate that need not be there."""
    named = table.text("client_ca")
    client_ca = readable_file(table, "client_ca", named, folder)
    if table.flag("require_client_cert", default=named is not None) != (named is not None):
        problem, fix = (
            ("cannot be false beside client_ca", "remove it, or remove client_ca and use tokens")
            if named is not None
            else ("needs the authorities of the clients", 'add client_ca = "clients.pem"')
        )
        table.mistake("require_client_cert", problem, fix)
    distrust = trust_problem(client_ca) if client_ca is not None else None
    if distrust is not None:
        table.mistake("client_ca", distrust, "give the PEM certificates of the authorities")
    return client_ca
