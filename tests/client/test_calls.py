"""What goes with every call, and what a client does with its connection."""

from __future__ import annotations

import asyncio
import inspect
import math
import uuid

import grpc
import pytest

import modelmeter
from modelmeter import AsyncClient, Client, LostContactError, RefusedError
from modelmeter.v1 import error_pb2, model_service_pb2
from modelmeter.v1.model_service_pb2 import (
    CompleteRequest,
    GetModelResponse,
    ListModelsResponse,
    StreamCompleteResponse,
)
from tests.client.faces import face
from tests.support.scripted_service import (
    aborting,
    answering,
    completion,
    failing,
    in_turn,
    model_error,
    returning,
    streaming,
)

METHODS = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].methods_by_name


async def test_a_call_returns_the_completion(client, service):
    service.script("Complete", answering(completion(text="hello", call_id="c")))
    answer = await client.complete("replay/default", "Hi", system="be brief")
    assert (answer.text, answer.call_id) == ("hello", "c")
    (request,) = service.requests
    assert (request.model, request.text, request.system) == ("replay/default", "Hi", "be brief")


async def test_every_call_of_a_model_sends_a_call_id_of_its_own(client, service):
    await client.complete("m", "hi")
    await client.complete(CompleteRequest(model="m", text="hi"))
    await client.events("m", "hi")
    unary, ready, streamed = service.requests
    ids = {uuid.UUID(each) for each in (unary.call_id, ready.call_id, streamed.request.call_id)}
    assert len(ids) == 3


async def test_a_call_id_that_was_given_is_kept(client, service):
    await client.complete("m", "hi", call_id="mine")
    await client.events(CompleteRequest(model="m", call_id="mine"))
    assert [service.requests[0].call_id, service.requests[1].request.call_id] == ["mine", "mine"]


async def test_every_rpc_of_the_service_has_a_method(client, service):
    await client.complete("m", "hi")
    await client.events("m", "hi")
    await client.models()
    await client.model("m")
    await client.count_tokens("m", "hi")
    await client.embed("m", "hi")
    called = {type(request).__name__.removesuffix("Request") for request in service.requests}
    assert called == set(METHODS) - {"Session"}  # which has a client of its own


def test_the_twins_have_the_same_methods_with_the_same_arguments():
    for pair in (
        (Client, AsyncClient),
        (modelmeter.Admin, modelmeter.AsyncAdmin),
        (modelmeter.CompletionStream, modelmeter.AsyncCompletionStream),
    ):
        sync, twin = (
            {name: value for name, value in vars(each).items() if not name.startswith("_")} for each in pair
        )
        assert sync.keys() == twin.keys()
        for name in sync.keys() - {"text", "admin"}:
            assert inspect.signature(sync[name]).parameters == inspect.signature(twin[name]).parameters


async def test_models_follows_the_pages(client, service):
    names = [["a", "b"], ["c"], []]
    tokens = ["page 2", "page 3", ""]
    pages = [
        ListModelsResponse(
            models=[model_service_pb2.Model(name=name) for name in page], next_page_token=token
        )
        for page, token in zip(names, tokens, strict=True)
    ]
    service.script("ListModels", in_turn(*map(returning, pages)))
    assert [model.name for model in await client.models()] == ["a", "b", "c"]
    assert [request.page_token for request in service.requests] == ["", "page 2", "page 3"]


async def test_one_model_is_asked_for_by_name(client, service):
    service.script("GetModel", returning(GetModelResponse(model=model_service_pb2.Model(name="a"))))
    assert (await client.model("a")).name == "a"
    assert service.requests[0].name == "a"


async def test_an_unknown_model_is_refused(client, service):
    refused = model_error(error_pb2.ERROR_KIND_REFUSED)
    service.script("GetModel", failing(refused, code=grpc.StatusCode.NOT_FOUND))
    with pytest.raises(RefusedError) as caught:
        await client.model("nope")
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_the_transport_repeats_lookups_and_never_a_call_of_a_model(client, service):
    busy = aborting(grpc.StatusCode.UNAVAILABLE, "busy")
    service.script("ListModels", in_turn(busy, busy, returning(ListModelsResponse())))
    assert await client.models() == []
    assert len(service.requests) == 3
    service.script("Complete", busy)
    service.script("StreamComplete", streaming(then=busy))
    with pytest.raises(LostContactError):
        await client.complete("m", "hi")
    with pytest.raises(LostContactError):
        await client.events("m", "hi")
    assert len(service.requests) == 5


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_the_default_deadline_is_ten_minutes(service, address, kind):
    async with face(kind, address, timeout=modelmeter.DEFAULT_TIMEOUT) as client:
        await client.complete("m", "hi")
        await client.events("m", "hi")
        await client.models()
    assert service.time_remaining == pytest.approx([600] * 3, abs=20)


async def test_a_timeout_of_the_call_wins_and_inf_is_none(client, service):
    await client.complete("m", "hi", timeout=50)
    await client.events("m", "hi", timeout=50)
    await client.complete("m", "hi", timeout=math.inf)
    *limited, endless = service.time_remaining
    assert limited == pytest.approx([50, 50], abs=10)
    assert endless is None


async def test_metadata_user_agent_and_call_go_together(client, service):
    await client.complete("m", "hi", metadata={"X-Trace": "1"})
    await client.events("m", "hi", metadata=[("x-bytes-bin", b"\x00")])
    unary, streamed = service.metadata
    assert unary["x-trace"] == "1"
    assert streamed["x-bytes-bin"] == b"\x00"
    assert unary["user-agent"].startswith(f"modelmeter-python/{modelmeter.__version__} ")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_token_goes_with_every_call_unless_the_call_brings_its_own(service, address, kind):
    async with face(kind, address, token="abc") as client:
        await client.complete("m", "hi")
        await client.events("m", "hi")
        await client.models()
        await client.model("m", metadata={"authorization": "Basic x"})
    sent = [each["authorization"] for each in service.metadata]
    assert sent == ["Bearer abc", "Bearer abc", "Bearer abc", "Basic x"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_closed_client_says_so(address, kind):
    async with face(kind, address) as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await client.complete("m", "hi")
    with pytest.raises(RuntimeError, match="closed"):
        await client.events("m", "hi")


async def test_closing_an_async_client_ends_its_calls_as_errors_and_not_as_cancelled_tasks(service, address):
    service.script("Complete", service.hanging())
    service.script("StreamComplete", service.streaming_then_hanging())
    client = AsyncClient(address)

    async def read() -> None:
        async with client.stream("m", "hi") as stream:
            await anext(stream)

    calls = [asyncio.create_task(client.complete("m", "hi")), asyncio.create_task(read())]
    for _ in calls:
        await service.arrivals.get()
    await client.close()
    for call in calls:
        with pytest.raises(LostContactError) as caught:
            await call
        assert caught.value.cause == "CALLER"


async def test_closing_a_sync_client_ends_its_calls(service, address):
    service.script("Complete", service.hanging())
    client = Client(address)
    call = asyncio.create_task(asyncio.to_thread(client.complete, "m", "hi"))
    await service.reached.wait()
    client.close()
    with pytest.raises(LostContactError) as caught:
        await call
    assert caught.value.cause == "CALLER"


async def test_cancelling_the_task_that_waits_cancels_the_call(service, address):
    service.script("Complete", service.hanging())
    async with AsyncClient(address) as client:
        call = asyncio.create_task(client.complete("m", "hi"))
        await service.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(10):
            await service.cancelled.wait()


async def test_a_channel_of_the_callers_own_is_used_and_left_open(service, address):
    async with grpc.aio.insecure_channel(address) as channel:
        async with AsyncClient(channel) as client:
            await client.complete("m", "hi")
        async with AsyncClient(channel) as client:
            await client.complete("m", "hi")
    with grpc.insecure_channel(address) as sync_channel:
        for _ in range(2):
            with Client(sync_channel) as sync_client:
                await asyncio.to_thread(sync_client.complete, "m", "hi")
    assert len(service.requests) == 4


def test_an_async_client_can_be_made_before_there_is_a_loop():
    client = AsyncClient("127.0.0.1:1")
    asyncio.run(client.close())


async def test_answers_above_the_default_limit_of_grpc_arrive(client, service):
    text = "x" * (5 * 1024 * 1024)
    service.script("Complete", answering(completion(text=text)))
    service.script("StreamComplete", streaming(StreamCompleteResponse(completion=completion(text=text))))
    assert len((await client.complete("m", "hi")).text) == len(text)
    _, streamed = await client.texts("m", "hi")
    assert len(streamed.text) == len(text)


async def test_many_threads_share_one_client(service, address):
    with Client(address) as client:
        calls = [asyncio.to_thread(client.complete, "m", str(number)) for number in range(20)]
        answers = await asyncio.gather(*calls)
    assert [answer.text for answer in answers] == ["hello"] * 20
    assert {request.text for request in service.requests} == {str(number) for number in range(20)}
