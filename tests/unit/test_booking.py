"""Whether a bill is settled is the recorder's to say, never anybody's guess."""

from __future__ import annotations

import asyncio

import pytest

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from tests.support.running_server import MODEL, Memory
from tests.support.scripted_driver import Broken, ScriptedDriver, Written, answering, opening

REQUEST = CompletionRequest(model="claude", call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c", text="Hi")
BROKEN = [Written(), opening(), Broken()]


@pytest.mark.parametrize("script", [answering(), BROKEN], ids=["an answer", "a failure"])
@pytest.mark.parametrize("booked", [False, True])
async def test_a_bill_is_settled_exactly_when_its_recorder_booked_it(script, booked: bool):
    driver, memory = ScriptedDriver(script), Memory(settles=booked)
    outcome = await Engine(Catalog([MODEL]), {driver.name: driver}, memory).start(REQUEST).outcome()
    assert outcome.settled is booked
    assert not memory.outcomes[0].settled, "nobody is told before it is booked"


class Patient:
    """A recorder that waits for a word before it books."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def record(self, outcome: CallOutcome) -> bool:
        self.asked.set()
        await self.go.wait()
        return True


async def test_nobody_hears_of_an_outcome_that_is_still_being_booked():
    driver, recorder = ScriptedDriver(answering()), Patient()
    engine = Engine(Catalog([MODEL]), {driver.name: driver}, recorder)
    waiting = asyncio.ensure_future(engine.start(REQUEST).outcome())
    await recorder.asked.wait()
    assert not waiting.done()
    assert engine.calls_in_flight == 1
    recorder.go.set()
    assert (await waiting).settled
