"""Chunks and documents of Chat Completions, written by hand after the recorded ones; every figure can be chosen."""

from __future__ import annotations

from typing import Any

from .wire_bytes import Json, body, sse

USAGE: Json = {
    "prompt_tokens": 30,
    "completion_tokens": 8,
    "total_tokens": 38,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
DONE = b"[DONE]"


def choice(delta: object = None, finish_reason: object = None, index: object = 0, **fields: Any) -> Json:
    """Return one choice of a chunk."""
    return {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish_reason, **fields}


def chunk(*choices: Json, usage: object = None, **fields: Any) -> Json:
    """Return a chunk, its members in the provider's order."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return {**head, "choices": list(choices), "usage": usage, **fields}


def said(**delta: Any) -> Json:
    """Return a chunk with one delta."""
    return chunk(choice(delta))


def role() -> Json:
    return said(role="assistant", content="")


def text(piece: object) -> Json:
    return said(content=piece)


def fragment(**fields: Any) -> Json:
    """Return a chunk with one fragment of a tool call; `name` and `arguments` stand in its function."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return said(tool_calls=[{**fields, "function": function}])


def call(index: int, *pieces: str, id: str = "", name: str = "look") -> list[Json]:
    """Return the chunks of a tool call."""
    opened = fragment(index=index, id=id or f"call_{index}", type="function", name=name, arguments="")
    return [opened, *(fragment(index=index, arguments=piece) for piece in pieces)]


def finish(reason: object = "stop", **fields: Any) -> Json:
    """Return the chunk that says why the model stopped."""
    return chunk(choice({}, reason), **fields)


def usage(figures: object = USAGE, **fields: Any) -> Json:
    """Return the chunk with the usage, which has no choices."""
    return chunk(usage=figures, **fields)


def ended(reason: object = "stop", figures: object = USAGE) -> list[object]:
    """Return the tail of a whole stream."""
    return [finish(reason), usage(figures), DONE]


def stream(*pieces: str, reason: object = "stop", figures: object = USAGE) -> bytes:
    """Return a whole text answer as an event stream."""
    return sse(role(), *map(text, pieces), *ended(reason, figures))


def document(
    message: object = None, *, reason: object = "stop", figures: object = USAGE, **fields: Any
) -> Json:
    """Return an answer as one document, the stop reason before the usage as providers write it."""
    said = {"role": "assistant", "content": "Hello"} if message is None else message
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-1"}
    return {
        **head,
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        "usage": figures,
        **fields,
    }


def whole(message: object = None, **fields: Any) -> bytes:
    """Return an answer as one JSON body."""
    return body(document(message, **fields))
