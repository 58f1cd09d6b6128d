"""A call's news: the first delta at once, later ones gathered, everything before the outcome."""

from __future__ import annotations

import asyncio

from modelmeter_server.core.answers import TextDelta
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.engine.stream import LiveFeed, Started, UsageTold
from tests.support.running_server import MODEL, Memory
from tests.support.scripted_driver import (
    Broken,
    Hold,
    ScriptedDriver,
    Step,
    Written,
    answering,
    closing,
    opening,
    text,
)

LONG = 60.0
REQUEST = CompletionRequest(model="claude", call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c", text="Hi")


def feed_of(script: list[Step], interval: float) -> LiveFeed:
    """Start a call of this script and return its feed."""
    driver = ScriptedDriver(script)
    engine = Engine(Catalog([MODEL]), {driver.name: driver}, Memory())
    return LiveFeed(engine.start(REQUEST, deltas=True), interval)


async def read(feed: LiveFeed) -> list:
    """Read to the end, all batches in one list."""
    events: list = []
    while not events or not isinstance(events[-1], CallOutcome):
        events += await feed.next()
    return events


def texts(events) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


async def test_the_first_delta_comes_at_once_and_later_ones_wait_for_the_interval_or_the_end():
    holds = [Hold(), Hold(), Hold()]
    script: list[Step] = [
        Written(),
        holds[0],
        opening(),
        text("A"),
        holds[1],
        text("B"),
        holds[2],
        text("C"),
        closing(),
    ]
    feed = feed_of(script, LONG)
    assert [type(event) for event in await feed.next()] == [Started]
    holds[0].go.set()
    assert texts(await feed.next()) == ["A"]
    waiting = asyncio.create_task(feed.next())
    holds[1].go.set()
    await holds[2].reached.wait()
    assert (await asyncio.wait([waiting], timeout=0.05))[1], "B has to wait for the interval"
    holds[2].go.set()
    events = await waiting
    assert [type(event) for event in events] == [TextDelta, CallOutcome]
    assert texts(events) == ["BC"]


async def test_the_interval_ends_while_the_call_goes_on():
    holds = [Hold(), Hold()]
    feed = feed_of([Written(), opening(), text("A"), holds[0], text("B"), holds[1], closing()], 0.03)
    while not texts(await feed.next()):
        pass
    holds[0].go.set()
    assert texts(await feed.next()) == ["B"]
    holds[1].go.set()
    assert isinstance((await feed.next())[-1], CallOutcome)


async def test_without_an_interval_every_read_is_told():
    holds = [Hold() for _ in range(3)]
    script: list[Step] = [Written(), opening()]
    for number, hold in enumerate(holds):
        script += [text(str(number)), hold]
    feed = feed_of([*script, closing()], 0)
    seen: list[str] = []
    for hold in holds:
        await hold.reached.wait()
        seen += texts(await feed.next())
        hold.go.set()
    assert seen == ["0", "1", "2"]
    await read(feed)


async def test_usage_is_told_when_it_changed_and_not_again_with_the_outcome():
    hold = Hold()
    feed = feed_of([Written(), opening(), hold, text("A"), closing()], 0)
    await hold.reached.wait()
    (started, told) = await feed.next()
    assert isinstance(started, Started)
    assert isinstance(told, UsageTold)
    assert told.usage.input_tokens == 25
    hold.go.set()
    assert not any(isinstance(event, UsageTold) for event in await read(feed))


async def test_a_failure_comes_after_every_delta_that_arrived():
    events = await read(feed_of([Written(), opening(), text("He"), text("llo"), Broken()], LONG))
    assert [type(event) for event in events] == [Started, TextDelta, CallOutcome]
    assert texts(events) == ["Hello"]
    assert isinstance(events[-1].result, Failure)


async def test_a_call_that_never_left_has_no_start():
    events = await read(feed_of([Broken()], LONG))
    assert [type(event) for event in events] == [CallOutcome]


async def test_a_reader_that_comes_late_gets_everything_in_one_batch():
    feed = feed_of(answering("Hel", "lo."), LONG)
    await feed._call.outcome()
    events = await feed.next()
    assert [type(event) for event in events] == [Started, TextDelta, CallOutcome]


async def test_a_cut_wakes_a_feed_that_waits():
    hold = Hold()
    feed = feed_of([Written(), opening(), hold, closing()], LONG)
    await hold.reached.wait()
    await feed.next()

    async def cut() -> None:
        feed._call.cut(Cause.CALLER)

    async with asyncio.timeout(1):
        events, _ = await asyncio.gather(
            read(feed), cut()
        )  # in this order: the feed waits when the cut comes
    assert events[-1].result.cause is Cause.CALLER
