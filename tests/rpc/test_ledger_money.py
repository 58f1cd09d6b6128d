"""Ceilings, clamps and halts as callers meet them, and failures that cost nothing and lock nobody out."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest

from modelmeter.v1 import error_pb2, model_service_pb2
from modelmeter_server.core.ceilings import Halt, HaltMode, Subject, Window, WindowKind
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.halting import HaltWatch
from modelmeter_server.engine.plan import completion_hold
from modelmeter_server.ledger.commands import DropHalt, PutHalt
from modelmeter_server.ledger.queries import list_all_halts
from tests.support.ledgers import put_ceiling, rows_of, until, until_settled
from tests.support.running_server import MODEL, Details, asking, serving
from tests.support.scripted_driver import (
    Hold,
    ScriptedDriver,
    Step,
    Written,
    answering,
    closing,
    opening,
    text,
)

ONE = completion_hold(CompletionRequest(model="claude", call_id="c", text="Hi"), MODEL).tokens
"""What one call of the tests holds."""

PRICED = msgspec.structs.replace(
    MODEL, price=PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
)


async def test_a_refusal_tells_what_is_allowed_settled_held_unsettled_and_asked(ledger):
    await put_ceiling(ledger, tokens=ONE)
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=ledger) as running:
        await running.ask()
        error = await running.error()
    details = Details(error)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.metadata["grpc-retry-pushback-ms"] == "-1"
    (standing,) = details.model_error.standings
    assert (standing.allowed, standing.settled, standing.held, standing.unsettled) == (ONE, 34, 0, 0)
    assert standing.asked == ONE
    assert f"allows {ONE:,} tokens: settled 34, held 0, unsettled 0, asked {ONE:,}" in (error.details() or "")
    assert len(details.quota.violations) == 1
    assert len(driver.calls) == 1


async def test_a_refusal_says_when_room_returns(ledger):
    await put_ceiling(ledger, tokens=ONE, window=Window(kind=WindowKind.DAY))
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        await running.ask()
        error = await running.error()
    assert "room returns at" in (error.details() or "")
    assert Details(error).model_error.standings[0].HasField("room_time")
    assert len(await rows_of(ledger)) == 1, "a call that was refused is no call of the ledger"


async def test_a_call_is_bounded_by_its_own_ceiling(ledger):
    ceiling = model_service_pb2.CallCeiling(tokens=ONE - 1)
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        error = await running.error(ceiling=ceiling)
        await running.ask(ceiling=model_service_pb2.CallCeiling(tokens=ONE))
    assert "the ceiling of the call" in (error.details() or "")


async def test_a_ceiling_that_bounds_nothing_is_a_mistake(ledger):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        error = await running.error(ceiling=model_service_pb2.CallCeiling())
    assert [each.field for each in Details(error).bad_request.field_violations] == ["ceiling"]


async def test_a_ceiling_in_money_refuses_a_model_without_a_price(ledger):
    ceiling = model_service_pb2.CallCeiling(nano_units=10**15, currency="USD")
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        error = await running.error(ceiling=ceiling)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert Details(error).info.reason == "REFUSED"


async def test_a_ceiling_in_money_holds_the_dearest_price_and_books_the_real_one(ledger):
    await put_ceiling(ledger, nano_units=10**12, currency="USD")
    async with serving(ScriptedDriver(answering()), models=[PRICED], ledger=ledger) as running:
        answer = (await running.ask()).completion
    (row,) = await rows_of(ledger)
    assert row.hold.nano_units > answer.cost.nano_units
    assert row.booking.settled_nanos == answer.cost.nano_units == 25 * 5_000 + 9 * 25_000


async def test_a_model_that_allows_it_is_clamped_to_what_is_left(ledger):
    model = msgspec.structs.replace(MODEL, clamp_output=10)
    room = ONE - 16_384 + 100
    await put_ceiling(ledger, tokens=room)
    prepared: list[CompletionRequest] = []
    driver = ScriptedDriver(answering())
    driver.refuse = prepared.append
    async with serving(driver, models=[model], ledger=ledger) as running:
        await running.ask(call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c")
        again = (await running.ask(call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c")).completion
    assert [request.max_output_tokens for request in prepared][:2] == [None, 100]
    assert again.replayed, "the digest is of the request as asked"
    (row,) = await rows_of(ledger)
    assert row.hold.output_tokens == 100


async def test_ceilings_admit_no_more_than_there_is_room_for_however_many_ask_at_once(ledger):
    await put_ceiling(ledger, tokens=10 * ONE)
    hold = Hold()
    driver = ScriptedDriver([Written(), opening(), hold, text("Hi"), closing()])
    async with serving(driver, ledger=ledger) as running:
        asked = [asyncio.ensure_future(running.ask(call_id="")) for _ in range(40)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 30:
            done, waiting = await asyncio.wait(asked, timeout=0.01)
        hold.go.set()
        await asyncio.wait(waiting)
    served = [each for each in asked if each.exception() is None]
    refused = [each.exception() for each in asked if each.exception() is not None]
    assert (len(served), len(refused)) == (10, 30)
    assert all(isinstance(error, grpc.aio.AioRpcError) for error in refused)


async def test_a_halt_refuses_with_its_reason_until_it_is_cleared(ledger):
    subject = Subject(tenant="default", scope="MODEL", name="claude")
    await ledger.order(PutHalt(halt=Halt(subject=subject, reason="budget review")))
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        error = await running.error()
        await ledger.order(DropHalt(subject=subject))
        await running.ask()
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert Details(error).model_error.kind == error_pb2.ERROR_KIND_HALTED
    assert "budget review" in (error.details() or "")


@pytest.mark.parametrize("scope", ["TENANT", "RUN", "MODEL"])
async def test_a_halt_that_cuts_ends_calls_under_way_with_their_bill(ledger, scope: str):
    hold = Hold()
    name = {"TENANT": "", "RUN": "r", "MODEL": "claude"}[scope]
    halt = Halt(subject=Subject(tenant="default", scope=scope, name=name), mode=HaltMode.CUT, reason="stop")
    effect = model_service_pb2.Effect(run_id="r", key="k")
    async with serving(ScriptedDriver([Written(), opening(), hold, closing()]), ledger=ledger) as running:
        failing = asyncio.ensure_future(running.error(effect=effect))
        await hold.reached.wait()
        assert running.engine.halted(msgspec.structs.replace(halt, mode=HaltMode.ADMISSION)) == 0
        assert running.engine.halted(halt) == 1
        error = await failing
    assert error.code() is grpc.StatusCode.ABORTED
    assert "an operator halted" in (error.details() or "")
    (row,) = await until_settled(ledger)
    assert (row.kind, row.cause) == ("INTERRUPTED", "LIMIT")


async def test_a_halt_that_another_server_was_told_of_cuts_calls_here(ledger):
    hold = Hold()
    halt = Halt(subject=Subject(tenant="default", scope="TENANT", name=""), mode=HaltMode.CUT, reason="stop")
    async with serving(ScriptedDriver([Written(), opening(), hold, closing()]), ledger=ledger) as running:
        engine = running.engine
        watch = HaltWatch(ledger, list_all_halts, engine.halted, lambda: bool(engine.calls_in_flight), 0.01)
        watch.start()
        failing = asyncio.ensure_future(running.error())
        await hold.reached.wait()
        await ledger.order(PutHalt(halt=halt))
        error = await failing
        await watch.stop()
    assert "an operator halted the tenant: stop" in (error.details() or "")


async def test_callers_that_leave_lock_nobody_out(ledger):
    """Each of them leaves before anything was generated; what is held for the silence is small, and it expires."""
    hold = Hold()
    await put_ceiling(ledger, tokens=100 * ONE)
    silent: list[Step] = [Written(), hold]
    driver = ScriptedDriver(*[silent] * 200, answering())
    async with serving(driver, ledger=ledger) as running:
        for _ in range(20):
            calls = [running.stub.Complete(asking()) for _ in range(10)]
            await until(lambda: sum(call.is_written for call in _calls(running)) == 10)
            for call in calls:
                call.cancel()
            await until(lambda: not _calls(running))
        answer = (await running.ask()).completion
    assert answer.settled
    assert len(driver.calls) == 201


def _calls(running: Any) -> list[Any]:
    return running.engine._inflight.calls
