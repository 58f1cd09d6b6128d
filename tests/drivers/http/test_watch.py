"""One timer per exchange, however many reads."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

import pytest

from modelmeter_server.drivers.http import Fault
from modelmeter_server.drivers.http.watch import Watch


class Clock:
    """As much of an event loop as a watch asks for, with time that passes when told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.made = 0
        self._heap: list[tuple[float, int, _Handle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Handle:
        assert math.isfinite(when)
        self.made += 1
        handle = _Handle(callback)
        heapq.heappush(self._heap, (when, self.made, handle))
        return handle

    def pass_to(self, when: float) -> None:
        while self._heap and self._heap[0][0] <= when:
            due, _, handle = heapq.heappop(self._heap)
            self.now = max(self.now, due)
            if not handle.cancelled:
                handle.callback()
        self.now = when


class _Handle:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _watch(clock: Clock, total: float = math.inf) -> tuple[Watch, list[Fault]]:
    expired: list[Fault] = []
    loop: asyncio.AbstractEventLoop = clock  # type: ignore[assignment]  # see Clock
    return Watch(loop, total, expired.append), expired


def test_ten_thousand_reads_cost_a_handful_of_timers(clock: Clock) -> None:
    watch, expired = _watch(clock, total=600)
    watch.enter(Fault.IDLE_TIMEOUT, 60)
    for _ in range(10_000):
        clock.pass_to(clock.now + 0.05)
        watch.last = clock.now
    assert expired == []
    assert clock.made < 15


def test_a_phase_ends_exactly_its_seconds_after_the_last_progress(clock: Clock) -> None:
    watch, expired = _watch(clock)
    watch.enter(Fault.IDLE_TIMEOUT, 10)
    clock.pass_to(105)
    watch.last = clock.now
    clock.pass_to(114.9)
    assert expired == []
    clock.pass_to(115)
    assert expired == [Fault.IDLE_TIMEOUT]
    clock.pass_to(1000)
    assert len(expired) == 1


def test_a_shorter_phase_after_a_longer_one_is_not_late(clock: Clock) -> None:
    watch, expired = _watch(clock)
    watch.enter(Fault.FIRST_BYTE_TIMEOUT, 60)
    watch.enter(Fault.IDLE_TIMEOUT, 5)
    clock.pass_to(105)
    assert expired == [Fault.IDLE_TIMEOUT]


def test_a_longer_phase_after_a_shorter_one_is_not_early(clock: Clock) -> None:
    watch, expired = _watch(clock)
    watch.enter(Fault.CONNECT_TIMEOUT, 5)
    watch.enter(Fault.FIRST_BYTE_TIMEOUT, 60)
    clock.pass_to(159)
    assert expired == []
    clock.pass_to(160)
    assert expired == [Fault.FIRST_BYTE_TIMEOUT]


def test_the_total_ends_it_through_all_progress(clock: Clock) -> None:
    watch, expired = _watch(clock, total=20)
    watch.enter(Fault.IDLE_TIMEOUT, 10)
    while clock.now < 120:
        clock.pass_to(clock.now + 1)
        watch.last = clock.now
    assert expired == [Fault.TOTAL_TIMEOUT]


def test_a_suspended_phase_waits_and_begins_afresh_but_the_total_runs(clock: Clock) -> None:
    watch, expired = _watch(clock, total=100)
    watch.enter(Fault.IDLE_TIMEOUT, 10)
    watch.suspend()
    clock.pass_to(150)
    watch.resume()
    clock.pass_to(159)
    assert expired == []
    clock.pass_to(160)
    assert expired == [Fault.IDLE_TIMEOUT]


def test_an_infinite_limit_arms_nothing(clock: Clock) -> None:
    watch, _ = _watch(clock)
    watch.enter(Fault.IDLE_TIMEOUT, math.inf)
    assert clock.made == 0


def test_a_stopped_watch_is_silent(clock: Clock) -> None:
    watch, expired = _watch(clock, total=5)
    watch.enter(Fault.IDLE_TIMEOUT, 1)
    watch.stop()
    watch.enter(Fault.IDLE_TIMEOUT, 1)
    clock.pass_to(200)
    assert expired == []
