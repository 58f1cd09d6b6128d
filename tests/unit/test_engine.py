"""One call through the engine: bill, record, cut, drain."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource, PriceTable, Tier
from modelmeter_server.core.requests import CompletionRequest, Sensitivity
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.engine import bill
from modelmeter_server.engine.call import Call
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from tests.support.running_server import MODEL, Memory
from tests.support.scripted_driver import (
    Broken,
    Explode,
    Hold,
    ScriptedCall,
    ScriptedDriver,
    Verdict,
    Written,
    answering,
    opening,
)

PRICE = PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
PRICED = msgspec.structs.replace(MODEL, price=PRICE)
CALL_ID = "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c"
REQUEST = CompletionRequest(model="claude", call_id=CALL_ID, text="Hi")


def engine_of(driver: ScriptedDriver, *models: Any, **options: Any) -> tuple[Engine, Memory]:
    memory = Memory()
    return Engine(Catalog(models or [MODEL]), {driver.name: driver}, memory, **options), memory


async def failed(call: Call) -> Failure:
    result = (await call.outcome()).result
    assert isinstance(result, Failure)
    return result


async def test_the_outcome_is_recorded_before_anyone_hears_of_it():
    engine, memory = engine_of(ScriptedDriver(answering()))
    call = engine.start(REQUEST)
    outcome = await call.outcome()
    assert memory.outcomes == [outcome]
    assert isinstance(outcome.result, Answer)
    assert outcome.timings.first_token is not None
    assert outcome.timings.total >= outcome.timings.queue


async def test_a_call_nobody_waits_for_is_recorded_all_the_same():
    engine, memory = engine_of(ScriptedDriver(answering()))
    engine.start(REQUEST)
    assert await engine.drain(5) == 0
    assert len(memory.outcomes) == 1


async def test_a_cut_before_the_call_began_sends_nothing():
    driver = ScriptedDriver(answering())
    engine, _ = engine_of(driver)
    call = engine.start(REQUEST)
    call.cut(Cause.CALLER)
    failure = await failed(call)
    assert (failure.kind, failure.cause, failure.stage) == (Kind.UNREACHABLE, Cause.CALLER, Stage.NOT_WRITTEN)
    assert (failure.code, failure.certainty) == (Code.CANCELLED, Certainty.NONE)
    assert driver.calls == []
    assert not await call.dispatched()


async def test_of_two_cuts_before_the_call_began_the_first_says_why():
    engine, _ = engine_of(ScriptedDriver(answering()))
    call = engine.start(REQUEST)
    call.cut(Cause.DRAIN)
    call.cut(Cause.CALLER)
    assert (await failed(call)).cause is Cause.DRAIN


async def test_a_call_that_has_ended_is_not_kept_until_its_deadline():
    driver = ScriptedDriver(answering())
    engine, _ = engine_of(driver)
    call = engine.start(REQUEST, budget=3600)
    await call.outcome()
    kept = weakref.ref(call)
    driver.calls.clear()
    del call
    gc.collect()
    assert kept() is None


async def test_the_first_cut_says_why_and_later_ones_are_harmless():
    hold = Hold()
    engine, _ = engine_of(ScriptedDriver([Written(), opening(), hold]))
    call = engine.start(REQUEST)
    await hold.reached.wait()
    for cause in (Cause.DEADLINE, Cause.CALLER, Cause.DRAIN):
        call.cut(cause)
    assert (await failed(call)).cause is Cause.DEADLINE
    call.cut(Cause.CALLER)


async def test_a_prompt_above_the_models_sensitivity_is_not_sent():
    driver = ScriptedDriver(answering())
    engine, _ = engine_of(driver)
    call = engine.start(msgspec.structs.replace(REQUEST, sensitivity=Sensitivity.SECRET))
    refused = await failed(call)
    assert (refused.kind, refused.code) == (Kind.REFUSED, Code.PERMISSION_DENIED)
    assert driver.calls == []


async def test_mistakes_found_before_are_reported_with_the_engines_own_under_the_callers_paths():
    engine, _ = engine_of(ScriptedDriver(answering()))
    before = [FieldViolation("flush_interval", "is wrong")]
    call = engine.start(msgspec.structs.replace(REQUEST, text=""), violations=before, prefix="request.")
    fields = [each.field for each in (await failed(call)).violations]
    assert fields == ["flush_interval", "request.text"]


async def test_the_providers_own_cost_wins_over_the_price_table():
    told = Cost(nano_units=7, currency="USD", source=CostSource.PROVIDER, certainty=Certainty.EXACT)
    answer = Answer(
        text="Hi", usage=Usage(input_tokens=1, output_tokens=1), certainty=Certainty.EXACT, cost=told
    )
    engine, _ = engine_of(ScriptedDriver([Verdict(answer)]), PRICED)
    assert (await engine.start(REQUEST).outcome()).result.cost == told


async def test_work_under_another_models_name_is_billed_at_that_models_price():
    other = PriceTable(currency="USD", tiers=(Tier(input=1_000_000_000, output=1_000_000_000),))
    advisor = msgspec.structs.replace(MODEL, name="advisor", provider_model="advisor-1", price=other)
    extra = AdditionalUsage(kind="advisor", model="advisor-1", usage=Usage(input_tokens=100, output_tokens=0))
    answer = Answer(
        text="Hi",
        usage=Usage(input_tokens=1, output_tokens=1),
        additional_usage=(extra,),
        certainty=Certainty.EXACT,
    )
    engine, _ = engine_of(ScriptedDriver([Verdict(answer)]), PRICED, advisor)
    cost = (await engine.start(REQUEST).outcome()).result.cost
    assert cost is not None
    assert (cost.nano_units, cost.certainty) == (5_000 + 25_000 + 100 * 1_000, Certainty.EXACT)


async def test_a_fault_in_pricing_costs_the_price_and_not_the_answer(monkeypatch):
    def explode(*_args: Any, **_options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bill, "price", explode)
    engine, _ = engine_of(ScriptedDriver(answering()), PRICED)
    with capture_logs() as logs:
        result = (await engine.start(REQUEST).outcome()).result
    assert isinstance(result, Answer)
    assert result.cost is None
    assert [line["log_level"] for line in logs] == ["error"]


async def test_a_fault_in_recording_is_logged_and_the_outcome_is_not_booked():
    engine, memory = engine_of(ScriptedDriver(answering()))
    memory.error = OSError("the disk is full")
    with capture_logs() as logs:
        outcome = await engine.start(REQUEST).outcome()
    assert isinstance(outcome.result, Answer)
    assert not outcome.settled
    assert [line["call_id"] for line in logs] == [CALL_ID]


async def test_a_bug_after_the_answer_began_keeps_its_price():
    engine, _ = engine_of(ScriptedDriver([Written(), opening(), Explode(RuntimeError("boom"))]), PRICED)
    bug = await failed(engine.start(REQUEST))
    assert (bug.kind, bug.disposition) == (Kind.BUG, Disposition.LANDED)
    assert bug.cost is not None
    assert bug.cost.nano_units == 25 * 5_000 + 25_000
    assert "boom" not in bug.message


async def test_a_bug_closes_the_providers_connection(monkeypatch):
    async def explode(_call: ScriptedCall) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(ScriptedCall, "run", explode)
    driver = ScriptedDriver(answering())
    engine, _ = engine_of(driver)
    assert (await failed(engine.start(REQUEST))).kind is Kind.BUG
    assert driver.calls[0].cut_by is Cause.BUG


async def test_a_bug_in_a_state_that_cannot_be_read_is_still_an_outcome(monkeypatch):
    driver = ScriptedDriver([Written(), opening(), Explode(RuntimeError("boom"))])
    engine, _ = engine_of(driver)
    call = engine.start(REQUEST)
    monkeypatch.setattr("modelmeter_server.engine.reckoning.broken", lambda *_args, **_options: 1 / 0)
    bug = await failed(call)
    assert (bug.kind, bug.certainty) == (Kind.BUG, Certainty.UNKNOWN)
    assert bug.may_have_generated


async def test_a_loop_that_goes_down_leaves_a_recorded_outcome():
    hold = Hold()
    driver = ScriptedDriver([Written(), opening(), hold])
    engine, memory = engine_of(driver)
    call = engine.start(REQUEST)
    await hold.reached.wait()
    call.task.cancel()
    stopped = await failed(call)
    assert (stopped.kind, stopped.cause) == (Kind.INTERRUPTED, Cause.DRAIN)
    assert len(memory.outcomes) == 1
    assert driver.calls[0].closed.is_set()


async def test_a_limit_counts_calls_and_not_refusals():
    hold = Hold()
    engine, _ = engine_of(ScriptedDriver([hold, *answering()]), max_concurrent_calls=2)
    running = [engine.start(REQUEST) for _ in range(2)]
    shed = [await failed(engine.start(REQUEST)) for _ in range(5)]
    assert {each.kind for each in shed} == {Kind.OVERLOADED}
    assert all(each.retry_after for each in shed)
    hold.go.set()
    await asyncio.gather(*(call.outcome() for call in running))
    assert isinstance((await engine.start(REQUEST).outcome()).result, Answer)


async def test_a_drained_engine_refuses_new_calls():
    engine, memory = engine_of(ScriptedDriver(answering()))
    assert await engine.drain(0) == 0
    assert (await failed(engine.start(REQUEST))).kind is Kind.DRAINING
    assert len(memory.outcomes) == 1


async def test_a_drain_that_has_ended_has_settled_what_it_cut():
    hold = Hold()
    engine, memory = engine_of(ScriptedDriver([Written(), opening(), hold]))
    engine.start(REQUEST)
    await hold.reached.wait()
    assert await engine.drain(0) == 1
    assert [failure.cause for failure in memory.failures] == [Cause.DRAIN]
    assert engine.calls_in_flight == 0


async def test_a_leaving_waiter_leaves_the_call_running():
    hold = Hold()
    engine, memory = engine_of(ScriptedDriver([Written(), hold, Broken()]))
    call = engine.start(REQUEST)
    waiter = asyncio.create_task(call.outcome())
    await hold.reached.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    hold.go.set()
    outcome: CallOutcome = await call.outcome()
    assert memory.outcomes == [outcome]
