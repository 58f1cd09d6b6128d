"""The section `[ledger]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.drivers.http.endpoint import check_web_address
from modelmeter_server.ledger.storage import DURABILITIES, check_url

from .settings import NO_LEDGER, LedgerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from .tables import Table

DEFAULTS = LedgerSettings()

_SQLITE = "sqlite:///"
_YEAR = 366 * 24 * 3600


def read_ledger(table: Table, folder: Path) -> LedgerSettings:
    """Read `[ledger]`; a relative file of SQLite starts at `folder`, as every path of the file does."""
    settings = LedgerSettings(
        url=_read_url(table, folder),
        durability=table.choice("durability", DURABILITIES, DEFAULTS.durability),
        lease=_seconds(table, "lease", DEFAULTS.lease, least=1, most=3600),
        content_retention=_seconds(
            table, "content_retention", DEFAULTS.content_retention, least=0, most=10 * _YEAR
        ),
        expire_after=_seconds(table, "expire_after", DEFAULTS.expire_after, least=60, most=_YEAR),
        replay_only=table.flag("replay_only", default=DEFAULTS.replay_only),
        max_draining_calls=table.integer(
            "max_draining_calls", DEFAULTS.max_draining_calls, least=0, most=1_000_000
        ),
        webhook_url=_read_webhook(table),
    )
    if settings.replay_only and settings.url == NO_LEDGER:
        table.mistake("replay_only", "needs a ledger", f'remove it, or name another url than "{NO_LEDGER}"')
    table.close()
    return settings


def _read_url(table: Table, folder: Path) -> str:
    url = table.text("url")
    if url is None:
        url = DEFAULTS.url
    elif url != NO_LEDGER and not table.checked("url", url, check_url):
        return DEFAULTS.url
    relative = url.removeprefix(_SQLITE)
    if relative == url or relative.startswith("/"):
        return url
    return f"{_SQLITE}{folder.absolute() / relative}"


def _seconds(table: Table, key: str, default: float, *, least: float, most: float) -> float:
    value = table.seconds(key, default, zero=least == 0)
    if not least <= value <= most:
        table.mistake(
            key, f"{value} is out of range", f"write a number of seconds from {least:,} to {most:,}"
        )
        return default
    return value


def _read_webhook(table: Table) -> str:
    url = table.text("webhook_url") or ""
    try:
        if url:
            check_web_address(url)
    except ValueError as error:
        table.mistake("webhook_url", "is not a web address", f"{error}: write https://HOST/PATH")
        return ""
    return url
