"""Over which time a ceiling counts: where its windows begin and end.

Every window begins and ends on a quarter of an hour, as the sums are kept by quarters. Midnights do: the offsets of
all time zones in force today are whole quarters (Nepal +5:45, the Chatham Islands +12:45). A ROLLING window moves in
steps, and counts every step that it touches: it may count a step too much and never one too little.

Times are microseconds since the epoch, UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from .ceilings import Window, WindowKind

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000
"""Microseconds."""
LAST_SECOND = 253_402_300_799
"""The last of the year 9999, since the epoch: up to there a Timestamp goes."""
QUARTER = 900 * SECOND
"""A quarter of an hour: the grain of the sums."""
MOST_STEPS = 48
"""Steps that a ROLLING window is long; it touches one more at most."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def quarter_of(at: int) -> int:
    """Return the start of the quarter of an hour that holds a moment."""
    return at - at % QUARTER


def step_of(window: Window) -> int:
    """Return how far a ROLLING window moves at a time: a 48th of its length, rounded up to whole quarters."""
    return -(-window.seconds * SECOND // (MOST_STEPS * QUARTER)) * QUARTER


def part_at(window: Window, at: int) -> tuple[int, int | None]:
    """Return start and end of the window that holds a moment; for ROLLING, of the step that does.

    The end is the first moment that is outside, `None` for TOTAL, which starts at 0.
    """
    if window.kind is WindowKind.TOTAL:
        return 0, None
    if window.kind is WindowKind.ROLLING:
        step = step_of(window)
        start = at - at % step
        return start, start + step
    return _calendar(window.kind, window.time_zone, quarter_of(at))


def parts_at(window: Window, at: int) -> list[tuple[int, int | None]]:
    """Return what counts at a moment, oldest first: one window, or every step that a ROLLING one touches."""
    if window.kind is not WindowKind.ROLLING:
        return [part_at(window, at)]
    step = step_of(window)
    # The oldest moment inside is one microsecond after `at` less the length.
    oldest = max(0, at - window.seconds * SECOND + 1)
    return [(start, start + step) for start in range(oldest - oldest % step, at + 1, step)]


def room_at(window: Window, at: int, oldest_counted: int | None = None) -> int | None:
    """Return when more room comes for certain, `None` if time brings none.

    That is the end of the window; for ROLLING the moment in which the oldest step that counts anything, which starts
    at `oldest_counted`, is no longer touched.
    """
    if window.kind is WindowKind.ROLLING:
        if oldest_counted is None:
            return None
        return oldest_counted + step_of(window) + window.seconds * SECOND - 1
    return part_at(window, at)[1]


@lru_cache(maxsize=4096)
def _calendar(kind: WindowKind, time_zone: str, at: int) -> tuple[int, int]:
    """Return the bounds of the day or month.

    Found by the bounds and not by the date on the clock: where clocks are set back just after midnight, the date of
    the day before comes a second time, and would have a moment in two windows.
    """
    zone = ZoneInfo(time_zone)
    day = (_EPOCH + at * _MICROSECOND).astimezone(zone).date()
    first, following = (_day, _next_day) if kind is WindowKind.DAY else (_month, _next_month)
    start = first(day)
    while _midnight(start, zone) > at:
        start = first(start - timedelta(days=1))
    return _search(start, zone, at, following)


def _search(start: date, zone: ZoneInfo, at: int, following: Callable[[date], date]) -> tuple[int, int]:
    begins, ends = _midnight(start, zone), _midnight(following(start), zone)
    while ends <= at:
        start = following(start)
        begins, ends = ends, _midnight(following(start), zone)
    return begins, ends


def _midnight(day: date, zone: ZoneInfo) -> int:
    """Return the first moment of a day.

    A midnight that comes twice is meant the first time. One that a clock leaps over has the offset from before the
    leap, and so is the moment of the leap.
    """
    local = datetime(day.year, day.month, day.day, tzinfo=zone)
    return (local.astimezone(UTC) - _EPOCH) // _MICROSECOND


def _day(day: date) -> date:
    return day


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _month(day: date) -> date:
    return day.replace(day=1)


def _next_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
