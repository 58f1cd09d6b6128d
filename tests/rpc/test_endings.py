"""Deadlines, leaving callers and shutdowns: the provider's connection is closed, the bill is kept."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from modelmeter.v1 import error_pb2, usage_pb2
from modelmeter_server.core.outcomes import Cause, Certainty, Kind
from modelmeter_server.engine.engine import headroom
from tests.support.running_server import Details, Running, asking, read_all, serving, streaming
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


def stalling() -> tuple[list[Step], Hold]:
    """Return the script of a provider that begins an answer and falls silent."""
    hold = Hold()
    return [Written(), opening(), text("He"), hold, text("llo."), closing()], hold


async def is_settled(running: Running) -> bool:
    """Say whether all calls settle by themselves within the second that a leaving caller is promised."""
    return await running.engine.drain(1) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_the_typed_error_arrives_before_the_callers_own_deadline(stream):
    script, _ = stalling()
    async with serving(ScriptedDriver(script)) as running:
        begun = time.monotonic()
        error = await running.error(stream=stream, timeout=2)
        assert time.monotonic() - begun < 2
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    told = Details(error).model_error
    assert (told.kind, told.cause) == (error_pb2.ERROR_KIND_INTERRUPTED, error_pb2.CAUSE_DEADLINE)
    assert told.certainty == usage_pb2.CERTAINTY_AT_LEAST
    assert told.usage.input_tokens == 25


async def test_a_deadline_that_is_too_near_sends_nothing():
    async with serving(ScriptedDriver(answering())) as running:
        error = await running.error(timeout=0.04)
        assert await is_settled(running)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert running.driver.calls == []


@pytest.mark.parametrize(("budget", "kept"), [(0.1, 0.05), (1.0, 0.05), (10.0, 0.5), (3600.0, 2.0)])
def test_headroom_is_five_percent_within_bounds(budget, kept):
    assert headroom(budget) == pytest.approx(kept)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_that_leaves_closes_the_providers_connection_and_settles_the_bill(stream):
    script, hold = stalling()
    with capture_logs() as logs:
        async with serving(ScriptedDriver(script)) as running:
            asked: Any = asyncio.create_task(running.ask(stream=stream, timeout=20))
            await hold.reached.wait()
            asked.cancel()
            async with asyncio.timeout(1):
                await running.driver.calls[0].closed.wait()
            assert await is_settled(running)
    assert logs == [], "a caller that leaves is no fault"
    (failed,) = running.memory.failures
    assert running.driver.calls[0].cut_by is Cause.CALLER
    assert (failed.kind, failed.cause, failed.certainty) == (
        Kind.INTERRUPTED,
        Cause.CALLER,
        Certainty.AT_LEAST,
    )
    assert failed.usage is not None
    assert failed.usage.input_tokens == 25


async def test_a_channel_that_breaks_closes_the_providers_connection():
    script, hold = stalling()
    async with serving(ScriptedDriver(script)) as running:
        call = running.stub.StreamComplete(streaming(), timeout=20)
        await call.read()
        await hold.reached.wait()
        await running.channel.close()
        async with asyncio.timeout(1):
            await running.driver.calls[0].closed.wait()
        assert await is_settled(running)
    assert running.driver.calls[0].cut_by is Cause.CALLER


async def test_a_drain_lets_calls_finish_and_refuses_new_ones_with_a_wait():
    script, hold = stalling()
    async with serving(ScriptedDriver(script)) as running:
        health: Any = health_pb2_grpc.HealthStub(running.channel)
        ready = health.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=20)
        await ready.read()
        call = running.stub.Complete(asking(), timeout=20)
        await hold.reached.wait()
        stopping = asyncio.create_task(running.server.stop(20))
        await ready.read()
        error = await running.error()
        hold.go.set()
        assert (await call).completion.text == "Hello."
        assert await stopping == 0
    details = Details(error)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details.info.reason == "DRAINING"
    assert details.retry.retry_delay.ToSeconds() == 1
    assert details.metadata["grpc-retry-pushback-ms"] == "1000"


async def test_a_drain_that_runs_out_cuts_what_is_left_with_its_bill():
    (one, held_one), (other, held_other) = stalling(), stalling()
    async with serving(ScriptedDriver(one, other)) as running:
        unary = asyncio.create_task(running.error(timeout=20))
        stream = asyncio.create_task(read_all(running.stub.StreamComplete(streaming(), timeout=20)))
        await asyncio.gather(held_one.reached.wait(), held_other.reached.wait())
        assert await running.server.stop(0) == 2
        errors = [await unary, (await stream)[1]]
    for error in errors:
        assert error is not None
        assert error.code() is grpc.StatusCode.ABORTED
        told = Details(error).model_error
        assert (told.cause, told.usage.input_tokens) == (error_pb2.CAUSE_DRAIN, 25)
    assert len(running.memory.outcomes) == 2


async def test_a_stopped_server_has_settled_calls_whose_callers_are_gone():
    script, hold = stalling()
    async with serving(ScriptedDriver(script)) as running:
        call = running.stub.Complete(asking(), timeout=20)
        await hold.reached.wait()
        call.cancel()
        await running.server.stop(0)
        assert running.engine.calls_in_flight == 0
        assert len(running.memory.outcomes) == 1


async def test_a_second_stop_hurries_the_first():
    script, hold = stalling()
    async with serving(ScriptedDriver(script)) as running:
        asked = asyncio.create_task(running.error(timeout=20))
        await hold.reached.wait()
        first = asyncio.create_task(running.server.stop(600))
        async with asyncio.timeout(10):
            await running.server.stop(0)
            await first
        assert Details(await asked).model_error.cause == error_pb2.CAUSE_DRAIN
