"""The same call at the same time is one purchase, whoever asks, and it goes on as long as anyone wants it."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc
import pytest

from modelmeter.v1 import model_service_pb2
from tests.support.ledgers import ledger_in, rows_of, until, until_settled
from tests.support.running_server import Details, asking, read_all, serving, streaming
from tests.support.scripted_driver import (
    Broken,
    Hold,
    ScriptedDriver,
    Step,
    Written,
    closing,
    opening,
    text,
)

RETRY = model_service_pb2.Effect.ON_LANDED_ERROR_RETRY
EFFECT = model_service_pb2.Effect(run_id="run", key="k")


def paused(*, at: int = 1) -> tuple[Hold, list[Step]]:
    """Return a script that waits after its first pieces, and where."""
    hold = Hold()
    pieces = [text("Hel"), text("lo.")]
    return hold, [Written(), opening(), *pieces[:at], hold, *pieces[at:], closing()]


async def joined(running: Any, count: int = 2) -> None:
    """Wait until so many calls are under way and one has joined the other."""
    calls = running.engine._inflight
    await until(lambda: len(calls) >= count and any(call.audience.has_joiners for call in calls.calls))


def parted(running: Any) -> bool:
    """Say whether a call goes on without the caller who began it."""
    return any(call.audience.told.done() for call in running.engine._inflight.calls)


@pytest.mark.parametrize("by_effect", [False, True])
async def test_a_repetition_joins_the_call_that_runs(ledger, by_effect: bool):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    other: dict[str, Any] = {"call_id": str(uuid.uuid4()), "effect": EFFECT}
    async with serving(driver, ledger=ledger) as running:
        first = asyncio.ensure_future(running.ask(call_id=call_id, effect=EFFECT))
        await hold.reached.wait()
        second = asyncio.ensure_future(running.ask(**(other if by_effect else {**other, "call_id": call_id})))
        await joined(running)
        hold.go.set()
        answers = [(await each).completion for each in (first, second)]
    assert [answer.replayed for answer in answers] == [False, True]
    assert [answer.call_id for answer in answers] == [call_id, call_id]
    assert answers[1].settled
    assert len(driver.calls) == 1


async def test_a_stream_that_joins_gets_the_deltas_from_the_start_then_live(ledger):
    hold, script = paused()
    call_id = str(uuid.uuid4())
    async with serving(ScriptedDriver(script), ledger=ledger) as running:
        first = asyncio.ensure_future(read_all(running.stub.StreamComplete(streaming(call_id=call_id))))
        await hold.reached.wait()
        second = running.stub.StreamComplete(streaming(call_id=call_id))
        seen: list[Any] = [await second.read(), await second.read(), await second.read()]
        hold.go.set()
        rest, _ = await read_all(second)
        whole, _ = await first
    deltas = [(event.sequence, event.text.text) for event in seen + rest if event.HasField("text")]
    assert deltas == [(event.sequence, event.text.text) for event in whole if event.HasField("text")]
    assert [number for number, _ in deltas] == [1, 2]
    assert "".join(piece for _, piece in deltas) == "Hello."
    assert rest[-1].completion.replayed


async def test_a_stream_goes_on_after_the_number_that_it_had(ledger):
    hold, script = paused()
    call_id = str(uuid.uuid4())
    late = streaming(call_id=call_id)
    late.from_sequence = 1
    async with serving(ScriptedDriver(script), ledger=ledger) as running:
        first = asyncio.ensure_future(read_all(running.stub.StreamComplete(streaming(call_id=call_id))))
        await hold.reached.wait()
        second = asyncio.ensure_future(read_all(running.stub.StreamComplete(late)))
        await joined(running)
        hold.go.set()
        await first
        events, _ = await second
    assert [(event.sequence, event.text.text) for event in events if event.HasField("text")] == [(2, "lo.")]


async def test_a_stream_that_joins_a_unary_call_gets_the_answer_in_one_piece(ledger):
    hold, script = paused()
    call_id = str(uuid.uuid4())
    async with serving(ScriptedDriver(script), ledger=ledger) as running:
        first = asyncio.ensure_future(running.ask(call_id=call_id))
        await hold.reached.wait()
        second = asyncio.ensure_future(read_all(running.stub.StreamComplete(streaming(call_id=call_id))))
        await joined(running)
        hold.go.set()
        await first
        events, _ = await second
    assert [event.WhichOneof("event") for event in events] == ["started", "text", "completion"]
    assert events[1].text.text == "Hello."


@pytest.mark.parametrize("leaver", ["first", "second"])
async def test_one_who_leaves_does_not_cut_the_call_of_the_other(ledger, leaver: str):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        first = running.stub.Complete(asking(call_id=call_id))
        await hold.reached.wait()
        second = running.stub.Complete(asking(call_id=call_id))
        await joined(running)
        leaving, staying = (first, second) if leaver == "first" else (second, first)
        leaving.cancel()
        await until(lambda: leaver == "first" or running.engine.calls_in_flight == 1)
        await until(lambda: leaver == "second" or parted(running))
        assert driver.calls[0].cut_by is None
        hold.go.set()
        answer = (await staying).completion
    assert answer.text == "Hello."
    assert answer.replayed is (leaver == "first")


async def test_a_late_caller_gets_its_deadline_and_the_other_its_answer(ledger):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        first = asyncio.ensure_future(running.error(call_id=call_id, timeout=1.5))
        await hold.reached.wait()
        second = asyncio.ensure_future(running.ask(call_id=call_id))
        await joined(running)
        assert (await first).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        hold.go.set()
        assert (await second).completion.text == "Hello."


async def test_the_call_is_cut_when_the_last_who_wanted_it_has_gone(ledger):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        calls = [running.stub.Complete(asking(call_id=call_id)) for _ in range(2)]
        await hold.reached.wait()
        await joined(running)
        for call in calls:
            call.cancel()
        (row,) = await until_settled(ledger)
    assert (row.kind, row.cause, row.landing) == ("INTERRUPTED", "CALLER", "aborted")
    assert len(driver.calls) == 1


async def test_twenty_at_once_are_one_purchase(ledger):
    hold, script = paused()
    driver = ScriptedDriver(script)
    async with serving(driver, ledger=ledger) as running:
        asked = [asyncio.ensure_future(running.ask(effect=EFFECT)) for _ in range(20)]
        await hold.reached.wait()
        hold.go.set()
        answers = [(await each).completion for each in asked]
    assert sum(not answer.replayed for answer in answers) == 1
    assert {answer.text for answer in answers} == {"Hello."}
    assert len(driver.calls) == 1
    assert len(await rows_of(ledger)) == 1


async def test_a_call_that_another_server_runs_is_waited_for(ledger, tmp_path):
    hold, script = paused()
    drivers = [ScriptedDriver(script), ScriptedDriver(script)]
    async with (
        ledger_in(tmp_path) as other,
        serving(drivers[0], ledger=ledger) as here,
        serving(drivers[1], ledger=other) as there,
    ):
        first = asyncio.ensure_future(here.ask(effect=EFFECT))
        await hold.reached.wait()
        second = asyncio.ensure_future(there.ask(effect=EFFECT, stream=True))
        late = await there.error(effect=EFFECT, timeout=0.3)
        hold.go.set()
        answers = [(await first).completion, (await second).completion]
    assert [answer.replayed for answer in answers] == [False, True]
    assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert [len(driver.calls) for driver in drivers] == [1, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_who_waits_for_another_server_when_this_one_shuts_down_is_sent_elsewhere(
    ledger, tmp_path, stream: bool
):
    hold, script = paused()
    async with (
        ledger_in(tmp_path) as other,
        serving(ScriptedDriver(script), ledger=ledger) as here,
        serving(ScriptedDriver(script), ledger=other) as there,
    ):
        first = asyncio.ensure_future(here.ask(effect=EFFECT))
        await hold.reached.wait()
        second = asyncio.ensure_future(there.error(effect=EFFECT, stream=stream))
        await until(lambda: there.engine.calls_in_flight == 1)
        await there.engine.drain(0)
        details = Details(await second)
        hold.go.set()
        await first
    assert details.info.reason == "DRAINING"
    assert details.metadata["grpc-retry-pushback-ms"] == "1000"


async def test_a_second_purchase_is_told_from_its_start_wherever_its_reader_had_been(ledger):
    first: list[Step] = [Written(), opening(), text("one"), Broken()]
    driver, call_id = ScriptedDriver(first, [Written(), opening(), text("two"), closing()]), str(uuid.uuid4())
    again = model_service_pb2.Effect(run_id="run", key="k", on_landed_error=RETRY)
    request = streaming(call_id=call_id, effect=again)
    async with serving(driver, ledger=ledger) as running:
        await read_all(running.stub.StreamComplete(request))
        request.from_sequence = 1
        events, _ = await read_all(running.stub.StreamComplete(request))
    assert events[0].WhichOneof("event") == "started"
    assert [(event.sequence, event.text.text) for event in events if event.HasField("text")] == [(1, "two")]
