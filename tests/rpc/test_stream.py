"""StreamComplete over a real channel: order, coalescing, one terminal event, the same status as Complete."""

from __future__ import annotations

from typing import Any

import grpc

from modelmeter.v1 import error_pb2, usage_pb2
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Kind
from tests.support.running_server import Details, read_all, serving, streaming
from tests.support.scripted_driver import (
    Broken,
    Hold,
    ScriptedDriver,
    Step,
    Verdict,
    Written,
    answering,
    closing,
    opening,
    text,
)


def kinds(events) -> list[str]:
    return [event.WhichOneof("event") for event in events]


async def test_a_stream_is_started_then_deltas_then_one_completion():
    held = [Hold(), Hold()]
    script: list[Step] = [Written(), opening(), text("Hel"), held[0], text("lo."), held[1], closing()]
    async with serving(ScriptedDriver(script)) as running:
        call = running.stub.StreamComplete(streaming(), timeout=5)
        seen: list[Any] = [await call.read(), await call.read()]
        held[0].go.set()
        while seen[-1].text.text != "lo.":
            seen.append(await call.read())
        held[1].go.set()
        rest, error = await read_all(call)
    events = seen + rest
    assert error is None
    names = kinds(events)
    assert names[0] == "started"
    assert names[-1] == "completion"
    assert set(names[1:-1]) <= {"text", "usage"}
    assert "".join(event.text.text for event in events) == events[-1].completion.text == "Hello."
    assert (events[0].started.model_asked, events[0].started.target) == ("claude", "scripted")
    assert events[0].started.call_id == events[-1].completion.call_id


async def test_usage_is_told_while_it_grows_and_with_the_end_in_the_completion():
    hold = Hold()
    async with serving(ScriptedDriver([Written(), opening(), hold, text("Hi"), closing()])) as running:
        call = running.stub.StreamComplete(streaming(), timeout=5)
        seen: list[Any] = [await call.read(), await call.read()]
        hold.go.set()
        rest, _ = await read_all(call)
    assert kinds(seen) == ["started", "usage"]
    assert seen[1].usage.usage.input_tokens == 25
    assert seen[1].usage.certainty == usage_pb2.CERTAINTY_AT_LEAST
    assert rest[-1].completion.usage.output_tokens == 9


async def test_what_arrives_in_one_read_leaves_in_one_message():
    pieces = [text(f"{number} ") for number in range(400)]
    async with serving(ScriptedDriver([Written(), opening(), *pieces, closing()])) as running:
        events, _ = await read_all(running.stub.StreamComplete(streaming(), timeout=5))
    assert kinds(events) == ["started", "text", "completion"]
    assert events[1].text.text == events[2].completion.text


async def test_a_broken_stream_says_so_in_band_and_then_as_its_status():
    async with serving(ScriptedDriver([Written(), opening(), text("He"), Broken()])) as running:
        events, error = await read_all(running.stub.StreamComplete(streaming(), timeout=5))
    assert kinds(events) == ["started", "text", "failed"]
    assert error is not None
    assert error.code() is grpc.StatusCode.ABORTED
    in_band, details = events[-1].failed, Details(error)
    assert in_band.kind == error_pb2.ERROR_KIND_INTERRUPTED
    assert in_band == details.model_error


async def test_a_stream_that_never_started_is_failed_alone():
    refusal = failure(Kind.UNREACHABLE, "nobody listens there")
    async with serving(ScriptedDriver([Verdict(refusal)])) as running:
        events, error = await read_all(running.stub.StreamComplete(streaming(), timeout=5))
    assert kinds(events) == ["failed"]
    assert error is not None
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_and_a_unary_call_fail_with_the_same_status():
    async with serving(ScriptedDriver([Written(), opening(), Broken()])) as running:
        _, streamed = await read_all(running.stub.StreamComplete(streaming(), timeout=5))
        unary = await running.error()
    assert streamed is not None
    assert (streamed.code(), streamed.details()) == (unary.code(), unary.details())


async def test_the_call_id_is_in_the_initial_metadata_of_a_stream():
    async with serving(ScriptedDriver(answering())) as running:
        call = running.stub.StreamComplete(streaming(), timeout=5)
        metadata = dict(await call.initial_metadata())
        events, _ = await read_all(call)
    assert metadata["modelmeter-call-id"] == events[0].started.call_id
