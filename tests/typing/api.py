"""The types of the public client, as its users' type checkers see them. Checked by mypy, never run.

Each function stands for code of a user. `assert_type` states what a checker must infer; an ignore that is not
needed is an error, so that calls which must not type-check are tested as well.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_never, assert_type

import grpc

import modelmeter
from modelmeter import v1  # noqa: F401  # the generated package is importable by its name
from modelmeter.v1.model_service_pb2 import CompleteRequest


def unary(client: modelmeter.Client) -> None:
    answer = client.complete("replay/default", "Hello")
    assert_type(answer, modelmeter.Completion)
    assert_type(answer.text, str)
    assert_type(answer.usage.output_tokens, int | None)
    assert_type(answer.certainty, modelmeter.Certainty)
    assert_type(answer.cost, modelmeter.Cost | None)
    assert_type(answer.structured, Any)
    assert_type(answer.tool_calls, tuple[modelmeter.ToolCall, ...])
    assert_type(client.models(), list[modelmeter.Model])
    assert_type(client.model("m", timeout=math.inf), modelmeter.Model)


async def async_unary(client: modelmeter.AsyncClient) -> None:
    assert_type(await client.complete(CompleteRequest(model="m")), modelmeter.Completion)
    assert_type(await client.models(), list[modelmeter.Model])
    assert_type(await client.model("m"), modelmeter.Model)


def stream(client: modelmeter.Client) -> None:
    with client.stream("m", "hi", flush_interval=0.1) as stream:
        assert_type(stream, modelmeter.CompletionStream)
        assert_type(stream.text, Iterator[str])
        for event in stream:
            event_kinds(event)
        assert_type(stream.completion, modelmeter.Completion)
        assert_type(stream.usage, modelmeter.UsageSnapshot | None)


async def async_stream(client: modelmeter.AsyncClient) -> None:
    async with client.stream("m", "hi") as stream:
        assert_type(stream, modelmeter.AsyncCompletionStream)
        assert_type(stream.text, AsyncIterator[str])
        async for event in stream:
            event_kinds(event)


def event_kinds(event: modelmeter.StreamEvent) -> str:
    match event:
        case modelmeter.Started() | modelmeter.UsageSnapshot():
            return ""
        case modelmeter.TextDelta(text) | modelmeter.ReasoningDelta(text):
            return text
        case modelmeter.ToolCallDelta():
            return event.arguments_json
        case modelmeter.Completion():
            return event.text
        case _:
            assert_never(event)


def options(client: modelmeter.Client) -> None:
    shared: modelmeter.CompleteOptions = {"system": "be brief", "reasoning_effort": "high"}
    client.complete("m", "hi", **shared)
    client.complete(
        "m", [modelmeter.Message.user("hi", modelmeter.Image("image/png", b""))], labels={"a": "b"}
    )
    client.complete("m", "hi", schema={"type": "object"}, tools=[modelmeter.Tool("look")], tool_choice="auto")
    client.complete("m", "hi", metadata={"x": "y"}, timeout=3)


def events(client: modelmeter.Client) -> None:
    with client.events.watch(kinds=["prompt.failed"], min_severity="warning") as batches:
        assert_type(next(batches), modelmeter.EventBatch)
    for event in client.events.recent(run_id="r"):
        assert_type(event, modelmeter.Event)
    assert_type(client.events.insights(window=60).latency.p95, int)
    client.events.recent(kind="prompt.failed")  # type: ignore[call-arg]


def wrong_options(client: modelmeter.Client) -> None:
    client.complete("m", "hi", max_tokens=1)  # type: ignore[call-arg]
    client.complete("m", "hi", max_output_tokens="many")  # type: ignore[arg-type]
    client.complete("m", 4)  # type: ignore[arg-type]
    client.complete("m", "hi", 5)  # type: ignore[call-arg]
    list(client.stream("m", "hi"))  # type: ignore[call-overload]  # only entering it gives an iterator


def errors(client: modelmeter.Client) -> float | None:
    try:
        client.complete("m", "hi")
    except modelmeter.RateLimitedError as error:
        return error.retry_after
    except modelmeter.ModelmeterError as error:
        assert_type(error.usage, modelmeter.Usage)
        assert_type(error.code, grpc.StatusCode)
        assert_type(error.violations, tuple[modelmeter.FieldViolation, ...])
    return None


def construction(channel: grpc.Channel, credentials: grpc.ChannelCredentials) -> None:
    modelmeter.Client(channel)
    modelmeter.Client("host:1", credentials=credentials, token="t", timeout=1, options={"a": 1})
    modelmeter.AsyncClient(channel)  # type: ignore[arg-type]
    with modelmeter.Client("host:1") as client:
        assert_type(client, modelmeter.Client)
