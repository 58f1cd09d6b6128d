"""An answer in the events of Anthropic's Messages API, as recorded streams have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelmeter_server.core.json_text import dumps_compact

from .reply import Bill, Block, BlockKind, Reply, pieces_of
from .wire import DECOY_TOKENS, SSE, arguments_value, event

if TYPE_CHECKING:
    from .script import ScriptedError

_LENGTH = "max_tokens"
_SIGNATURE = "cmVwbGF5"
"""Stands for the signature that thinking carries; only its provider can read a real one."""


class AnthropicFace:
    """See `WireFace`."""

    request_id_header = "request-id"
    stream_type = SSE

    def events(self, reply: Reply) -> list[bytes]:
        """Return the events from `message_start` to `message_stop`, a ping after the first block began."""
        events = [{"type": "message_start", "message": _message(reply, [], None, _early(reply.bill))}]
        for index, block in enumerate(reply.blocks):
            events += _block_events(index, block, reply.pieces)
            if not index:
                events.insert(2, {"type": "ping"})
        final = {"usage": _late(reply.bill)} if reply.bill and reply.bill.final else {}
        events.append({"type": "message_delta", "delta": _stop(reply), **final})
        events.append({"type": "message_stop"})
        return [event(each) for each in events]

    def document(self, reply: Reply) -> bytes:
        """Return the message."""
        content = [_content(block) for block in reply.blocks]
        usage = {**_early(reply.bill), **_late(reply.bill)} if reply.bill else {}
        return dumps_compact(_message(reply, content, _stop(reply), usage)).encode()

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return the `error` event, which ends the stream."""
        return [event(_error(error))]

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the error body."""
        return dumps_compact({**_error(error), "request_id": f"req_{reply.key}"}).encode()


def _message(
    reply: Reply, content: list[Any], stop: dict[str, Any] | None, usage: dict[str, Any]
) -> dict[str, Any]:
    message = {
        "id": f"msg_{reply.key}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        **(stop or {"stop_reason": None, "stop_sequence": None}),
    }
    return {**message, "usage": usage} if usage else message


def _early(bill: Bill | None) -> dict[str, Any]:
    if bill is None:
        return {}
    output = min(DECOY_TOKENS, bill.output) if bill.final else bill.output
    return {**_input(bill), "output_tokens": output, "service_tier": "standard"}


def _late(bill: Bill) -> dict[str, Any]:
    details = {"output_tokens_details": {"thinking_tokens": bill.reasoning}} if bill.reasoning else {}
    return {**_input(bill), "output_tokens": bill.output, **details}


def _input(bill: Bill) -> dict[str, Any]:
    """Return the input in three parts that add up, which is how this provider counts (R-U1)."""
    return {
        "input_tokens": bill.input - bill.cache_read - bill.cache_write,
        "cache_creation_input_tokens": bill.cache_write,
        "cache_read_input_tokens": bill.cache_read,
    }


def _stop(reply: Reply) -> dict[str, Any]:
    kinds = [block.kind for block in reply.blocks]
    if BlockKind.REFUSAL in kinds:
        details = {"type": "refusal", "category": None}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    usual = _LENGTH if reply.is_capped else "tool_use" if BlockKind.CALL in kinds else "end_turn"
    return {"stop_reason": reply.stop_reason or usual, "stop_sequence": None}


def _block_events(index: int, block: Block, pieces: int | None) -> list[dict[str, Any]]:
    opened, deltas = _opened(block), [_delta(block, piece) for piece in pieces_of(block.text, pieces)]
    if block.kind is BlockKind.REASONING:
        deltas.append({"type": "signature_delta", "signature": _SIGNATURE})
    return [
        {"type": "content_block_start", "index": index, "content_block": opened},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _opened(block: Block) -> dict[str, Any]:
    match block.kind:
        case BlockKind.REASONING:
            return {"type": "thinking", "thinking": "", "signature": ""}
        case BlockKind.CALL:
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        case _:
            return {"type": "text", "text": ""}


def _delta(block: Block, piece: str) -> dict[str, Any]:
    match block.kind:
        case BlockKind.REASONING:
            return {"type": "thinking_delta", "thinking": piece}
        case BlockKind.CALL:
            return {"type": "input_json_delta", "partial_json": piece}
        case _:
            return {"type": "text_delta", "text": piece}


def _content(block: Block) -> dict[str, Any]:
    whole = _opened(block)
    match block.kind:
        case BlockKind.REASONING:
            return {**whole, "thinking": block.text, "signature": _SIGNATURE}
        case BlockKind.CALL:
            return {**whole, "input": arguments_value(block.text)}
        case _:
            return {**whole, "text": block.text}


def _error(error: ScriptedError) -> dict[str, Any]:
    details = {"details": {"error_code": error.code}} if error.code else {}
    return {"type": "error", "error": {"type": error.type, "message": error.message, **details}}
