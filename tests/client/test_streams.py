"""A stream hands out typed events and the answer, and leaving it ends the call."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

from modelmeter import (
    AsyncClient,
    Cause,
    Client,
    Completion,
    LostContactError,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageSnapshot,
)
from modelmeter.v1 import completion_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import StreamCompleteResponse
from tests.support.scripted_service import aborting, streaming

pb = completion_pb2
STARTED = StreamCompleteResponse(started=pb.CompletionStarted(call_id="c", model_asked="m", target="t"))
DONE = StreamCompleteResponse(completion=pb.Completion(text="ab", certainty=usage_pb2.CERTAINTY_EXACT))


def _text(text: str) -> StreamCompleteResponse:
    return StreamCompleteResponse(text=pb.TextDelta(text=text))


async def _within_a_moment(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


async def test_every_event_arrives_typed_and_in_order(client, service):
    snapshot = pb.UsageSnapshot(
        usage=usage_pb2.Usage(output_tokens=3),
        additional_usage=[usage_pb2.AdditionalUsage(kind="compaction")],
        certainty=usage_pb2.CERTAINTY_AT_LEAST,
    )
    call = pb.ToolCallDelta(index=1, id="i", name="n", arguments_json="{")
    reasoning = StreamCompleteResponse(reasoning=pb.ReasoningDelta(text="hm"))
    messages = [STARTED, _text("a"), reasoning]
    messages += [StreamCompleteResponse(tool_call=call), StreamCompleteResponse(usage=snapshot), DONE]
    service.script("StreamComplete", streaming(*messages))
    *events, usage, completion = await client.events("model", "hi")
    assert events == [
        Started("c", "m", "t"),
        TextDelta("a"),
        ReasoningDelta("hm"),
        ToolCallDelta(1, "i", "n", "{"),
    ]
    assert isinstance(usage, UsageSnapshot)
    assert (usage.usage.output_tokens, usage.certainty) == (3, "AT_LEAST")
    assert [each.kind for each in usage.additional_usage] == ["compaction"]
    assert isinstance(completion, Completion)
    assert (completion.text, completion.certainty) == ("ab", "EXACT")


async def test_an_event_newer_than_the_client_is_skipped(client, service):
    unknown = StreamCompleteResponse.FromString(b"\x9a\x06\x00")  # field 99, an empty message
    service.script("StreamComplete", streaming(unknown, _text("a"), StreamCompleteResponse(), DONE))
    events = await client.events("model", "hi")
    assert [type(event) for event in events] == [TextDelta, Completion]


async def test_text_reads_to_the_end_and_leaves_the_completion(client, service):
    service.script("StreamComplete", streaming(STARTED, _text("a"), _text("b"), DONE))
    texts, completion = await client.texts("model", "hi")
    assert texts == ["a", "b"]
    assert completion.text == "ab"


async def test_a_completion_that_arrived_is_good_whatever_comes_after_it(client, service):
    broken = aborting(grpc.StatusCode.UNAVAILABLE, "connection reset")
    service.script("StreamComplete", streaming(_text("a"), DONE, then=broken))
    texts, completion = await client.texts("model", "hi")
    assert (texts, completion.text) == (["a"], "ab")


async def test_leaving_a_stream_early_cancels_the_call(client, service):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))
    assert await client.leave("model", "hi") == TextDelta("a")
    await _within_a_moment(service.cancelled)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_exception_in_the_block_cancels_the_call_and_goes_on(address, service, kind):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))

    def sync_block() -> None:
        with Client(address) as client, client.stream("model", "hi") as stream:
            next(stream)
            raise KeyError("mine")

    async def async_block() -> None:
        async with AsyncClient(address) as client, client.stream("model", "hi") as stream:
            await anext(stream)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await (asyncio.to_thread(sync_block) if kind == "sync" else async_block())
    await _within_a_moment(service.cancelled)


async def test_cancelling_the_task_that_reads_a_stream_cancels_the_call(address, service):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))

    async def read() -> None:
        async with AsyncClient(address) as client, client.stream("model", "hi") as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    await _within_a_moment(service.reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _within_a_moment(service.cancelled)


async def test_a_timeout_around_a_stream_stays_a_timeout(address, service):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))

    async def read(client: AsyncClient) -> None:
        async with asyncio.timeout(0.3), client.stream("model", "hi") as stream:
            async for _ in stream:
                pass

    async with AsyncClient(address) as client:
        with pytest.raises(TimeoutError):
            await read(client)
    await _within_a_moment(service.cancelled)


async def test_another_thread_can_cancel_a_sync_stream(address, service):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))
    seen = []

    def read() -> None:
        with Client(address) as client, client.stream("model", "hi") as stream:
            for event in stream:
                seen.append(event)
                threading.Thread(target=stream.cancel).start()

    with pytest.raises(LostContactError) as caught:
        await asyncio.to_thread(read)
    assert seen == [TextDelta("a")]
    assert (caught.value.cause, caught.value.code) == (Cause.CALLER, grpc.StatusCode.CANCELLED)
    assert caught.value.effect_outcome == "performed"
    await _within_a_moment(service.cancelled)


async def test_another_task_can_cancel_an_async_stream_without_cancelling_the_reader(address, service):
    service.script("StreamComplete", service.streaming_then_hanging(_text("a")))
    async with AsyncClient(address) as client, client.stream("model", "hi") as stream:
        assert await anext(stream) == TextDelta("a")
        asyncio.get_running_loop().call_soon(stream.cancel)
        with pytest.raises(LostContactError) as caught:
            await anext(stream)
    assert caught.value.cause is Cause.CALLER
    assert (task := asyncio.current_task()) is not None
    assert task.cancelling() == 0
    await _within_a_moment(service.cancelled)


async def test_the_completion_of_an_unfinished_stream_is_an_error_of_the_caller(address, service):
    service.script("StreamComplete", streaming(_text("a"), DONE))
    async with AsyncClient(address) as client, client.stream("model", "hi", call_id="x") as stream:
        assert await anext(stream) == TextDelta("a")
        with pytest.raises(RuntimeError, match="not been read to its end"):
            _ = stream.completion
        assert (stream.call_id, stream.usage) == ("x", None)


async def test_a_stream_knows_the_last_usage_told(address, service):
    usages = [
        StreamCompleteResponse(usage=pb.UsageSnapshot(usage=usage_pb2.Usage(output_tokens=count)))
        for count in (5, 3)
    ]
    service.script("StreamComplete", streaming(*usages, DONE))
    async with AsyncClient(address) as client, client.stream("model", "hi") as stream:
        counts = [event.usage.output_tokens async for event in stream if isinstance(event, UsageSnapshot)]
        assert counts == [5, 3]
        assert stream.usage is not None
        assert stream.usage.usage.output_tokens == 3


async def test_the_flush_interval_goes_with_the_request(client, service):
    service.script("StreamComplete", streaming(DONE))
    await client.events("model", "hi", flush_interval=0.25)
    await client.events("model", "hi", flush_interval=0)
    await client.events("model", "hi")
    first, second, third = service.requests
    assert (first.flush_interval.seconds, first.flush_interval.nanos) == (0, 250_000_000)
    assert second.HasField("flush_interval")
    assert not third.HasField("flush_interval")
