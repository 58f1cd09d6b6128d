"""What the official SDKs make of the bytes of an answer, in the terms of this service's accumulators.

Each SDK reads its stream over a transport that answers every request with the same bytes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
from botocore.eventstream import EventStream
from botocore.parsers import EventStreamJSONParser
from google import genai
from google.genai import types as google

from .sdk_types import bedrock_service

Figures = tuple[int | None, int | None, int | None, int | None, int | None]
"""Input, output, cache read, cache write, reasoning; by the rules for the wire format."""


@dataclass
class Heard:
    """What an answer said."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """Name and arguments of each tool call; arguments that are no JSON stay a text."""
    usage: Figures | None = None
    stop: str | None = None


def arguments(text: str) -> Any:
    """Return arguments as a value, and text that is no JSON as it is."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


class _Tape:
    """A transport that answers every request with the bytes that were put in."""

    def __init__(self) -> None:
        self.data = b""
        self.http = httpx2.Client(transport=httpx2.MockTransport(self._answer))

    def _answer(self, _request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self.data)


@functools.cache
def _player(client_of: Callable[[httpx2.Client], Any]) -> tuple[_Tape, Any]:
    tape = _Tape()
    return tape, client_of(tape.http)


def _playing(client_of: Callable[[httpx2.Client], Any], data: bytes) -> Any:
    """Return the SDK's client, which hears these bytes next. One for all: making one costs a tenth of a second."""
    tape, client = _player(client_of)
    tape.data = data
    return client


def _total(*counts: int | None) -> int | None:
    """Return the sum of what was told; `None` if nothing was."""
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def _count(value: Any, *path: str) -> int | None:
    for name in path:
        value = getattr(value, name, None)
    return value


# Anthropic


def _anthropic_client(http: httpx2.Client) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="unused", http_client=http, max_retries=0)


def _anthropic(data: bytes) -> Heard:
    messages = _playing(_anthropic_client, data).messages
    with messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as stream:
        message = stream.get_final_message()
    usage = message.usage
    read, write = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    reasoning = _count(usage, "output_tokens_details", "thinking_tokens")
    figures = (_total(_count(usage, "input_tokens"), read, write), _count(usage, "output_tokens"))
    return Heard(
        "".join(block.text or "" for block in message.content if block.type == "text"),
        [(block.name, block.input) for block in message.content if block.type == "tool_use"],
        None if usage is None else (*figures, read, write, reasoning),
        message.stop_reason,
    )


# OpenAI


def _openai_client(http: httpx2.Client) -> openai.OpenAI:
    return openai.OpenAI(api_key="unused", http_client=http, max_retries=0)


def _chat(data: bytes) -> Heard:
    completions = _playing(_openai_client, data).chat.completions
    with completions.stream(model="m", messages=[{"role": "user", "content": "Hi"}]) as stream:
        stream.until_done()
        completion = stream.current_completion_snapshot
    usage = completion.usage
    chosen = [choice for choice in completion.choices if not choice.index]
    if not chosen:
        return Heard(usage=_chat_figures(usage))
    message = chosen[0].message
    calls = [(call.function.name, arguments(call.function.arguments)) for call in message.tool_calls or ()]
    return Heard(message.content or "", calls, _chat_figures(usage), chosen[0].finish_reason)


def _chat_figures(usage: Any) -> Figures | None:
    if usage is None:
        return None
    return (
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        _count(usage, "prompt_tokens_details", "cached_tokens"),
        _count(usage, "prompt_tokens_details", "cache_write_tokens"),
        _count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _responses(data: bytes) -> Heard:
    ended = None
    streamed = ""
    with _playing(_openai_client, data).responses.stream(model="m", input="Hi") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                streamed += event.delta
            if event.type in _ENDS:
                ended = event.response
    if ended is None:
        return Heard(streamed)
    usage = ended.usage
    figures = (
        _count(usage, "input_tokens"),
        _count(usage, "output_tokens"),
        _count(usage, "input_tokens_details", "cached_tokens"),
        _count(usage, "input_tokens_details", "cache_write_tokens"),
        _count(usage, "output_tokens_details", "reasoning_tokens"),
    )
    calls = [
        _responses_call(item) for item in ended.output if item.type in ("function_call", "custom_tool_call")
    ]
    reason = _count(ended, "incomplete_details", "reason")
    stop = f"{ended.status}:{reason}" if reason else ended.status
    return Heard(ended.output_text, calls, None if usage is None else figures, stop)


def _responses_call(item: Any) -> tuple[str, Any]:
    return item.name, item.input if item.type == "custom_tool_call" else arguments(item.arguments)


# Gemini


def _gemini_client(http: httpx2.Client) -> genai.Client:
    return genai.Client(api_key="unused", http_options=google.HttpOptions(httpx_client=http))


def _gemini(data: bytes) -> Heard:
    models = _playing(_gemini_client, data).models
    chunks = list(models.generate_content_stream(model="m", contents="Hi"))
    heard = Heard()
    for chunk in chunks:
        for part in _gemini_parts(chunk):
            if part.text and not part.thought:
                heard.text += part.text
            if part.function_call is not None:
                heard.calls.append((part.function_call.name, part.function_call.args or {}))
        if chunk.usage_metadata is not None:
            heard.usage = _gemini_figures(chunk.usage_metadata)
        if chunk.candidates and chunk.candidates[0].finish_reason is not None:
            heard.stop = chunk.candidates[0].finish_reason.value
    return heard


def _gemini_parts(chunk: Any) -> Iterable[Any]:
    content = chunk.candidates[0].content if chunk.candidates else None
    return (content.parts if content is not None else None) or ()


def _gemini_figures(usage: Any) -> Figures:
    prompt, tools = usage.prompt_token_count, usage.tool_use_prompt_token_count
    answer, thoughts = usage.candidates_token_count, usage.thoughts_token_count
    return _total(prompt, tools), _total(answer, thoughts), usage.cached_content_token_count, None, thoughts


# Bedrock


@dataclass
class _Body:
    """A body as botocore reads it."""

    data: bytes

    def stream(self) -> Iterable[bytes]:
        yield self.data

    def close(self) -> None:
        """Nothing is open."""


def _bedrock(data: bytes) -> Heard:
    shape = bedrock_service().operation_model("ConverseStream").output_shape.members["stream"]
    heard = Heard()
    blocks: dict[int, tuple[str, list[str]]] = {}
    for event in EventStream(_Body(data), shape, EventStreamJSONParser(), "ConverseStream"):
        for name, told in event.items():
            _take_bedrock(name, told, heard, blocks)
    heard.calls = [(name, arguments("".join(pieces))) for name, pieces in blocks.values()]
    return heard


def _take_bedrock(name: str, told: Any, heard: Heard, blocks: dict[int, tuple[str, list[str]]]) -> None:
    if name == "contentBlockStart" and "toolUse" in told["start"]:
        blocks[told["contentBlockIndex"]] = told["start"]["toolUse"]["name"], []
    elif name == "contentBlockDelta":
        delta = told["delta"]
        heard.text += delta.get("text", "")
        if "toolUse" in delta:
            blocks[told["contentBlockIndex"]][1].append(delta["toolUse"]["input"])
    elif name == "messageStop":
        heard.stop = told["stopReason"]
    elif name == "metadata":
        usage = told["usage"]
        read, write = usage.get("cacheReadInputTokens"), usage.get("cacheWriteInputTokens")
        heard.usage = (
            _total(usage.get("inputTokens"), read, write),
            usage.get("outputTokens"),
            read,
            write,
            None,
        )


HEAR: dict[str, Callable[[bytes], Heard]] = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "chat_completions": _chat,
    "gemini": _gemini,
    "openai_responses": _responses,
}
"""By provider kind: read a stream with the SDK. Raises whatever the SDK raises for bytes that it does not take."""
