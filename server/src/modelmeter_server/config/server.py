"""The section `[server]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from modelmeter_server.rpc.listen import TlsFiles, is_loopback
from modelmeter_server.telemetry.log import LEVELS

from .addresses import HIGHEST_PORT, check_address, last_port
from .files import certificate_problem, readable_file, trust_problem
from .settings import ADMIN_PLACES, ServerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from .tables import Table

DEFAULTS = ServerSettings()

MOST_WORKERS = 256


def read_server(table: Table, folder: Path) -> ServerSettings:
    """Read `[server]`; relative paths start at `folder`."""
    tls = _read_tls(table.table("tls"), folder) if "tls" in table else None
    allow_insecure = table.flag("allow_insecure", default=DEFAULTS.allow_insecure)
    workers = table.integer("workers", DEFAULTS.workers, least=1, most=MOST_WORKERS)
    listen = _read_listen(table, shielded="tls" in table or allow_insecure)
    _check_shareable(table, listen, workers)
    settings = ServerSettings(
        listen=listen,
        drain_seconds=table.seconds("drain_seconds", DEFAULTS.drain_seconds, zero=True),
        drain_delay_seconds=table.seconds("drain_delay_seconds", DEFAULTS.drain_delay_seconds, zero=True),
        workers=workers,
        reload_on_change=table.flag("reload_on_change", default=DEFAULTS.reload_on_change),
        **_read_private(table, listen, workers, has_tls="tls" in table),
        max_concurrent_calls=table.integer(
            "max_concurrent_calls", DEFAULTS.max_concurrent_calls, least=1, most=1_000_000
        ),
        max_queued_calls=table.integer(
            "max_queued_calls", DEFAULTS.max_queued_calls, least=0, most=1_000_000
        ),
        queue_seconds=table.seconds("queue_seconds", DEFAULTS.queue_seconds),
        stream_buffer_bytes=table.integer(
            "stream_buffer_bytes", DEFAULTS.stream_buffer_bytes, least=1024, most=2**40
        ),
        slow_reader_seconds=table.seconds("slow_reader_seconds", DEFAULTS.slow_reader_seconds),
        max_connection_age_seconds=table.seconds(
            "max_connection_age_seconds", DEFAULTS.max_connection_age_seconds
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


def _check_shareable(table: Table, listen: tuple[str, ...], workers: int) -> None:
    for address in listen:
        if workers > 1 and address.startswith("unix"):
            problem = f"{address} belongs to one process, and there are {workers} workers"
            table.mistake("listen", problem, "write host:port, or workers = 1")


class _Private(TypedDict):
    private_listen: str
    private_allow_insecure: bool
    admin_service: str


def _read_private(table: Table, listen: tuple[str, ...], workers: int, *, has_tls: bool) -> _Private:
    address = table.text("private_listen") or ""
    insecure = table.flag("private_allow_insecure", default=DEFAULTS.private_allow_insecure)
    if not table.checked("private_listen", address or None, check_address):
        address = ""
    if address and not (has_tls or insecure or is_loopback(address)):
        table.mistake(
            "private_listen",
            f"other machines can reach {address}, and there is no TLS",
            "listen on 127.0.0.1 or a unix socket, set tls, or private_allow_insecure = true if it is shielded",
        )
    if address in listen and not address.endswith(":0"):
        table.mistake("private_listen", f"{address} is public", "choose an address that is not in listen")
    if last_port(address, workers) > HIGHEST_PORT:
        problem = f"{workers} workers need as many ports from {address} on"
        table.mistake("private_listen", problem, "choose a lower port")
    place = table.choice("admin_service", ADMIN_PLACES, DEFAULTS.admin_service)
    if place != DEFAULTS.admin_service and "private_listen" not in table:
        table.mistake("admin_service", f'"{place}" needs a private listener', "add private_listen")
    return _Private(private_listen=address, private_allow_insecure=insecure, admin_service=place)


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
