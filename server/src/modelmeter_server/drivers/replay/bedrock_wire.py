"""An answer in the frames of Bedrock's ConverseStream, as recorded streams have them."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import TYPE_CHECKING, Any

from modelmeter_server.core.json_text import dumps_compact

from .reply import Bill, Block, BlockKind, Reply, pieces_of
from .wire import arguments_value

if TYPE_CHECKING:
    from .script import ScriptedError

_SIGNATURE = "cmVwbGF5"
"""Stands for the signature that reasoning carries; only its provider can read a real one."""
_STRING = 7
_OVERHEAD = 16


class BedrockFace:
    """See `WireFace`."""

    request_id_header = "x-amzn-requestid"
    stream_type = "application/vnd.amazon.eventstream"

    def events(self, reply: Reply) -> list[bytes]:
        """Return the frames from `messageStart` to `metadata`, which alone tells the bill."""
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
        for index, block in enumerate(reply.blocks):
            events += [
                (name, {"contentBlockIndex": index, **told})
                for name, told in _block_events(block, reply.pieces)
            ]
        events.append(("messageStop", {"stopReason": _reason(reply)}))
        events.append(("metadata", {**_usage(reply.bill), "metrics": {"latencyMs": 0}}))
        return [_event(name, told) for name, told in events]

    def document(self, reply: Reply) -> bytes:
        """Return the answer of Converse."""
        message = {"role": "assistant", "content": [_content(block) for block in reply.blocks]}
        head = {"metrics": {"latencyMs": 0}, "output": {"message": message}, "stopReason": _reason(reply)}
        return dumps_compact({**head, **_usage(reply.bill)}).encode()

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return the frame of an exception, which ends the stream."""
        told = {":exception-type": error.type, ":content-type": "application/json"}
        payload = dumps_compact({"message": error.message}).encode()
        return [_frame({**told, ":message-type": "exception"}, payload)]

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the error body, which names its type itself: a script may set the header that does."""
        return dumps_compact({"__type": error.code or error.type, "message": error.message}).encode()


def _event(name: str, payload: dict[str, Any]) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return _frame(headers, dumps_compact(payload).encode())


def _frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one message of Amazon's event stream encoding; `core.event_stream` tells its parts."""
    block = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    lengths = struct.pack(">II", _OVERHEAD + len(block) + len(payload), len(block))
    start = lengths + struct.pack(">I", crc32(lengths)) + block + payload
    return start + struct.pack(">I", crc32(start))


def _header(name: bytes, value: bytes) -> bytes:
    return struct.pack(">B", len(name)) + name + struct.pack(">BH", _STRING, len(value)) + value


def _block_events(block: Block, pieces: int | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the frames of one block; only a tool call has a start."""
    texts = pieces_of(block.text, pieces)
    start: list[tuple[str, dict[str, Any]]] = []
    match block.kind:
        case BlockKind.CALL:
            start = [
                ("contentBlockStart", {"start": {"toolUse": {"toolUseId": block.id, "name": block.name}}})
            ]
            deltas: list[dict[str, Any]] = [{"toolUse": {"input": text}} for text in texts]
        case BlockKind.REASONING:
            deltas = [{"reasoningContent": {"text": text}} for text in texts]
            deltas.append({"reasoningContent": {"signature": _SIGNATURE}})
        case _:
            deltas = [{"text": text} for text in texts]
    return [*start, *(("contentBlockDelta", {"delta": delta}) for delta in deltas), ("contentBlockStop", {})]


def _content(block: Block) -> dict[str, Any]:
    match block.kind:
        case BlockKind.CALL:
            call = {"toolUseId": block.id, "name": block.name, "input": arguments_value(block.text)}
            return {"toolUse": call}
        case BlockKind.REASONING:
            return {"reasoningContent": {"reasoningText": {"text": block.text, "signature": _SIGNATURE}}}
        case _:
            return {"text": block.text}


def _reason(reply: Reply) -> str:
    kinds = [block.kind for block in reply.blocks]
    if reply.stop_reason is not None:
        return reply.stop_reason
    if BlockKind.REFUSAL in kinds:
        return "content_filtered"
    return "max_tokens" if reply.is_capped else "tool_use" if BlockKind.CALL in kinds else "end_turn"


def _usage(bill: Bill | None) -> dict[str, Any]:
    """Return the usage: the input in three parts that add up (R-U1). Reasoning is not told apart."""
    if bill is None:
        return {}
    usage = {
        "inputTokens": bill.input - bill.cache_read - bill.cache_write,
        "cacheReadInputTokens": bill.cache_read,
        "cacheWriteInputTokens": bill.cache_write,
        "outputTokens": bill.output,
        "totalTokens": bill.input + bill.output,
    }
    return {"usage": usage}
