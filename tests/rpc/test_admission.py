"""Limits on calls as callers meet them: who is refused and how, who waits, and what needs no room."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from modelmeter_server.core.ceilings import Halt, HaltMode, Scope, Subject
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Stage
from modelmeter_server.engine.admission import Admission
from tests.support.running_server import Details, Running, asking, read_all, serving, streaming
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, answering

CALL_ID = "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c"
LIMITS = {
    "server": AdmissionLimits(concurrent=1, queued=0),
    "tenant:default": AdmissionLimits(queued=0, tenants={"default": CallLimits(concurrent=1)}),
    "model:claude": AdmissionLimits(queued=0, models={"claude": CallLimits(concurrent=1)}),
    "target:scripted": AdmissionLimits(queued=0, targets={"scripted": 1}),
}
RATES = {
    "requests": CallLimits(requests_per_minute=1),
    "tokens": CallLimits(tokens_per_minute=20_000),
}


def limited(limits: AdmissionLimits) -> dict[str, Any]:
    return {"engine_options": {"admission": Admission(limits)}}


def held() -> tuple[Hold, ScriptedDriver]:
    """Return a driver whose first call waits for `go` after its request was written; the others answer."""
    hold = Hold()
    return hold, ScriptedDriver([Written(), hold, *answering()[1:]], answering())


async def until(condition: Any) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nobody tells that a call waits
            await asyncio.sleep(0)


async def queued(running: Running, **fields: Any) -> grpc.aio.UnaryUnaryCall[Any, Any]:
    """Ask for what finds no room, and return once it waits."""
    before = running.engine.admission.waiting
    call = running.stub.Complete(asking(**fields), timeout=10)
    await until(lambda: running.engine.admission.waiting > before)
    return call


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", LIMITS)
async def test_a_call_that_finds_no_room_hears_which_limit_and_when_to_come_back(subject, stream):
    hold, driver = held()
    async with serving(driver, **limited(LIMITS[subject])) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        error = await running.error(stream=stream)
        hold.go.set()
        await first
        await running.ask(stream=stream)
    details = Details(error)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.info.reason == "OVERLOADED"
    assert details.retry.retry_delay.seconds == 1
    assert details.metadata["grpc-retry-pushback-ms"] == "1000"
    assert [each.subject for each in details.quota.violations] == [subject]
    assert "1 allowed" in details.quota.violations[0].description
    assert "concurrent" in (error.details() or "")
    assert len(driver.calls) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scope", ["tenant", "model"])
@pytest.mark.parametrize("rate", RATES)
async def test_a_rate_that_is_spent_says_when_it_returns(rate, scope, stream):
    limits = AdmissionLimits(
        queued=0,
        tenants={"default": RATES[rate]} if scope == "tenant" else {},
        models={"claude": RATES[rate]} if scope == "model" else {},
    )
    hold, driver = held()
    async with serving(driver, **limited(limits)) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        error = await running.error(stream=stream)
        hold.go.set()
        await first
    details = Details(error)
    assert f"{rate}_per_minute" in details.quota.violations[0].description
    assert details.quota.violations[0].subject.startswith(f"{scope}:")
    seconds = details.retry.retry_delay.ToTimedelta().total_seconds()
    assert 30 < seconds <= 60
    assert int(details.metadata["grpc-retry-pushback-ms"]) == int(seconds * 1000)


async def test_tokens_that_a_call_did_not_use_are_there_for_the_next():
    limits = AdmissionLimits(queued=0, tenants={"default": CallLimits(tokens_per_minute=20_000)})
    async with serving(ScriptedDriver(answering()), **limited(limits)) as running:
        for _ in range(10):
            await running.ask()


async def test_what_is_refused_takes_nothing_of_a_rate():
    limits = AdmissionLimits(queued=0, tenants={"default": CallLimits(requests_per_minute=1)})
    async with serving(ScriptedDriver(answering()), **limited(limits)) as running:
        assert (await running.error(text="")).code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await running.error(model="nothing")).code() is grpc.StatusCode.NOT_FOUND
        await running.ask()
        assert (await running.error()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_call_that_waits_gets_its_turn_and_tells_how_long_it_waited():
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        second = await queued(running)
        begun = asyncio.get_running_loop().time()
        await asyncio.to_thread(lambda: None)
        hold.go.set()
        await first
        answer = await second
        waited = asyncio.get_running_loop().time() - begun
    timings = answer.completion.timings
    assert 0 < timings.queue.ToTimedelta().total_seconds() <= waited + 1
    assert timings.queue.ToTimedelta() + timings.first_token.ToTimedelta() <= timings.total.ToTimedelta()
    assert len(driver.calls) == 2


async def test_a_call_that_waits_too_long_is_refused_and_was_never_sent():
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1, queue_seconds=0.05))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        error = await running.error()
        assert Details(error).info.reason == "OVERLOADED"
        assert "after 0.05 s in the queue" in (error.details() or "")
        assert running.engine.admission.waiting == 0
        hold.go.set()
        await first
    assert len(driver.calls) == 1


@pytest.mark.parametrize("way", ["cancel", "deadline"])
async def test_a_caller_that_leaves_or_is_late_is_out_of_the_queue_at_once(way):
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1, queued=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        if way == "cancel":
            (await queued(running)).cancel()
        else:
            error = await running.error(timeout=0.2)
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: running.engine.admission.waiting == 0)
        last = await queued(running)
        hold.go.set()
        await first
        await last
    assert len(driver.calls) == 2
    (unsent,) = [each.result for each in running.memory.outcomes if not each.attempts]
    assert isinstance(unsent, Failure)
    assert unsent.stage is Stage.NOT_WRITTEN


async def test_a_drain_refuses_who_waits_at_once_and_lets_the_others_end():
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        waiting = await queued(running)
        stopping = asyncio.create_task(running.server.stop(10))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await waiting
        assert Details(caught.value).info.reason == "DRAINING"
        assert not first.done()
        hold.go.set()
        await first
        assert await stopping == 0


@pytest.mark.parametrize("mode", list(HaltMode))
async def test_a_halt_takes_who_waits_out_of_the_queue_whatever_it_does_to_calls_under_way(mode):
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        waiting = await queued(running)
        subject = Subject(tenant="default", scope=Scope.MODEL.value, name="claude")
        cut = running.engine.halted(Halt(subject=subject, mode=mode, reason="enough"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await waiting
        assert Details(caught.value).info.reason == "HALTED"
        assert cut == (2 if mode is HaltMode.CUT else 1)
        hold.go.set()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_stream_waits_like_a_unary_call_and_each_tenant_has_its_turn():
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        stream = running.stub.StreamComplete(streaming(), timeout=10)
        await until(lambda: running.engine.admission.waiting == 1)
        hold.go.set()
        await first
        events, error = await read_all(stream)
    assert error is None
    assert events[-1].WhichOneof("event") == "completion"


# What needs no room


async def test_a_recorded_answer_is_given_while_no_room_is_left_and_takes_nothing_of_a_rate(ledger):
    hold = Hold()
    driver = ScriptedDriver(answering(), [Written(), hold, *answering()[1:]])
    limits = AdmissionLimits(concurrent=1, models={"claude": CallLimits(requests_per_minute=2)})
    async with serving(driver, ledger=ledger, **limited(limits)) as running:
        bought = await running.ask(call_id=CALL_ID)
        second = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        for stream in (False, True):
            again = await running.ask(call_id=CALL_ID, stream=stream)
            assert again.completion.replayed
            assert again.completion.text == bought.completion.text
        assert running.engine.admission.waiting == 0
        hold.go.set()
        await second
    assert len(driver.calls) == 2


async def test_who_joins_a_call_under_way_needs_no_room(ledger):
    hold, driver = held()
    async with serving(driver, ledger=ledger, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask(call_id=CALL_ID))
        await hold.reached.wait()
        joined = await queued(running, call_id=CALL_ID)
        conflict = await running.error(call_id=CALL_ID, text="Something else")
        assert Details(conflict).info.reason == "CALL_ID_CONFLICT"
        hold.go.set()
        assert (await joined).completion.replayed
        await first
        assert (running.engine.admission.waiting, running.engine.admission.placed) == (0, 0)
    assert len(driver.calls) == 1


async def test_a_call_the_journal_does_not_have_waits_and_is_bought(ledger):
    hold, driver = held()
    async with serving(driver, ledger=ledger, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        second = await queued(running, call_id=CALL_ID)
        hold.go.set()
        await first
        assert not (await second).completion.replayed
    assert len(driver.calls) == 2


async def test_replay_only_is_answered_without_room(ledger):
    hold, driver = held()
    async with serving(driver, ledger=ledger, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        error = await running.error(call_id=CALL_ID, replay_only=True)
        assert Details(error).info.reason == "REPLAY_MISS"
        hold.go.set()
        await first
