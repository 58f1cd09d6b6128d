"""Every operation of the service is a call to the limits: embeddings, counts, turns of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest

from modelmeter.v1 import model_service_pb2 as pb
from modelmeter.v1 import model_service_pb2_grpc, session_pb2
from modelmeter_server.app import App
from modelmeter_server.config import load
from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from tests.support.running_server import Details, asking

ONCE = CallLimits(requests_per_minute=1)
ANSWER = "replay/answer"


@asynccontextmanager
async def limited(limits: CallLimits, **server: Any) -> AsyncIterator[tuple[App, Any]]:
    """Serve the embedded provider with the same limits on each of its models."""
    settings = load(None, {"MODELMETER_LEDGER_URL": "none"}, listen=["127.0.0.1:0"])
    models = tuple(msgspec.structs.replace(each, limits=limits) for each in settings.models)
    told = msgspec.structs.replace(settings.server, **server)
    app = App(msgspec.structs.replace(settings, models=models, server=told))
    (address,) = await app.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield app, model_service_pb2_grpc.ModelServiceStub(channel)
    finally:
        await app.stop(0)


async def refused(call: Any) -> Details:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return Details(caught.value)


async def test_embeddings_take_of_the_rates_of_their_model():
    async with limited(ONCE) as (app, stub):
        (model,) = [each for each in app.engine.catalog._names if "embed" in each]
        request = pb.EmbedRequest(model=model, inputs=["a text"])
        await stub.Embed(request, timeout=5)
        details = await refused(stub.Embed(request, timeout=5))
    assert details.quota.violations[0].subject == f"model:{model}"


async def test_counts_take_a_place_and_nothing_of_a_rate():
    async with limited(ONCE) as (app, stub):
        request = pb.CountTokensRequest(request=asking(model=ANSWER))
        for _ in range(3):
            await stub.CountTokens(request, timeout=5)
        app.engine.reconfigure(
            AdmissionLimits(queued=0, targets={"replay": 0}), stream_buffer_bytes=1024, slow_reader_seconds=1
        )
        details = await refused(stub.CountTokens(request, timeout=5))
    assert details.quota.violations[0].subject == "target:replay"


async def test_each_turn_of_a_session_is_a_call():
    async with limited(ONCE) as (_, stub):
        session = stub.Session(timeout=5)
        await session.write(pb.SessionRequest(open=session_pb2.SessionOpen(model=ANSWER)))
        ends = []
        for _ in range(2):
            await session.write(pb.SessionRequest(turn=pb.SessionTurn(request=pb.CompleteRequest(text="Hi"))))
            while (message := await session.read()).WhichOneof("event") != "turn_ended":
                pass
            ends.append(message.turn_ended)
        session.cancel()
    assert [each.WhichOneof("outcome") for each in ends] == ["completion", "failed"]


async def test_the_settings_of_the_server_are_those_of_its_engine():
    async with limited(
        CallLimits(), max_queued_calls=7, queue_seconds=2.0, stream_buffer_bytes=2048, slow_reader_seconds=3.0
    ) as (app, _):
        assert app.engine.admission.limits.queued == 7
        assert app.engine.admission.limits.queue_seconds == 2.0
        assert (app.engine.stream_buffer_bytes, app.engine.slow_reader_seconds) == (2048, 3.0)
