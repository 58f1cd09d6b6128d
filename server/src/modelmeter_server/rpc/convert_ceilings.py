"""Ceilings and halts between their protos and the core. Pure; every mistake is noted with its path."""

from __future__ import annotations

import re
import zoneinfo
from typing import TYPE_CHECKING, Final

from modelmeter_server.core.ceilings import Ceiling, Halt, HaltMode, Scope, Subject, Window, WindowKind
from modelmeter_server.core.text import well_formed

from .convert_standing import bounded, fill_standing, fill_time
from .ledger_words import HALT_MODE_WORDS, HALT_MODES, SCOPE_WORDS, SCOPES, WINDOW_KIND_WORDS, WINDOW_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelmeter.v1 import ledger_service_pb2
    from modelmeter_server.core.ceilings import Standing

    from .convert_request import Violations

SHORTEST_WINDOW: Final = 3_600
LONGEST_WINDOW: Final = 366 * 86_400
"""Seconds of a ROLLING window."""

MAX_RUN: Final = 128
MAX_MODEL: Final = 256
MAX_REASON: Final = 512
"""Characters."""

_STANDING_BYTES: Final = 1024
_CURRENCY = re.compile(r"[A-Z]{3}")
_CALENDAR = (WindowKind.DAY, WindowKind.MONTH)


def subject_from(
    message: ledger_service_pb2.Subject, tenant: str, found: Violations, path: str, *, every_run: bool = False
) -> Subject:
    """Return whom it is about; `every_run` allows a run without an id, which means all of them."""
    scope = SCOPE_WORDS.get(message.scope)
    name, most = message.name, MAX_RUN if scope is Scope.RUN else MAX_MODEL
    if scope is None:
        found.add(f"{path}.scope", "must be SCOPE_TENANT, SCOPE_RUN or SCOPE_MODEL")
    elif scope is Scope.TENANT and name:
        found.add(f"{path}.name", "must be empty for SCOPE_TENANT: `tenant` of the request says which")
    elif not name and (scope is Scope.MODEL or (scope is Scope.RUN and not every_run)):
        what = "the model as callers ask for it" if scope is Scope.MODEL else "the run id"
        found.add(f"{path}.name", f"must be {what}")
    elif len(name) > most:
        found.add(f"{path}.name", f"must have at most {most} characters")
    return Subject(tenant, (scope or Scope.TENANT).value, name)


def ceiling_from(
    message: ledger_service_pb2.Ceiling,
    tenant: str,
    ceiling_id: str,
    now: int,
    found: Violations,
    *,
    by_admin: bool = True,
) -> Ceiling:
    """Return a ceiling that was asked for, under a new id."""
    tokens = message.tokens if message.HasField("tokens") else None
    nanos = message.nano_units if message.HasField("nano_units") else None
    for field, bound in (("tokens", tokens), ("nano_units", nanos)):
        if bound is not None and bound < 0:
            found.add(f"ceiling.{field}", "must not be negative")
    if tokens is None and nanos is None:
        found.add("ceiling", "must bound tokens, nano_units or both")
    check_currency(message.currency, found, "ceiling.currency", needed=nanos is not None)
    return Ceiling(
        ceiling_id=ceiling_id,
        subject=subject_from(message.subject, tenant, found, "ceiling.subject", every_run=True),
        window=_window(message.window, found),
        tokens=tokens,
        nano_units=nanos,
        currency=message.currency,
        created_at=now,
        by_admin=by_admin,
    )


def check_currency(text: str, found: Violations, path: str, *, needed: bool) -> None:
    """Note a currency that is missing, not needed, or none."""
    if needed and not _CURRENCY.fullmatch(text):
        found.add(path, "must be the ISO 4217 code of `nano_units`, such as USD")
    elif text and not needed:
        found.add(path, "goes with `nano_units`: leave it out")


def _window(message: ledger_service_pb2.Window, found: Violations) -> Window:
    kind = found.word("ceiling.window.kind", message.kind, WINDOW_KIND_WORDS) or WindowKind.TOTAL
    zone = message.time_zone or "UTC"
    if message.time_zone and kind not in _CALENDAR:
        found.add("ceiling.window.time_zone", "goes with KIND_DAY and KIND_MONTH: leave it out")
    check_zone(zone, found, "ceiling.window.time_zone")
    seconds = 0
    if kind is WindowKind.ROLLING:
        seconds = message.length.seconds
        if message.length.nanos or not SHORTEST_WINDOW <= seconds <= LONGEST_WINDOW:
            found.add("ceiling.window.length", "must be whole seconds, from an hour to 366 days")
    elif message.HasField("length"):
        found.add("ceiling.window.length", "goes with KIND_ROLLING: leave it out")
    return Window(kind=kind, time_zone=zone, seconds=seconds)


def check_zone(name: str, found: Violations, path: str) -> None:
    """Note a time zone that nobody knows."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        found.add(path, "must be an IANA name such as Europe/Berlin, or empty for UTC")


def fill_ceiling(
    message: ledger_service_pb2.Ceiling, ceiling: Ceiling, standings: Iterable[Standing] = ()
) -> None:
    """Write a ceiling and where its subjects stand."""
    message.ceiling_id = ceiling.ceiling_id
    fill_subject(message.subject, ceiling.subject)
    message.window.kind = WINDOW_KINDS[ceiling.window.kind]
    if ceiling.window.kind in _CALENDAR:
        message.window.time_zone = ceiling.window.time_zone
    if ceiling.window.kind is WindowKind.ROLLING:
        message.window.length.seconds = ceiling.window.seconds
    if ceiling.tokens is not None:
        message.tokens = bounded(ceiling.tokens)
    if ceiling.nano_units is not None:
        message.nano_units = bounded(ceiling.nano_units)
    message.currency = ceiling.currency
    message.by_admin = ceiling.by_admin
    fill_time(message.create_time, ceiling.created_at)
    for standing in standings:
        fill_standing(message.standings.add(), standing, _STANDING_BYTES)


def fill_subject(message: ledger_service_pb2.Subject, subject: Subject) -> None:
    """Write whom it is about; the tenant is the caller's own."""
    message.scope = SCOPES[Scope(subject.scope)]
    message.name = well_formed(subject.name)


def halt_from(
    message: ledger_service_pb2.Halt, tenant: str, now: int, found: Violations, *, by_admin: bool = True
) -> Halt:
    """Return a halt that was asked for."""
    if len(message.reason) > MAX_REASON:
        found.add("halt.reason", f"must have at most {MAX_REASON} characters")
    return Halt(
        subject=subject_from(message.subject, tenant, found, "halt.subject"),
        mode=found.word("halt.mode", message.mode, HALT_MODE_WORDS) or HaltMode.ADMISSION,
        reason=message.reason,
        since=now,
        by_admin=by_admin,
    )


def fill_halt(message: ledger_service_pb2.Halt, halt: Halt) -> None:
    """Write a halt."""
    fill_subject(message.subject, halt.subject)
    message.mode = HALT_MODES[halt.mode]
    message.reason = well_formed(halt.reason)
    message.by_admin = halt.by_admin
    fill_time(message.create_time, halt.since)
