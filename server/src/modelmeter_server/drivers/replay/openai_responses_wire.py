"""An answer in the events of OpenAI's Responses API, as recorded streams have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelmeter_server.core.json_text import dumps_compact

from .reply import Bill, Block, BlockKind, Reply, pieces_of
from .wire import SSE, event

if TYPE_CHECKING:
    from .script import ScriptedError

_LENGTH = "incomplete:max_output_tokens"

_PREFIXES = {
    BlockKind.REASONING: "rs",
    BlockKind.TEXT: "msg",
    BlockKind.REFUSAL: "msg",
    BlockKind.CALL: "fc",
}


class OpenAIResponsesFace:
    """See `WireFace`."""

    request_id_header = "x-request-id"
    stream_type = SSE

    def events(self, reply: Reply) -> list[bytes]:
        """Return the events from `response.created` to the terminal one."""
        head = _response(reply, "in_progress")
        events = [{"type": f"response.{name}", "response": head} for name in ("created", "in_progress")]
        for index, block in enumerate(reply.blocks):
            events += _item_events(index, block, reply)
        response = _whole(reply)
        name = response["status"] if response["status"] in ("incomplete", "failed") else "completed"
        events.append({"type": f"response.{name}", "response": response})
        return _numbered(events)

    def document(self, reply: Reply) -> bytes:
        """Return the response object."""
        return dumps_compact(_whole(reply)).encode()

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return the `error` event and the failed response that follows it."""
        failed = {
            **_response(reply, "failed"),
            "error": {"code": error.code or error.type, "message": error.message},
        }
        return _numbered(
            [{"type": "error", "error": _error(error)}, {"type": "response.failed", "response": failed}],
            position,
        )

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the error body."""
        return dumps_compact({"error": _error(error)}).encode()


def _numbered(events: list[dict[str, Any]], first: int = 0) -> list[bytes]:
    return [event({**each, "sequence_number": number}) for number, each in enumerate(events, first)]


def _response(reply: Reply, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.key}",
        "object": "response",
        # A clock would make two answers to one question differ.
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": reply.model,
        "output": [],
        "service_tier": "default",
        "usage": None,
    }


def _whole(reply: Reply) -> dict[str, Any]:
    word = reply.stop_reason or (_LENGTH if reply.is_capped else "completed")
    status, _, reason = word.partition(":")
    response = _response(reply, status)
    if status == "failed":
        response["error"] = {
            "code": reason or "server_error",
            "message": "The model failed to generate a response.",
        }
    elif reason:
        response["incomplete_details"] = {"reason": reason}
    response["output"] = [
        _item(index, block, reply, is_cut=status == "incomplete" and index == len(reply.blocks) - 1)
        for index, block in enumerate(reply.blocks)
    ]
    response["usage"] = _usage(reply.bill) if reply.bill else None
    return response


def _usage(bill: Bill) -> dict[str, Any]:
    return {
        "input_tokens": bill.input,
        "input_tokens_details": {"cached_tokens": bill.cache_read, "cache_write_tokens": bill.cache_write},
        "output_tokens": bill.output,
        "output_tokens_details": {"reasoning_tokens": bill.reasoning},
        "total_tokens": bill.input + bill.output,
    }


def _item(index: int, block: Block, reply: Reply, *, is_cut: bool = False) -> dict[str, Any]:
    item_id = f"{_PREFIXES[block.kind]}_{reply.key}_{index}"
    status = "incomplete" if is_cut else "completed"
    match block.kind:
        case BlockKind.REASONING:
            return {"id": item_id, "type": "reasoning", "summary": [_part(block, block.text)]}
        case BlockKind.CALL:
            call = {"status": status, "call_id": block.id, "name": block.name, "arguments": block.text}
            return {"id": item_id, "type": "function_call", **call}
        case _:
            content = [_part(block, block.text)]
            return {
                "id": item_id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }


def _part(block: Block, text: str) -> dict[str, Any]:
    match block.kind:
        case BlockKind.REASONING:
            return {"type": "summary_text", "text": text}
        case BlockKind.REFUSAL:
            return {"type": "refusal", "refusal": text}
        case _:
            return {"type": "output_text", "text": text, "annotations": []}


def _item_events(index: int, block: Block, reply: Reply) -> list[dict[str, Any]]:
    whole = _item(index, block, reply)
    opened = {**whole, **({} if block.kind is BlockKind.REASONING else {"status": "in_progress"})}
    opened.update({name: value for name, value in _EMPTY.items() if name in whole})
    here = {"item_id": whole["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        *_text_events(block, here, reply.pieces),
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


_EMPTY: dict[str, Any] = {"summary": [], "content": [], "arguments": ""}


def _text_events(block: Block, here: dict[str, Any], pieces: int | None) -> list[dict[str, Any]]:
    texts = pieces_of(block.text, pieces)
    match block.kind:
        case BlockKind.CALL:
            return _streamed("response.function_call_arguments", "arguments", texts, here)
        case BlockKind.REASONING:
            part, stem, whole = "response.reasoning_summary_part", "response.reasoning_summary_text", "text"
            here = {**here, "summary_index": 0}
        case BlockKind.REFUSAL:
            part, stem, whole = "response.content_part", "response.refusal", "refusal"
            here = {**here, "content_index": 0}
        case _:
            part, stem, whole = "response.content_part", "response.output_text", "text"
            here = {**here, "content_index": 0}
    return [
        {"type": f"{part}.added", **here, "part": _part(block, "")},
        *_streamed(stem, whole, texts, here),
        {"type": f"{part}.done", **here, "part": _part(block, block.text)},
    ]


def _streamed(stem: str, whole: str, texts: list[str], here: dict[str, Any]) -> list[dict[str, Any]]:
    deltas = [{"type": f"{stem}.delta", **here, "delta": text} for text in texts]
    return [*deltas, {"type": f"{stem}.done", **here, whole: "".join(texts)}]


def _error(error: ScriptedError) -> dict[str, Any]:
    return {"type": error.type, "code": error.code, "message": error.message, "param": None}
