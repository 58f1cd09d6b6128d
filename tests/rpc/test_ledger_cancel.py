"""Callers that leave: the request is cut, or read on within bounds until its bill is known."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc
import msgspec

from modelmeter_server.core.ceilings import Halt, HaltMode, Subject
from modelmeter_server.core.models import ModelSpec, OnCancel
from tests.support.ledgers import rows_of, until, until_settled
from tests.support.running_server import MODEL, asking, read_all, serving, streaming
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


def draining(**fields: Any) -> ModelSpec:
    return msgspec.structs.replace(MODEL, on_cancel=OnCancel.DRAIN, **fields)


def paused(*more: Step) -> tuple[Hold, list[Step]]:
    hold = Hold()
    return hold, [Written(), opening(), text("Hel"), hold, *(more or (text("lo."), closing()))]


def only(running: Any) -> Any:
    """Return the call under way that began first."""
    return running.engine._inflight.calls[0]


async def leave(running: Any, hold: Hold, **fields: Any) -> None:
    """Ask, and leave in the middle of the answer."""
    call = running.stub.Complete(asking(**fields))
    await hold.reached.wait()
    call.cancel()
    await until(lambda: only(running).audience.told.done())


async def test_without_a_drain_the_request_is_cut_at_once(ledger):
    hold, script = paused()
    driver = ScriptedDriver(script)
    async with serving(driver, ledger=ledger) as running:
        call = running.stub.Complete(asking())
        await hold.reached.wait()
        call.cancel()
        (row,) = await until_settled(ledger)
    assert (row.kind, row.cause, row.landing) == ("INTERRUPTED", "CALLER", "aborted")
    assert row.booking.unsettled_tokens > 0


async def test_a_drained_call_learns_its_bill_and_its_answer_is_replayed(ledger):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    async with serving(driver, models=[draining()], ledger=ledger) as running:
        await leave(running, hold, call_id=call_id)
        assert driver.calls[0].cut_by is None
        hold.go.set()
        (row,) = await until_settled(ledger)
        again = (await running.ask(call_id=call_id)).completion
    assert (row.kind, row.landing, row.figures.certainty) == ("", "drained", "EXACT")
    assert row.booking.unsettled_tokens == 0
    assert again.replayed
    assert again.text == "Hello."
    assert len(driver.calls) == 1


async def test_a_drain_ends_with_its_time(ledger):
    hold, script = paused()
    async with serving(
        ScriptedDriver(script), models=[draining(drain_seconds=0.05)], ledger=ledger
    ) as running:
        await leave(running, hold)
        (row,) = await until_settled(ledger)
    assert (row.kind, row.cause, row.landing) == ("INTERRUPTED", "CALLER", "drain_cut")


async def test_a_drain_ends_with_its_bytes(ledger):
    last = Hold()
    hold, script = paused(text("x" * 2_000), last, closing())
    async with serving(
        ScriptedDriver(script), models=[draining(drain_bytes=1_000)], ledger=ledger
    ) as running:
        await leave(running, hold)
        hold.go.set()
        (row,) = await until_settled(ledger)
    assert (row.kind, row.landing) == ("INTERRUPTED", "drain_cut")


async def test_only_so_many_are_drained_at_once(ledger):
    holds, scripts = zip(*(paused() for _ in range(2)), strict=True)
    driver = ScriptedDriver(*scripts)
    async with serving(driver, models=[draining()], ledger=ledger, max_draining_calls=1) as running:
        calls = [running.stub.Complete(asking()) for _ in range(2)]
        for hold in holds:
            await hold.reached.wait()
        for call in calls:
            call.cancel()
        await until_settled(ledger)
        for hold in holds:
            hold.go.set()
        rows = await until_settled(ledger, 2)
    assert sorted(row.landing for row in rows) == ["aborted", "drained"]


async def test_a_late_caller_is_told_what_is_known_while_its_call_is_drained(ledger):
    hold, script = paused()
    async with serving(ScriptedDriver(script), models=[draining()], ledger=ledger) as running:
        error = await running.error(timeout=0.4)
        hold.go.set()
        (row,) = await until_settled(ledger)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "25 input + 1 output tokens, AT_LEAST" in (error.details() or "")
    assert (row.kind, row.landing) == ("", "drained")


async def test_one_who_comes_back_while_it_is_drained_goes_on_where_it_left_off(ledger):
    hold, script = paused()
    driver, call_id = ScriptedDriver(script), str(uuid.uuid4())
    late = streaming(call_id=call_id)
    late.from_sequence = 1
    async with serving(driver, models=[draining()], ledger=ledger) as running:
        first = running.stub.StreamComplete(streaming(call_id=call_id))
        await hold.reached.wait()
        await first.read()
        first.cancel()
        await until(lambda: only(running).audience.told.done())
        second = asyncio.ensure_future(read_all(running.stub.StreamComplete(late)))
        await until(lambda: only(running).audience.has_joiners)
        assert not only(running)._landing.is_draining, "no bound holds for it any more"
        hold.go.set()
        events, error = await second
        (row,) = await until_settled(ledger)
    assert error is None
    assert [(event.sequence, event.text.text) for event in events if event.HasField("text")] == [(2, "lo.")]
    assert row.landing == "", "somebody waited for it to the end"


async def test_a_caller_that_leaves_before_anything_is_sent_costs_nothing(ledger):
    driver = ScriptedDriver([hold := Hold(), *answering()])
    async with serving(driver, ledger=ledger) as running:
        call = running.stub.Complete(asking())
        await hold.reached.wait()
        call.cancel()
        (row,) = await until_settled(ledger)
    assert (row.kind, row.disposition, row.landing) == ("UNREACHABLE", "DID_NOT_HAPPEN", "")
    assert row.booking == type(row.booking)()
    assert len(await rows_of(ledger)) == 1


async def test_a_drain_that_a_halt_ends_was_cut(ledger):
    hold, script = paused()
    halt = Halt(subject=Subject(tenant="default", scope="MODEL", name="claude"), mode=HaltMode.CUT)
    async with serving(ScriptedDriver(script), models=[draining()], ledger=ledger) as running:
        await leave(running, hold)
        assert running.engine.halted(halt) == 1
        (row,) = await until_settled(ledger)
    assert (row.kind, row.cause, row.landing) == ("INTERRUPTED", "LIMIT", "drain_cut")


async def test_a_drain_whose_connection_breaks_did_not_finish(ledger):
    hold, script = paused(Broken())
    async with serving(ScriptedDriver(script), models=[draining()], ledger=ledger) as running:
        await leave(running, hold)
        hold.go.set()
        (row,) = await until_settled(ledger)
    assert (row.kind, row.cause, row.landing) == ("INTERRUPTED", "NETWORK", "drain_cut")
