"""From the first signal to the last: readiness first, then no more calls, then the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc as typed_health_pb2_grpc

from modelmeter.v1 import model_service_pb2_grpc
from modelmeter_server import serving
from modelmeter_server.config import load
from tests.support.running_server import asking, read_all, streaming

# The type stubs know no method of the stub.
health_pb2_grpc: Any = typed_health_pb2_grpc

SETTINGS = load(None, {"MODELMETER_LEDGER_URL": "none"}, listen=["127.0.0.1:0"])
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def served(
    *, lifeline: int | None = None, **server: Any
) -> AsyncIterator[tuple[asyncio.Task[None], Any]]:
    """Serve as `modelmeter serve` does, in this process; it must have been ended on leaving."""
    settings = msgspec.structs.replace(SETTINGS, server=msgspec.structs.replace(SETTINGS.server, **server))
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.create_task(
        serving.serve(settings, lambda addresses: bound.set_result(addresses[0]), lifeline=lifeline)
    )
    async with grpc.aio.insecure_channel(await bound) as channel:
        yield ended, channel
    async with asyncio.timeout(10):
        await ended


def watch(channel: grpc.aio.Channel, service: str) -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service=service), timeout=20
    )


def ask(channel: grpc.aio.Channel) -> Any:
    return model_service_pb2_grpc.ModelServiceStub(channel).Complete(
        asking(model="replay/answer"), timeout=10
    )


async def test_readiness_goes_off_first_and_calls_are_taken_until_the_delay_is_over():
    async with served(drain_delay_seconds=30, drain_seconds=30) as (ended, channel):
        readiness, liveness = watch(channel, "readiness"), watch(channel, "liveness")
        assert [(await each.read()).status for each in (readiness, liveness)] == [SERVING, SERVING]
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await readiness.read()).status == NOT_SERVING
        assert (await ask(channel)).completion.text
        assert not ended.done()
        alive = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="liveness"))
        assert (await alive).status == SERVING
        os.kill(os.getpid(), signal.SIGTERM)  # a second signal waits no longer
        assert await readiness.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_delay_ends_by_itself_and_new_calls_are_refused_then():
    async with served(drain_delay_seconds=0.05, drain_seconds=30) as (_, channel):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call: Any = stub.StreamComplete(streaming(model="replay/stall"), timeout=20)
        await call.read()
        readiness = watch(channel, "readiness")
        await readiness.read()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await readiness.read()).status == NOT_SERVING
        async with asyncio.timeout(10):
            while await (asked := ask(channel)).code() is grpc.StatusCode.OK:
                pass
        assert await asked.code() is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in await asked.details()
        os.kill(os.getpid(), signal.SIGTERM)
        _, error = await read_all(call)
    assert error is not None


async def test_without_a_delay_readiness_and_calls_end_at_once():
    async with served(drain_seconds=30) as (_, channel):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call: Any = stub.StreamComplete(streaming(model="replay/stall"), timeout=20)
        await call.read()
        readiness = watch(channel, "readiness")
        await readiness.read()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await readiness.read()).status == NOT_SERVING
        assert await ask(channel).code() is grpc.StatusCode.UNAVAILABLE
        os.kill(os.getpid(), signal.SIGTERM)
        await read_all(call)


async def test_a_worker_whose_supervisor_is_gone_ends_as_after_a_signal():
    ours, theirs = socket.socketpair()
    with theirs:
        async with served(lifeline=theirs.fileno()) as (ended, channel):
            assert (await ask(channel)).completion.text
            assert not ended.done()
            ours.close()


async def test_who_asks_right_after_the_last_call_has_ended_is_told_why_not():
    """gRPC would cancel the call, and its caller could not tell whether it was made."""
    async with served(drain_seconds=30) as (_, channel):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call: Any = stub.StreamComplete(streaming(model="replay/drip"), timeout=20)
        await call.read()
        os.kill(os.getpid(), signal.SIGTERM)
        _, error = await read_all(call)
        refused = ask(channel)
        assert error is None
        assert await refused.code() is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in await refused.details()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_no_handler_of_a_signal_is_left_behind(number):
    async with served():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(number) is signal.SIG_DFL
