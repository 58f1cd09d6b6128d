"""A ledger that goes away: nothing is sent that could not be written down, and what was sent is not lost."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modelmeter.v1 import error_pb2
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.ledger.commands import Checkpoint, Dispatch, Settle
from tests.support.ledgers import Interruptible, ledger_in, rows_of, tables
from tests.support.running_server import Details, serving
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, answering, closing, opening, text

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def away(ledger) -> Interruptible:
    """Return a ledger that the test can take away."""
    return Interruptible(ledger)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_refused_before_anything_is_sent(away, stream: bool):
    away.is_up = False
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=away) as running:
        error = await running.error(stream=stream)
        away.is_up = True
        await running.ask()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert Details(error).model_error.kind == error_pb2.ERROR_KIND_LEDGER_DOWN
    assert len(driver.calls) == 1


async def test_a_call_whose_dispatch_cannot_be_written_down_is_not_sent(away):
    away.goes_before = Dispatch
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=away) as running:
        error = await running.error()
        assert Details(error).model_error.kind == error_pb2.ERROR_KIND_LEDGER_DOWN
        await away.come_back()
    (row,) = await rows_of(away)
    assert (row.kind, row.disposition) == (Kind.LEDGER_DOWN.value, "DID_NOT_HAPPEN")
    assert row.booking.held_tokens == row.booking.unsettled_tokens == 0
    assert driver.calls[0].accumulator.evidence().generated is False


async def test_an_answer_is_delivered_unsettled_and_settles_on_return(away):
    away.goes_before = Settle
    call_id = str(uuid.uuid4())
    async with serving(ScriptedDriver(answering()), ledger=away) as running:
        answer = (await running.ask(call_id=call_id)).completion
        assert (answer.text, answer.settled) == ("Hello.", False)
        await away.come_back()
        again = (await running.ask(call_id=call_id)).completion
    assert again.replayed
    assert again.settled
    (row,) = await rows_of(away)
    assert row.booking.settled_tokens == 34


async def test_the_order_is_reserve_dispatch_checkpoint_settle(away):
    async with serving(ScriptedDriver(answering()), ledger=away) as running:
        await running.ask()
    kinds = [type(order).__name__ for order in away.heard]
    assert kinds == ["Reserve", "Dispatch", "Checkpoint", "Settle"]


async def test_a_stream_that_is_under_way_is_in_the_ledger_with_what_it_told(away):
    hold = Hold()
    async with serving(
        ScriptedDriver([Written(), opening(), text("Hi"), hold, closing()]), ledger=away
    ) as running:
        asking = asyncio.ensure_future(running.ask(stream=True))
        await hold.reached.wait()
        (noted,) = away.orders(Checkpoint)
        hold.go.set()
        await asking
    assert noted.generated
    assert (noted.figures.input_tokens, noted.figures.certainty) == (25, "AT_LEAST")
    assert noted.provider_response_id == "msg_1"


class Health:
    """The health of a server, watched."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        self._watch = stub.Watch(health_pb2.HealthCheckRequest())

    async def next(self) -> int:
        return int((await self._watch.read()).status)


async def test_health_says_what_the_ledger_does(away, monkeypatch):
    monkeypatch.setattr("modelmeter_server.rpc.server.LEDGER_LOOK_SECONDS", 0.01)
    async with serving(ScriptedDriver(answering()), ledger=away) as running:
        health = Health(running.channel)
        seen = [await health.next()]
        away.is_up = False
        seen.append(await health.next())
        away.is_up = True
        seen.append(await health.next())
        liveness = health_pb2.HealthCheckRequest(service="liveness")
        stub: Any = health_pb2_grpc.HealthStub(running.channel)
        alive = await stub.Check(liveness)
    assert seen == [SERVING, NOT_SERVING, SERVING]
    assert alive.status == SERVING


async def test_a_database_that_another_process_locks_refuses_calls_and_loses_nothing(tmp_path):
    hold = Hold()
    driver = ScriptedDriver([Written(), opening(), text("Hi"), hold, closing()], answering())
    async with ledger_in(tmp_path, settle_wait=0.05) as ledger, serving(driver, ledger=ledger) as running:
        asking = asyncio.ensure_future(running.ask(timeout=30))
        await hold.reached.wait()
        lock = tables(tmp_path)
        lock.isolation_level = None
        lock.execute("BEGIN IMMEDIATE")
        hold.go.set()
        answer = (await asking).completion
        lock.execute("ROLLBACK")
        lock.close()
        assert not answer.settled
        await running.ask(timeout=20)
        rows = await rows_of(ledger)
    assert [row.booking.settled_tokens for row in rows] == [34, 34]
