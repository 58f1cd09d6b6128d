"""Events and documents of the Messages API, written by hand after the recorded ones; every figure can be chosen."""

from __future__ import annotations

from typing import Any

from .wire_bytes import Json, body, sse

PING: Json = {"type": "ping"}
STOP: Json = {"type": "message_stop"}
START_USAGE: Json = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 1,
}


def start(usage: object = START_USAGE, **fields: Any) -> Json:
    """Return `message_start`."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage, **fields}}


def opened(index: int, type: str = "text", **fields: Any) -> Json:
    """Return `content_block_start`."""
    empty: dict[str, Json] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"id": f"call_{index}", "name": "look", "input": {}},
    }
    block = {"type": type, **empty.get(type, {}), **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **delta: Any) -> Json:
    """Return `content_block_delta`."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


def text(index: int, text: str) -> Json:
    return delta(index, type="text_delta", text=text)


def json_piece(index: int, piece: str) -> Json:
    return delta(index, type="input_json_delta", partial_json=piece)


def thinking(index: int, text: str) -> Json:
    return delta(index, type="thinking_delta", thinking=text)


def signature(index: int, text: str) -> Json:
    return delta(index, type="signature_delta", signature=text)


def closed(index: int) -> Json:
    """Return `content_block_stop`."""
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None = "end_turn", usage: object = None, **delta: Any) -> Json:
    """Return `message_delta`; without `usage` it tells none."""
    event = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None, **delta}}
    return event if usage is None else {**event, "usage": usage}


def error(type: str, message: str = "synthetic", **fields: Any) -> Json:
    """Return an `error` event, which is also the error document of an HTTP answer."""
    return {"type": "error", "error": {"type": type, "message": message, **fields}}


def text_block(index: int, *pieces: str) -> list[Json]:
    """Return the events of a whole text block."""
    return [opened(index), *(text(index, piece) for piece in pieces), closed(index)]


def tool_block(index: int, name: str, *pieces: str) -> list[Json]:
    """Return the events of a whole tool call."""
    fragments = [json_piece(index, piece) for piece in pieces]
    return [opened(index, "tool_use", name=name), *fragments, closed(index)]


def thinking_block(index: int, *pieces: str, signed: str = "c2lnbmVk") -> list[Json]:
    """Return the events of a whole block of signed thinking."""
    thoughts = [thinking(index, piece) for piece in pieces]
    return [opened(index, "thinking"), *thoughts, signature(index, signed), closed(index)]


def message(*blocks: list[Json], reason: str | None = "end_turn", output: int = 20) -> list[Json]:
    """Return the events of a whole message that ends with `output` tokens."""
    contents = [event for block in blocks for event in block]
    return [start(), PING, *contents, ended(reason, {"output_tokens": output}), STOP]


def stream(*blocks: list[Json], reason: str | None = "end_turn", output: int = 20) -> bytes:
    """Return `message` as an event stream."""
    return sse(*message(*blocks, reason=reason, output=output))


def document(*content: Json, reason: str | None = "end_turn", usage: object = None, **fields: Any) -> bytes:
    """Return a message as one JSON body, its members in the provider's order."""
    told = {**START_USAGE, "output_tokens": 20} if usage is None else usage
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": list(content)}
    return body({**head, "stop_reason": reason, "stop_sequence": None, "usage": told, **fields})
