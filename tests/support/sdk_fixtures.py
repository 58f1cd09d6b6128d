"""Streams of our own that the official SDKs take, for comparing what they hear with what we hear."""

from __future__ import annotations

from typing import Any

from . import anthropic_events, bedrock_events, chat_events, gemini_chunks, responses_events
from .wire_bytes import Json, sse

_A, _B, _C, _G, _R = anthropic_events, bedrock_events, chat_events, gemini_chunks, responses_events

_CALL = ("look", '{"at"', ":1}")
_CACHED = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
    "output_tokens": 9,
    "output_tokens_details": {"thinking_tokens": 4},
}
_ZEROS = {
    "input_tokens": 0,
    "output_tokens": 7,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 0,
}
_BEDROCK_CACHED = {**_B.USAGE, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 3}
_GEMINI_TOLD = {
    "promptTokenCount": 12,
    "toolUsePromptTokenCount": 3,
    "cachedContentTokenCount": 5,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 4,
    "totalTokenCount": 39,
}


def _text_item(*pieces: str) -> list[Json]:
    """Return the events of a message item with all that the API sends around its deltas."""
    part: Json = {"type": "output_text", "text": "", "annotations": []}
    opened = {"id": "msg_0", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    return [
        _R.added(0, opened),
        _R.event("content_part.added", item_id="msg_0", output_index=0, content_index=0, part=part),
        *_R.text_events(0, *pieces)[1:],
    ]


def _response(*events: Json, **ending: Any) -> bytes:
    """Return a stream whose terminal object holds the items that were streamed."""
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return sse(_R.created(), _R.in_progress(), *events, _R.ended(*items, **ending))


_FUNCTION = _R.call_events(0, {**_R.call(), "status": "completed"}, '{"at"', ":1}")
_CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}

FIXTURES: dict[str, tuple[str, bytes]] = {
    "anthropic text": ("anthropic", _A.stream(_A.text_block(0, "Hé", "llo ☃"))),
    "anthropic thinking": ("anthropic", _A.stream(_A.thinking_block(0, "Hm"), _A.text_block(1, "Yes"))),
    "anthropic calls": (
        "anthropic",
        _A.stream(
            _A.text_block(0, "So"), _A.tool_block(1, *_CALL), _A.tool_block(2, "wait"), reason="tool_use"
        ),
    ),
    "anthropic cache and thinking counts": (
        "anthropic",
        sse(_A.start(_CACHED), *_A.text_block(0, "Hi"), _A.ended("max_tokens", _CACHED), _A.STOP),
    ),
    "anthropic zeros after figures": (
        "anthropic",
        sse(_A.start(_CACHED), *_A.text_block(0, "Hi"), _A.ended("end_turn", _ZEROS), _A.STOP),
    ),
    "anthropic figures at the end alone": (
        "anthropic",
        sse(
            _A.start({"input_tokens": 0, "output_tokens": 0}),
            *_A.text_block(0, "Hi"),
            _A.ended(usage=_CACHED),
            _A.STOP,
        ),
    ),
    "anthropic refusal": ("anthropic", _A.stream(_A.text_block(0, "I"), reason="refusal")),
    "anthropic cut": ("anthropic", sse(_A.start(), _A.opened(0), _A.text(0, "Hel"))),
    "bedrock text": ("bedrock", _B.stream(_B.text_block(0, "Hé", "llo ☃"))),
    "bedrock calls": (
        "bedrock",
        _B.stream(
            _B.reasoning_block(0, "Hm"),
            _B.tool_block(1, *_CALL),
            _B.tool_block(2, "wait", "{}"),
            reason="tool_use",
        ),
    ),
    "bedrock cache counts": (
        "bedrock",
        _B.stream(_B.text_block(0, "Hi"), reason="max_tokens", usage=_BEDROCK_CACHED),
    ),
    "bedrock cut": ("bedrock", _B.frames(_B.START, _B.text(0, "Hel"))),
    "chat text": ("chat_completions", _C.stream("Hé", "llo ☃")),
    "chat calls": (
        "chat_completions",
        sse(_C.role(), *_C.call(0, '{"at"', ":1}"), *_C.call(1, "{}", name="wait"), *_C.ended("tool_calls")),
    ),
    "chat length": ("chat_completions", _C.stream("Hi", reason="length")),
    "chat filter": ("chat_completions", _C.stream("Hi", reason="content_filter")),
    "chat cut": ("chat_completions", sse(_C.role(), _C.text("Hel"))),
    "gemini text": (
        "gemini",
        _G.stream(_G.thought("Hm"), _G.text("Hé"), _G.text("llo ☃"), told=_GEMINI_TOLD),
    ),
    "gemini calls": ("gemini", _G.stream(_G.call("look", {"at": 1}, id="c1"), _G.call("wait", {}, id="c2"))),
    "gemini length": ("gemini", _G.stream(_G.text("Hi"), finish="MAX_TOKENS")),
    "gemini blocked": ("gemini", _G.sse(_G.blocked("PROHIBITED_CONTENT", _G.usage(33)))),
    "gemini streamed arguments": (
        "gemini",
        _G.stream(_G.pieces(name="look"), _G.pieces(("$.at", ("a",))), {"functionCall": {}}),
    ),
    "responses text": ("openai_responses", _response(*_text_item("Hé", "llo ☃"))),
    "responses call": ("openai_responses", _response(*_FUNCTION)),
    "responses incomplete": ("openai_responses", _response(*_text_item("Hi"), **_CUT)),
    "responses cut": ("openai_responses", sse(_R.created(), *_text_item("Hel", "lo")[:3])),
}
"""Provider kind and bytes of each stream."""
