"""An answer in the chunks of OpenAI's Chat Completions, as recorded streams have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelmeter_server.core.json_text import dumps_compact

from .reply import Bill, Block, BlockKind, Reply, pieces_of
from .wire import SSE

if TYPE_CHECKING:
    from .script import ScriptedError

_DONE = b"data: [DONE]\n\n"

_MEMBERS = {
    BlockKind.REASONING: "reasoning_content",
    BlockKind.TEXT: "content",
    BlockKind.REFUSAL: "refusal",
}


class ChatCompletionsFace:
    """See `WireFace`."""

    request_id_header = "x-request-id"
    stream_type = SSE

    def events(self, reply: Reply) -> list[bytes]:
        """Return the chunks: the role, the deltas of each block, the finish, the usage, and `[DONE]`."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        calls = 0
        for block in reply.blocks:
            if block.kind is BlockKind.CALL:
                deltas += _call_deltas(calls, block, reply.pieces)
                calls += 1
            else:
                deltas += [{_MEMBERS[block.kind]: piece} for piece in pieces_of(block.text, reply.pieces)]
        chunks = [_chunk(reply, [_choice(delta)]) for delta in deltas]
        chunks.append(_chunk(reply, [_choice({}, _reason(reply))]))
        if reply.bill is not None:
            chunks.append(_chunk(reply, [], _usage(reply.bill)))
        return [*map(_event, chunks), _DONE]

    def document(self, reply: Reply) -> bytes:
        """Return the completion."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        calls = []
        for block in reply.blocks:
            if block.kind is BlockKind.CALL:
                calls.append(_call(block, block.text))
            else:
                message[_MEMBERS[block.kind]] = block.text
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(reply)}
        usage = {} if reply.bill is None else {"usage": _usage(reply.bill)}
        head = {**_head(reply, "chat.completion"), "choices": [choice]}
        return dumps_compact({**head, **usage}).encode()

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return a chunk that is an error, as compatible servers and gateways send it; it ends the stream."""
        return [_event({"error": _error(error)})]

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the error body."""
        return dumps_compact({"error": _error(error)}).encode()


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % dumps_compact(chunk).encode()


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    # A clock would make two answers to one question differ.
    return {"id": f"chatcmpl-{reply.key}", "object": kind, "created": 0, "model": reply.model}


def _chunk(
    reply: Reply, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {**_head(reply, "chat.completion.chunk"), "choices": choices, "usage": usage}


def _choice(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _call(block: Block, arguments: str) -> dict[str, Any]:
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": block.name, "arguments": arguments},
    }


def _call_deltas(index: int, block: Block, pieces: int | None) -> list[dict[str, Any]]:
    opened = {"index": index, **_call(block, "")}
    more = [{"index": index, "function": {"arguments": piece}} for piece in pieces_of(block.text, pieces)]
    return [{"tool_calls": [fragment]} for fragment in (opened, *more)]


def _reason(reply: Reply) -> str:
    called = any(block.kind is BlockKind.CALL for block in reply.blocks)
    return reply.stop_reason or ("length" if reply.is_capped else "tool_calls" if called else "stop")


def _usage(bill: Bill) -> dict[str, Any]:
    return {
        "prompt_tokens": bill.input,
        "completion_tokens": bill.output,
        "total_tokens": bill.input + bill.output,
        "prompt_tokens_details": {"cached_tokens": bill.cache_read, "cache_write_tokens": bill.cache_write},
        "completion_tokens_details": {"reasoning_tokens": bill.reasoning},
    }


def _error(error: ScriptedError) -> dict[str, Any]:
    return {"message": error.message, "type": error.type, "param": None, "code": error.code}
