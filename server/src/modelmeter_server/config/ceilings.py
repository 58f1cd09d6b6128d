"""Ceilings that the configuration declares: `ceilings` of a tenant."""

from __future__ import annotations

import re
import zoneinfo
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING, Final

from modelmeter_server.core.ceilings import Ceiling, Scope, Subject, Window, WindowKind

if TYPE_CHECKING:
    from .tables import Table

_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_NANO: Final = 10**9
_MOST: Final = 2**63 - 1
_MOST_NAME: Final = {Scope.RUN: 128, Scope.MODEL: 256}
_SHORTEST, _LONGEST = 3_600, 366 * 86_400


class _Scope(Enum):
    TENANT = "tenant"
    MODEL = "model"
    RUN = "run"


class _Window(Enum):
    TOTAL = "total"
    DAY = "day"
    MONTH = "month"
    ROLLING = "rolling"


def read_ceilings(table: Table) -> tuple[Ceiling, ...]:
    """Return the ceilings of a tenant's table, without ids: the ledger gives them."""
    found: list[Ceiling] = []
    for each in table.tables("ceilings"):
        before = each.mistakes_noted
        ceiling = _read(each, table.name)
        each.close()
        # What could not be read has been put in the place of what was written, and resembles others by chance.
        if each.mistakes_noted == before:
            same = (ceiling.subject, ceiling.window, ceiling.currency)
            if any(same == (other.subject, other.window, other.currency) for other in found):
                each.mistake(None, "is there twice", "write one of each subject, window and currency")
            found.append(ceiling)
    return tuple(found)


def _read(table: Table, tenant: str) -> Ceiling:
    scope = Scope[table.word("scope", _Scope.TENANT).name]
    tokens = table.integer("tokens", -1, least=0, most=_MOST) if "tokens" in table else None
    nanos = _money(table)
    if "tokens" not in table and "money" not in table:
        table.mistake(None, "bounds nothing", "write tokens = 1000000, or money and currency")
    return Ceiling(
        ceiling_id="",
        subject=Subject(tenant, scope.value, _name(table, scope)),
        window=_window(table),
        tokens=tokens,
        nano_units=nanos,
        currency=_currency(table),
    )


def _name(table: Table, scope: Scope) -> str:
    name = table.text("name") or ""
    if scope is Scope.TENANT and name:
        table.mistake("name", "goes with the scopes model and run", "remove it")
    elif scope is Scope.MODEL and not name:
        table.mistake(None, 'lacks "name"', "write the model as callers ask for it")
    elif len(name) > _MOST_NAME.get(scope, 0):
        table.mistake("name", "is too long", f"write {_MOST_NAME[scope]} characters at most")
    return name


def _money(table: Table) -> int | None:
    text = table.text("money")
    if text is None:
        return None
    fix = 'write a decimal in quotes, such as money = "12.50"'
    try:
        nanos = Decimal(text) * _NANO
    except InvalidOperation:
        nanos = Decimal("NaN")
    if not nanos.is_finite() or nanos < 0 or nanos > _MOST or nanos != nanos.to_integral_value():
        table.mistake("money", f'"{text}" is no amount of money', fix)
        return 0
    return int(nanos)


def _currency(table: Table) -> str:
    currency = table.text("currency") or ""
    if "money" in table and not _CURRENCY.fullmatch(currency):
        table.mistake("currency" if currency else None, "money needs its currency", 'write currency = "USD"')
    elif "money" not in table and currency:
        table.mistake("currency", "goes with money", "remove it")
    return currency


def _window(table: Table) -> Window:
    kind = WindowKind[table.word("window", _Window.TOTAL).name]
    zone = table.text("time_zone")
    if zone is not None and kind not in (WindowKind.DAY, WindowKind.MONTH):
        table.mistake("time_zone", "goes with the windows day and month", "remove it")
    try:
        zoneinfo.ZoneInfo(zone or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        table.mistake("time_zone", f'"{zone}" is no time zone', 'write an IANA name such as "Europe/Berlin"')
    seconds = 0
    if kind is WindowKind.ROLLING:
        if "seconds" not in table:
            table.mistake(None, 'lacks "seconds"', "write the length of the window")
        seconds = table.integer("seconds", _SHORTEST, least=_SHORTEST, most=_LONGEST)
    elif table.get("seconds", int, "an integer") is not None:
        table.mistake("seconds", "goes with the window rolling", "remove it")
    return Window(kind=kind, time_zone=zone or "UTC", seconds=seconds)
