"""Windows of ceilings in every time zone, compared with a clock that is read quarter by quarter."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modelmeter_server.core.ceilings import Window, WindowKind
from modelmeter_server.core.windows import (
    MOST_STEPS,
    QUARTER,
    SECOND,
    part_at,
    parts_at,
    quarter_of,
    room_at,
    step_of,
)
from tests.support.ledger_recount import bounds_at

HOUR = 3600 * SECOND
FIRST, LAST = 1_325_376_000 * SECOND, 2_145_916_800 * SECOND
"""2012 to 2037: since then all zones have offsets of whole quarters."""

zones = st.sampled_from(sorted(available_timezones()))
moments = st.integers(FIRST, LAST)
rolling = st.builds(Window, kind=st.just(WindowKind.ROLLING), seconds=st.integers(3600, 31_622_400))
calendars = st.builds(Window, kind=st.sampled_from([WindowKind.DAY, WindowKind.MONTH]), time_zone=zones)
days = st.builds(Window, kind=st.just(WindowKind.DAY), time_zone=zones)


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:

    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * SECOND


def day(zone: str) -> Window:
    return Window(kind=WindowKind.DAY, time_zone=zone)


def month(zone: str) -> Window:
    return Window(kind=WindowKind.MONTH, time_zone=zone)


@given(days, moments)
@example(day("Africa/Cairo"), utc(2024, 10, 31, 21, 30))
@example(day("America/Havana"), utc(2024, 11, 3, 5, 30))
@example(day("America/Santiago"), utc(2024, 9, 8, 4, 0))
@example(day("Pacific/Apia"), utc(2011, 12, 30, 10, 0))
@example(day("Australia/Lord_Howe"), utc(2024, 4, 6, 15, 0))
def test_a_day_is_what_a_clock_on_its_wall_shows(window: Window, at: int):
    assert part_at(window, at) == bounds_at(window, at)


@given(zones, moments)
def test_a_month_is_what_a_calendar_in_its_zone_shows(zone: str, at: int):
    starts_at, ends_at = part_at(month(zone), at)
    assert ends_at is not None
    assert bounds_at(day(zone), starts_at)[0] == starts_at
    assert bounds_at(day(zone), ends_at)[0] == ends_at
    assert starts_at <= at < ends_at
    assert 27 * 24 * HOUR < ends_at - starts_at < 32 * 24 * HOUR


@given(calendars | rolling, moments)
def test_windows_follow_each_other_without_a_gap_and_without_an_overlap(window: Window, at: int):
    starts_at, ends_at = part_at(window, at)
    assert ends_at is not None
    assert starts_at <= at < ends_at
    assert part_at(window, starts_at) == part_at(window, ends_at - 1) == (starts_at, ends_at)
    assert part_at(window, ends_at)[0] == ends_at
    assert part_at(window, starts_at - 1)[1] == starts_at


@given(calendars | rolling, moments)
def test_every_window_begins_and_ends_on_a_quarter_of_an_hour(window: Window, at: int):
    for starts_at, ends_at in parts_at(window, at):
        assert ends_at is not None
        assert starts_at % QUARTER == ends_at % QUARTER == 0


@pytest.mark.parametrize(
    ("window", "at", "bounds"),
    [
        (day("UTC"), utc(2026, 3, 5, 12), (utc(2026, 3, 5), utc(2026, 3, 6))),
        (day("Asia/Kathmandu"), utc(2026, 3, 5, 18, 15), (utc(2026, 3, 5, 18, 15), utc(2026, 3, 6, 18, 15))),
        (day("Pacific/Chatham"), utc(2026, 7, 1, 11), (utc(2026, 6, 30, 11, 15), utc(2026, 7, 1, 11, 15))),
        (day("Europe/Berlin"), utc(2026, 3, 29, 12), (utc(2026, 3, 28, 23), utc(2026, 3, 29, 22))),
        (day("Europe/Berlin"), utc(2026, 10, 25, 12), (utc(2026, 10, 24, 22), utc(2026, 10, 25, 23))),
        (day("America/Santiago"), utc(2024, 9, 8, 12), (utc(2024, 9, 8, 4), utc(2024, 9, 9, 3))),
        (month("UTC"), utc(2028, 2, 29, 23, 59), (utc(2028, 2, 1), utc(2028, 3, 1))),
        (month("America/New_York"), utc(2026, 1, 1, 4, 59), (utc(2025, 12, 1, 5), utc(2026, 1, 1, 5))),
        (month("Europe/Berlin"), utc(2026, 10, 31, 12), (utc(2026, 9, 30, 22), utc(2026, 10, 31, 23))),
    ],
)
def test_days_and_months_of_known_places(window: Window, at: int, bounds: tuple[int, int]):
    assert part_at(window, at) == bounds
    assert parts_at(window, at) == [bounds]
    assert room_at(window, at) == bounds[1]


def test_a_day_with_a_change_of_clocks_has_23_or_25_hours():
    lengths = set()
    for number in range(365):
        starts_at, ends_at = part_at(day("Europe/Berlin"), utc(2026, 1, 1, 12) + number * 24 * HOUR)
        assert ends_at is not None
        lengths.add((ends_at - starts_at) // HOUR)
    assert lengths == {23, 24, 25}


def test_a_total_window_begins_with_time_and_never_ends():
    assert part_at(Window(), 17) == (0, None)
    assert parts_at(Window(), LAST) == [(0, None)]
    assert room_at(Window(), LAST) is None


# Rolling


@given(rolling)
def test_a_step_is_a_48th_of_the_window_in_whole_quarters(window: Window):
    step = step_of(window)
    assert step % QUARTER == 0
    assert step * MOST_STEPS >= window.seconds * SECOND > (step - QUARTER) * MOST_STEPS


@pytest.mark.parametrize(
    ("seconds", "quarters"), [(3600, 1), (43_200, 1), (43_201, 2), (86_400, 2), (604_800, 14)]
)
def test_steps_of_usual_windows(seconds: int, quarters: int):
    assert step_of(Window(kind=WindowKind.ROLLING, seconds=seconds)) == quarters * QUARTER


@given(rolling, moments, st.floats(-2, 2))
def test_a_rolling_window_counts_exactly_the_steps_that_it_touches(window: Window, at: int, steps: float):
    moment = min(at, at - window.seconds * SECOND + int(steps * step_of(window)))
    step = part_at(window, moment)
    newest_of_step = min(at, (step[1] or 0) - 1)
    is_touched = newest_of_step > at - window.seconds * SECOND
    assert (step in parts_at(window, at)) is is_touched


@given(rolling, moments)
def test_a_rolling_window_never_counts_more_than_a_step_too_much(window: Window, at: int):
    parts = parts_at(window, at)
    assert len(parts) <= MOST_STEPS + 1
    assert parts[-1] == part_at(window, at)
    assert at - window.seconds * SECOND - parts[0][0] < step_of(window)
    assert all(one[1] == other[0] for one, other in pairwise(parts))


@given(rolling, moments, st.data())
def test_room_comes_in_the_very_moment_in_which_the_oldest_step_stops_to_count(window: Window, at: int, data):
    oldest = data.draw(st.sampled_from(parts_at(window, at)))
    later = room_at(window, at, oldest[0])
    assert later is not None
    assert later > at
    assert oldest in parts_at(window, later - 1)
    assert oldest not in parts_at(window, later)
    assert room_at(window, at) is None


@given(moments)
def test_a_quarter_holds_its_moments(at: int):
    assert quarter_of(at) <= at < quarter_of(at) + QUARTER
    assert quarter_of(at) % QUARTER == 0
