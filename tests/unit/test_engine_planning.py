"""Large requests are planned beside the event loop, and a call waits for its plan no longer than its caller does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind
from modelmeter_server.core.request_limits import LARGE_BYTES, MAX_VALUES
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import PLANNING_THREADS, Engine
from tests.support.running_server import MODEL, Memory
from tests.support.scripted_driver import ScriptedDriver, answering

REQUEST = CompletionRequest(model="claude", call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c", text="Hi")
LARGE = msgspec.structs.replace(REQUEST, text="x" * (LARGE_BYTES + 1))


class Gate:
    """Hold the planning of requests where the driver encodes them."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, request: CompletionRequest) -> None:
        self.threads.append(threading.get_ident())
        self.begun.release()
        assert self.go.wait(10)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.go.set()


def engine_of(gate: Any) -> tuple[Engine, Memory, ScriptedDriver]:
    driver, memory = ScriptedDriver(answering()), Memory()
    driver.refuse = gate
    return Engine(Catalog([MODEL]), {driver.name: driver}, memory), memory, driver


async def test_the_event_loop_runs_on_while_a_large_request_is_planned(gate):
    engine, _, _ = engine_of(gate)
    call = engine.start(LARGE)
    await gate.reached()
    gate.go.set()
    assert isinstance((await call.outcome()).result, Answer)
    assert threading.get_ident() not in gate.threads


async def test_an_ordinary_request_is_planned_at_once(gate):
    gate.go.set()
    engine, _, _ = engine_of(gate)
    assert isinstance((await engine.start(REQUEST).outcome()).result, Answer)
    assert gate.threads == [threading.get_ident()]


@pytest.mark.parametrize("ahead", [0, PLANNING_THREADS], ids=["planned", "waiting to be planned"])
async def test_a_cut_ends_a_call_that_has_no_plan_yet(gate, ahead):
    engine, memory, driver = engine_of(gate)
    for _ in range(ahead):
        engine.start(LARGE)
        await gate.reached()
    call = engine.start(LARGE)
    if not ahead:
        await gate.reached()
    await asyncio.sleep(0)
    call.cut(Cause.CALLER)
    result = (await call.outcome()).result
    assert isinstance(result, Failure)
    assert (result.kind, result.cause, result.certainty) == (Kind.UNREACHABLE, Cause.CALLER, Certainty.NONE)
    assert len(memory.outcomes) == 1
    assert driver.calls == []


async def test_the_callers_deadline_ends_the_wait_for_a_plan(gate):
    engine, _, driver = engine_of(gate)
    result = (await engine.start(LARGE, budget=0.2).outcome()).result
    assert isinstance(result, Failure)
    assert (result.kind, result.code) == (Kind.UNREACHABLE, Code.DEADLINE_EXCEEDED)
    assert driver.calls == []


async def test_a_drain_does_not_wait_for_plans(gate):
    engine, memory, _ = engine_of(gate)
    for _ in range(PLANNING_THREADS + 2):
        engine.start(LARGE)
    await gate.reached()
    assert await engine.drain(0) == PLANNING_THREADS + 2
    results = [outcome.result for outcome in memory.outcomes]
    assert {result.cause for result in results if isinstance(result, Failure)} == {Cause.DRAIN}


async def test_a_request_that_holds_too_much_is_refused_before_anything_else_is_judged(gate):
    gate.go.set()
    engine, _, driver = engine_of(gate)
    text = "[" + "1," * MAX_VALUES + "1]"
    wrong = msgspec.structs.replace(REQUEST, text=None, native_json=text, temperature=-1.0)
    result = (await engine.start(wrong, prefix="request.").outcome()).result
    assert isinstance(result, Failure)
    assert (result.kind, result.code) == (Kind.REFUSED, Code.INVALID_ARGUMENT)
    assert [each.field for each in result.violations] == ["request.native_json"]
    assert (gate.threads, driver.calls) == ([], [])
