"""The bus: telling never waits, a slow watcher loses the oldest events and hears how many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from modelmeter_server.core.events import PromptStarted, Severity
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.telemetry.bus import BATCH, BusClosed, EventBus, EventFilter, TooManyWatchers

ALL = EventFilter(tenant="default")


def event(tick: int, **fields: Any) -> PromptStarted:
    told: dict[str, Any] = {"tenant": "default", "model_asked": "claude", **fields}
    return PromptStarted(version=1, occurred_at=tick, tick=tick, **told)


def ticks(events: list[Any]) -> list[int]:
    return [each.tick for each in events]


def test_without_watchers_and_memory_no_event_is_wanted():
    bus = EventBus(recent=0)
    wanted = [bus.is_wanted]
    watcher = bus.watch(ALL)
    wanted.append(bus.is_wanted)
    watcher.close()
    watcher.close()
    wanted.append(bus.is_wanted)
    assert wanted == [False, True, False]


async def test_a_watcher_sees_what_is_told_after_it_came():
    bus = EventBus()
    bus.publish(event(1))
    watcher = bus.watch(ALL)
    bus.publish(event(2))
    bus.publish(event(3))
    assert await watcher.next() == (0, [event(2), event(3)])


async def test_a_waiting_watcher_wakes_for_one_event():
    bus = EventBus()
    watcher = bus.watch(ALL)
    reading = asyncio.ensure_future(watcher.next())
    await asyncio.sleep(0)
    bus.publish(event(1))
    assert await reading == (0, [event(1)])


async def test_a_full_batch_does_not_wait_for_more():
    bus = EventBus()
    watcher = bus.watch(ALL)
    for tick in range(BATCH + 1):
        bus.publish(event(tick))
    loop = asyncio.get_running_loop()
    loop.call_later = None  # type: ignore[assignment, method-assign]  # a timer would be an error
    try:
        lost, batch = await watcher.next()
    finally:
        del loop.call_later
    assert (lost, ticks(batch)) == (0, list(range(BATCH)))


async def test_a_slow_watcher_loses_the_oldest_and_hears_how_many():
    bus = EventBus(waiting=3)
    slow, other = bus.watch(ALL), bus.watch(EventFilter(tenant="default", call_id="none"))
    for tick in range(10):
        bus.publish(event(tick))
    assert await slow.next() == (7, [event(7), event(8), event(9)])
    bus.publish(event(10))
    assert await slow.next() == (0, [event(10)])
    assert bus.lost == 7
    other.close()


async def test_those_with_one_filter_read_at_their_own_pace():
    bus = EventBus(waiting=4)
    slow, fast = bus.watch(ALL), bus.watch(ALL)
    read: list[int] = []
    for tick in range(10):
        bus.publish(event(tick))
        read += ticks((await fast.next())[1]) if tick % 2 else []
    late = bus.watch(ALL)
    bus.publish(event(10))
    assert read == list(range(10))
    assert ticks((await late.next())[1]) == ticks((await fast.next())[1]) == [10]
    lost, batch = await slow.next()
    assert (lost, ticks(batch)) == (7, [7, 8, 9, 10])


async def test_a_backlog_is_read_in_batches_of_bounded_size_across_the_end_of_the_room():
    bus = EventBus(waiting=2 * BATCH)
    watcher, told = bus.watch(ALL), 0
    read: list[int] = []
    for size in (BATCH // 2, 2 * BATCH, BATCH + 1):
        for _ in range(size):
            bus.publish(event(told))
            told += 1
        while len(read) < told:
            lost, batch = await watcher.next()
            assert lost == 0
            assert len(batch) <= BATCH
            read += ticks(batch)
    assert read == list(range(told))


async def test_what_is_lost_is_counted_while_it_is_and_once():
    bus = EventBus(waiting=2)
    reads, leaves = bus.watch(ALL), bus.watch(ALL)
    for tick in range(5):
        bus.publish(event(tick))
    assert bus.lost == 6
    await reads.next()
    leaves.close()
    leaves.close()
    bus.publish(event(5))
    assert (bus.lost, bus.watchers) == (6, 1)
    reads.close()
    assert (bus.lost, bus.watchers) == (6, 0)


def test_only_so_many_may_watch():
    bus = EventBus(watchers=1)
    first = bus.watch(ALL)
    with pytest.raises(TooManyWatchers):
        bus.watch(ALL)
    first.close()
    bus.watch(ALL)


async def test_a_closed_bus_lets_watchers_read_what_waits_and_then_ends_them():
    bus = EventBus()
    watcher, idle = bus.watch(ALL), bus.watch(EventFilter(tenant="other"))
    waiting = asyncio.ensure_future(idle.next())
    await asyncio.sleep(0)
    bus.publish(event(1))
    bus.close()
    assert await watcher.next() == (0, [event(1)])
    for each in (watcher.next(), waiting):
        with pytest.raises(BusClosed):
            await each


def test_the_latest_events_are_kept_and_no_more_than_are_bounded():
    bus = EventBus(recent=3)
    for tick in range(5):
        bus.publish(event(tick))
    assert ticks(bus.recent(ALL, before=None, limit=10)) == [4, 3, 2]
    assert ticks(bus.recent(ALL, before=4, limit=1)) == [3]


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        ({}, True),
        ({"kinds": frozenset({"prompt.started"})}, True),
        ({"kinds": frozenset({"prompt.failed"})}, False),
        ({"call_id": "c"}, True),
        ({"call_id": "d"}, False),
        ({"conversation_id": "v", "run_id": "r", "model": "claude"}, True),
        ({"conversation_id": "v", "run_id": "s"}, False),
        ({"session_id": "s"}, False),
        ({"model": "other"}, False),
        ({"min_severity": int(Severity.INFO)}, True),
        ({"min_severity": int(Severity.WARNING)}, False),
        ({"tenant": "other"}, False),
        ({"error_kinds": frozenset({Kind.BUG})}, False),
        ({"tool": "web_search"}, False),
        ({"target": "a/m"}, False),
    ],
)
def test_everything_that_a_filter_names_must_hold(wanted, takes):
    told = event(1, call_id="c", conversation_id="v", run_id="r")
    assert EventFilter(**{"tenant": "default", **wanted}).takes(told) == takes
