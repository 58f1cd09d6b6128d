"""The section `[egress]`, and whether every address of the file is on its list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from modelmeter_server.core.egress import DEFAULT_PORTS, Egress, parse_entry
from modelmeter_server.drivers.http.endpoint import check_web_address

from .telemetry import collector_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .settings import Settings
    from .tables import Table

_GOOGLE_TOKENS: Final = "https://oauth2.googleapis.com/token"

Place = tuple[tuple[str, ...], str, str]
"""The table of an address, its key there, and the address."""


def read_egress(root: Table) -> Egress | None:
    """Read `[egress]`; `None` without it: then every host may be connected to."""
    table = root.table("egress")
    if "egress" not in root:
        return None
    if "allow" not in table:
        fix = 'write allow = ["api.anthropic.com"], or allow = [] to connect nowhere'
        table.mistake(None, 'lacks "allow"', fix)
    hosts = set()
    for entry in table.texts("allow") or ():
        if table.checked("allow", entry, parse_entry):
            hosts.add(parse_entry(entry))
    table.close()
    return Egress(hosts=frozenset(hosts))


def check_addresses(root: Table, settings: Settings) -> None:
    """Note every configured address that the list does not allow."""
    if settings.egress is None:
        return
    for path, key, address in _addresses(settings):
        table = root
        for name in path:
            table = table.table(name)
        where = key if key in table else None
        try:
            check_web_address(address)
        except ValueError as error:
            table.mistake(where, "names an address that none can connect to", str(error))
            continue
        parts = urlsplit(address)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        host = parts.hostname or ""
        if not settings.egress.allows(parts.scheme, host, port):
            fix = f'add "{_entry(parts.scheme, host, port)}" to egress.allow, if it may be connected to'
            table.mistake(where, f"{host}:{port} is not on the list of egress", fix)


def _entry(scheme: str, host: str, port: int) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return host if port == DEFAULT_PORTS.get(scheme) else f"{bracketed}:{port}"


def _addresses(settings: Settings) -> Iterator[Place]:
    for provider in settings.providers:
        path = ("providers", provider.name)
        if provider.base_url:
            yield path, "base_url", provider.base_url
        if provider.proxy is not None:
            yield path, "proxy", provider.proxy.reveal()
        if provider.credentials_file is not None:
            yield from (
                (path, "credentials_file", each) for each in _token_addresses(provider.credentials_file)
            )
    if settings.ledger.webhook_url:
        yield ("ledger",), "webhook_url", settings.ledger.webhook_url
    if settings.telemetry.otlp.endpoint:
        yield ("telemetry", "otlp"), "endpoint", collector_address(settings.telemetry.otlp)
    jwt = settings.identity.jwt if settings.identity is not None else None
    if jwt is not None and jwt.jwks_url is not None:
        yield ("identity", "jwt"), "jwks_url", jwt.jwks_url


def _token_addresses(file: Path) -> Iterable[str]:
    """Return where a service account's tokens come from; whether the file is one is judged elsewhere."""
    try:
        address = json.loads(file.read_bytes()).get("token_uri", _GOOGLE_TOKENS)
    except (OSError, ValueError, AttributeError):
        return ()
    return (address,) if isinstance(address, str) else ()
