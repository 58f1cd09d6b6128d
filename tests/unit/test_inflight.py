"""The registry of calls under way: a drain waits for every bill, and cuts only what is late."""

from __future__ import annotations

import asyncio

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.engine.inflight import InFlight

OUTCOME = CallOutcome(call_id="c", model_asked="m", result=failure(Kind.UNREACHABLE, "nobody listens"))


class Slow:
    """A call that ends when it is cut or told to, and then takes its time to be settled."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.may_settle = asyncio.Event()
        self.is_settled = False
        self.cut_by: Cause | None = None

    async def run(self) -> CallOutcome:
        await self.over.wait()
        await self.may_settle.wait()
        self.is_settled = True
        return OUTCOME

    def cut(self, cause: Cause, detail: str = "") -> None:
        self.cut_by = cause
        self.over.set()


async def turns(count: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_drain_waits_until_what_it_cut_is_settled():
    registry, call = InFlight(), Slow()
    registry.launch(call)
    draining = asyncio.create_task(registry.drain(0))
    await call.over.wait()
    await turns()
    assert not draining.done(), "its bill is not written down yet"
    call.may_settle.set()
    assert await draining == 1
    assert (call.is_settled, call.cut_by, len(registry)) == (True, Cause.DRAIN, 0)


async def test_a_drain_leaves_calls_alone_that_end_in_time():
    registry, call = InFlight(), Slow()
    call.may_settle.set()
    registry.launch(call)
    draining = asyncio.create_task(registry.drain(60))
    await turns()
    assert len(registry) == 1
    call.over.set()
    assert await draining == 0
    assert call.cut_by is None


async def test_a_drain_cuts_the_late_ones_only():
    registry, quick, late = InFlight(), Slow(), Slow()
    for call in (quick, late):
        call.may_settle.set()
        registry.launch(call)
    draining = asyncio.create_task(registry.drain(0.05))
    await turns()
    quick.over.set()
    assert await draining == 1
    assert (quick.cut_by, late.cut_by) == (None, Cause.DRAIN)


async def test_a_drain_of_nothing_ends_at_once():
    async with asyncio.timeout(1):
        assert await InFlight().drain(3600) == 0
