"""What sums and windows must be, counted anew from the calls: slow, plain, and by none of the book-keeper's code."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from modelmeter_server.core.ceilings import Ceiling, Window, WindowKind
from modelmeter_server.ledger.rows import CallRow, SpendRow

QUARTER = 900_000_000
AMOUNTS = (
    "settled_tokens",
    "settled_nanos",
    "held_tokens",
    "held_nanos",
    "unsettled_tokens",
    "unsettled_nanos",
    "written_off_tokens",
    "written_off_nanos",
)
COUNTED = AMOUNTS[:6]

Sums = dict[tuple[Any, ...], dict[str, int]]


def spend_of(calls: list[CallRow]) -> Sums:
    """Return the sums by (tenant, dimension, name, value, quarter, currency), without those that are all 0."""
    sums: Sums = defaultdict(lambda: defaultdict(int))
    for row in calls:
        kind = "OPEN" if row.state <= 2 else row.kind or "ANSWERED"
        names = [("TENANT", "", ""), ("MODEL", "", row.model), ("KIND", "", kind)]
        names += [("RUN", "", row.run_id)] if row.run_id else []
        names += [("LABEL", name, value) for name, value in row.labels.items()]
        for name in names:
            quarter = row.reserved_at // QUARTER * QUARTER
            _add(sums[row.tenant, *name, quarter, row.hold.currency], row)
    return _without_zeros(sums)


def _add(into: dict[str, int], row: CallRow) -> None:
    into["calls"] += 1
    into["possibly_billed_calls"] += row.booking.possibly_billed
    for name in AMOUNTS:
        into[name] += getattr(row.booking, name)
    if row.state > 2:
        into["input_tokens"] += row.figures.input_tokens or 0
        into["output_tokens"] += row.figures.output_tokens or 0
    if row.carried is not None:
        into["input_tokens"] += row.carried.input_tokens
        into["output_tokens"] += row.carried.output_tokens


def spend_in(rows: list[SpendRow]) -> Sums:
    """Return stored sums in the same form."""
    names = ("calls", "input_tokens", "output_tokens", *AMOUNTS, "possibly_billed_calls")
    return _without_zeros(
        {
            (row.tenant, row.dimension, row.name, row.value, row.quarter, row.currency): {
                name: getattr(row, name) for name in names
            }
            for row in rows
        }
    )


def _without_zeros(sums: Sums) -> Sums:
    told = {key: {name: amount for name, amount in each.items() if amount} for key, each in sums.items()}
    return {key: each for key, each in told.items() if each}


def bounds_at(window: Window, at: int) -> tuple[int, int | None]:
    """Return the bounds of the window, or the step, that holds a moment, found quarter by quarter."""
    if window.kind is WindowKind.TOTAL:
        return 0, None
    if window.kind is WindowKind.ROLLING:
        step = QUARTER
        while step * 48 < window.seconds * 1_000_000:
            step += QUARTER
        return at // step * step, at // step * step + step
    return _calendar_bounds(window, at // QUARTER * QUARTER)


@lru_cache(maxsize=1024)
def _calendar_bounds(window: Window, quarter: int) -> tuple[int, int]:
    start = quarter
    while _name(window, start - QUARTER) == _name(window, quarter):
        start -= QUARTER
    end = quarter + QUARTER
    while _name(window, end) == _name(window, quarter):
        end += QUARTER
    return start, end


def _name(window: Window, at: int) -> tuple[int, ...]:
    """Return the day or the month on a clock in the time zone."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    local = moment.astimezone(ZoneInfo(window.time_zone))
    return local.timetuple()[: 3 if window.kind is WindowKind.DAY else 2]


def is_about(ceiling: Ceiling, name: str, row: CallRow) -> bool:
    """Say whether a call counts against a ceiling, for the run of this name where it is on every run."""
    subject = ceiling.subject
    if subject.tenant != row.tenant:
        return False
    own = {"TENANT": "", "RUN": row.run_id, "MODEL": row.model}[subject.scope]
    if subject.scope == "RUN" and not row.run_id:
        return False
    return own == name and subject.name in ("", own)


def counted_in(ceiling: Ceiling, name: str, starts_at: int, calls: list[CallRow]) -> dict[str, int]:
    """Return what one window or step must hold."""
    sums = dict.fromkeys(COUNTED, 0)
    for row in calls:
        if not is_about(ceiling, name, row) or bounds_at(ceiling.window, row.reserved_at)[0] != starts_at:
            continue
        for amount in COUNTED:
            if amount.endswith("tokens") or row.hold.currency == ceiling.currency:
                sums[amount] += getattr(row.booking, amount)
    return sums


def counted_tokens(row: CallRow) -> int:
    """Return what a call counts against a ceiling on tokens."""
    return row.booking.settled_tokens + row.booking.held_tokens + row.booking.unsettled_tokens
