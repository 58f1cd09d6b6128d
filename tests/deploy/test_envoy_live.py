"""Calls through Envoy: what arrives, what is never repeated, and who is never ejected."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc, model_service_pb2_grpc
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Kind
from tests.support.certificates import trusting
from tests.support.envoy_proxy import envoy
from tests.support.running_server import Details, asking, read_all, serving, streaming
from tests.support.scripted_driver import Broken, Hold, ScriptedDriver, Verdict, Written, answering, opening

pytestmark = pytest.mark.slow

WHOLE = answering("Hello.")
CUT = [Written(), opening(), Broken()]
AWAY = [Verdict(failure(Kind.UNREACHABLE, "the provider is away", cause=Cause.NETWORK))]
LIMITED = [Verdict(failure(Kind.RATE_LIMITED, "too much", cause=Cause.PROVIDER))]


@asynccontextmanager
async def through_envoy(folder, *scripts, **options):
    """Serve scripts, put Envoy in front, and yield the server, the proxy and a channel to it."""
    async with (
        serving(ScriptedDriver(*scripts), **options) as running,
        envoy(folder, running.address) as proxy,
        grpc.aio.secure_channel(proxy.address, trusting(proxy.authority)) as channel,
    ):
        yield running, proxy, channel


def stub_of(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


async def refused(channel, metadata=()):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub_of(channel).Complete(asking(), metadata=metadata, timeout=10)
    return caught.value


async def test_an_answer_and_a_stream_arrive_whole(tmp_path):
    async with through_envoy(tmp_path, WHOLE) as (_, _, channel):
        answer = await stub_of(channel).Complete(asking(), timeout=10)
        events, error = await read_all(stub_of(channel).StreamComplete(streaming(), timeout=10))
    assert answer.completion.text
    assert error is None
    assert events[-1].completion.usage == answer.completion.usage


async def test_a_bill_arrives_with_its_error_and_the_call_is_made_once(tmp_path):
    async with through_envoy(tmp_path, CUT) as (running, _, channel):
        error = await refused(channel)
        assert error.code() is grpc.StatusCode.ABORTED
        assert Details(error).model_error.may_have_generated
        assert len(running.driver.calls) == 1


@pytest.mark.parametrize("script", [AWAY, CUT], ids=["away", "cut"])
async def test_no_header_of_a_caller_makes_envoy_repeat_a_call(tmp_path, script):
    wish = {
        "x-envoy-retry-grpc-on": "unavailable,cancelled,internal,resource-exhausted",
        "x-envoy-retry-on": "5xx,retriable-4xx,reset,gateway-error",
        "x-envoy-retriable-status-codes": "200,409,503",
        "x-envoy-max-retries": "3",
    }
    async with through_envoy(tmp_path, script) as (running, proxy, channel):
        await refused(channel, tuple(wish.items()))
        assert len(running.driver.calls) == 1
        assert await proxy.counted("cluster.modelmeter.upstream_rq_retry") == 0


@pytest.mark.parametrize("script", [AWAY, LIMITED], ids=["away", "limited"])
async def test_a_server_whose_provider_fails_is_not_ejected(tmp_path, script):
    async with through_envoy(tmp_path, *[script] * 20, WHOLE) as (_, proxy, channel):
        for _ in range(20):
            await refused(channel)
        assert (await stub_of(channel).Complete(asking(), timeout=10)).completion.text
        assert await proxy.counted("cluster.modelmeter.outlier_detection.ejections_enforced_total") == 0


async def test_the_log_names_the_call_and_how_it_ended(tmp_path):
    async with through_envoy(tmp_path, WHOLE, CUT) as (_, proxy, channel):
        answer = await stub_of(channel).Complete(asking(), metadata=(("x-request-id", "mine"),), timeout=10)
        await refused(channel)
        first, second = await proxy.logged(2)
    assert first["call_id"] == answer.completion.call_id
    assert (first["method"], first["grpc_status"]) == ("/modelmeter.v1.ModelService/Complete", "OK")
    assert first["request_id"] == "mine"
    assert second["grpc_status"] == "Aborted"


async def test_operators_do_not_come_this_way(tmp_path):
    async with through_envoy(tmp_path, WHOLE) as (_, _, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin_service_pb2_grpc.AdminServiceStub(channel).ListTokens(
                admin_service_pb2.ListTokensRequest(), timeout=10
            )
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_server_that_drains_gets_no_new_call_and_its_stream_ends_well(tmp_path):
    hold = Hold()
    async with through_envoy(tmp_path, [*WHOLE[:2], hold, *WHOLE[2:]]) as (running, proxy, channel):
        stream = asyncio.create_task(read_all(stub_of(channel).StreamComplete(streaming(), timeout=30)))
        await hold.reached.wait()
        stopping = asyncio.create_task(running.server.stop(30))
        await proxy.counts("cluster.modelmeter.membership_healthy", 0)
        assert (await refused(channel)).code() is grpc.StatusCode.UNAVAILABLE
        hold.go.set()
        events, error = await stream
        assert await stopping == 0
    assert error is None
    assert events[-1].completion.text
    assert len(running.driver.calls) == 1
