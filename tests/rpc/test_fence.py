"""Once the provider's request is written, no retry policy of any client repeats the call."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest

from modelmeter.v1 import model_service_pb2
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Kind, Stage
from tests.support.running_server import asking, serving
from tests.support.scripted_driver import Broken, Hold, ScriptedDriver, Verdict, Written

RETRYING = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": "modelmeter.v1.ModelService"}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.01s",
                    "maxBackoff": "0.02s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)
OPTIONS = [("grpc.service_config", RETRYING), ("grpc.enable_retries", 1)]
LOST = failure(Kind.UNAVAILABLE, "silence", cause=Cause.NETWORK, stage=Stage.WRITTEN)
NEVER_SENT = failure(Kind.UNREACHABLE, "nobody listens there", cause=Cause.NETWORK)


async def attempts(*script, stream: bool = False) -> int:
    """Call once through a channel that retries UNAVAILABLE; return how many calls the provider saw."""
    driver = ScriptedDriver(script)
    async with serving(driver, channel_options=OPTIONS) as running:
        error = await running.error(stream=stream, timeout=10)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    return len(driver.calls)


async def test_a_call_that_was_written_is_attempted_exactly_once():
    assert await attempts(Written(), Verdict(LOST)) == 1


async def test_a_stream_that_was_written_is_attempted_exactly_once():
    assert await attempts(Written(), Broken(), stream=True) == 1


async def test_a_call_that_was_never_written_is_repeated_by_the_policy():
    assert await attempts(Verdict(NEVER_SENT)) == 4


async def test_the_fence_goes_up_before_the_provider_answers():
    hold = Hold()
    async with serving(ScriptedDriver([Written(), hold, Broken()])) as running:
        # On the wire a unary call is a stream of one; this face of the client tells metadata as soon as it arrives.
        complete = running.channel.unary_stream(
            "/modelmeter.v1.ModelService/Complete",
            request_serializer=model_service_pb2.CompleteRequest.SerializeToString,
            response_deserializer=model_service_pb2.CompleteResponse.FromString,
        )
        call = complete(asking(), timeout=20)
        async with asyncio.timeout(5):
            metadata = dict(await call.initial_metadata())
        assert running.memory.outcomes == []
        hold.go.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
    assert metadata["modelmeter-call-id"] == running.memory.outcomes[0].call_id


async def test_a_call_that_was_never_written_sends_no_fence():
    async with serving(ScriptedDriver([Verdict(NEVER_SENT)])) as running:
        call = running.stub.Complete(asking(), timeout=5)
        assert "modelmeter-call-id" not in dict(await call.initial_metadata() or ())
        with pytest.raises(grpc.aio.AioRpcError):
            await call
