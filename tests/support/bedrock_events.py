"""Events and documents of Bedrock's Converse API, written by hand after the recorded ones, and their frames."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import Any

from .wire_bytes import Json, body

USAGE: Json = {"inputTokens": 12, "outputTokens": 20, "totalTokens": 32}


def raw_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one message of the event stream encoding."""
    block = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    start = prelude + struct.pack(">I", crc32(prelude)) + block + payload
    return start + struct.pack(">I", crc32(start))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(">B", len(key)) + key + struct.pack(">BH", 7, len(text)) + text


def named(name: str, payload: object) -> bytes:
    """Return one event; bytes are taken as its payload."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return raw_frame(headers, payload if isinstance(payload, bytes) else body(payload))


def frame(event: Json) -> bytes:
    """Return an event `{name: payload}` as a frame."""
    ((name, payload),) = event.items()
    return named(name, payload)


def frames(*events: Json) -> bytes:
    """Return an event stream."""
    return b"".join(map(frame, events))


def exception(type: str, message: str = "synthetic", **fields: Any) -> bytes:
    """Return the frame of an exception."""
    headers = {":exception-type": type, ":content-type": "application/json", ":message-type": "exception"}
    return raw_frame(headers, body({"message": message, **fields}))


def error(code: str, message: str = "synthetic") -> bytes:
    """Return the frame of an error, which has no payload."""
    return raw_frame({":error-code": code, ":error-message": message, ":message-type": "error"}, b"")


START: Json = {"messageStart": {"role": "assistant", "p": "abcdefgh"}}


def delta(index: int, **delta: Any) -> Json:
    """Return `contentBlockDelta`, with the padding that the provider adds."""
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta, "p": "abc"}}


def text(index: int, text: str) -> Json:
    return delta(index, text=text)


def reasoning(index: int, **pieces: str) -> Json:
    """Return a piece of reasoning: `text`, `signature` or `redactedContent`."""
    return delta(index, reasoningContent=pieces)


def arguments(index: int, piece: str) -> Json:
    return delta(index, toolUse={"input": piece})


def opened(index: int, name: str = "look", **fields: Any) -> Json:
    """Return the start of a tool call; other blocks have none."""
    call = {"toolUseId": f"call_{index}", "name": name, **fields}
    return {"contentBlockStart": {"contentBlockIndex": index, "start": {"toolUse": call}}}


def closed(index: int) -> Json:
    """Return `contentBlockStop`."""
    return {"contentBlockStop": {"contentBlockIndex": index}}


def stopped(reason: str | None = "end_turn", **fields: Any) -> Json:
    """Return `messageStop`."""
    return {"messageStop": {"stopReason": reason, **fields}}


def metadata(usage: object = USAGE, **fields: Any) -> Json:
    """Return `metadata`; without `usage` it tells none."""
    told = {} if usage is None else {"usage": usage}
    return {"metadata": {**told, "metrics": {"latencyMs": 5}, **fields}}


def text_block(index: int, *pieces: str) -> list[Json]:
    """Return the events of a whole text block, which has no start."""
    return [*(text(index, piece) for piece in pieces), closed(index)]


def tool_block(index: int, name: str, *pieces: str, **fields: Any) -> list[Json]:
    """Return the events of a whole tool call."""
    return [opened(index, name, **fields), *(arguments(index, piece) for piece in pieces), closed(index)]


def reasoning_block(index: int, *pieces: str, signed: str = "c2lnbmVk") -> list[Json]:
    """Return the events of a whole block of signed reasoning."""
    thoughts = [reasoning(index, text=piece) for piece in pieces]
    return [*thoughts, reasoning(index, signature=signed), closed(index)]


def message(*blocks: list[Json], reason: str | None = "end_turn", usage: object = USAGE) -> list[Json]:
    """Return the events of a whole message."""
    return [START, *(event for block in blocks for event in block), stopped(reason), metadata(usage)]


def stream(*blocks: list[Json], reason: str | None = "end_turn", usage: object = USAGE) -> bytes:
    """Return `message` as an event stream."""
    return frames(*message(*blocks, reason=reason, usage=usage))


def document(*content: Json, reason: str | None = "end_turn", usage: object = USAGE, **fields: Any) -> bytes:
    """Return an answer of Converse as one JSON body, its members in the provider's order."""
    output = {"message": {"content": list(content), "role": "assistant"}}
    head = {"metrics": {"latencyMs": 5}, "output": output, "stopReason": reason}
    return body({**head, **({} if usage is None else {"usage": usage}), **fields})
