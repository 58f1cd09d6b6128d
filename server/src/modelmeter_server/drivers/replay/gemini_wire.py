"""An answer in the chunks of Gemini's `streamGenerateContent`, as recorded streams have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelmeter_server.core.json_text import dumps_compact

from .reply import Bill, Block, BlockKind, Reply, pieces_of
from .wire import DECOY_TOKENS, SSE, arguments_value

if TYPE_CHECKING:
    from .script import ScriptedError


class GeminiFace:
    """See `WireFace`."""

    request_id_header = ""
    stream_type = SSE

    def events(self, reply: Reply) -> list[bytes]:
        """Return a chunk for each delta and each call, and one that finishes; all tell usage, the last all of it."""
        early: dict[str, Any] = {} if reply.bill is None else {"usageMetadata": _early(reply.bill)}
        chunks = [
            _response(reply, [part], None, early)
            for block in reply.blocks
            for part in _parts(block, _texts(block, reply.pieces))
        ]
        final: dict[str, Any] = (
            {"usageMetadata": _usage(reply.bill)} if reply.bill and reply.bill.final else {}
        )
        # Google finishes with an empty text when the last word had been said before.
        chunks.append(_response(reply, [{"text": ""}], _reason(reply), final))
        return [b"data: %b\r\n\r\n" % dumps_compact(chunk).encode() for chunk in chunks]

    def document(self, reply: Reply) -> bytes:
        """Return the response."""
        parts = [part for block in reply.blocks for part in _parts(block, [block.text])]
        usage: dict[str, Any] = {} if reply.bill is None else {"usageMetadata": _usage(reply.bill)}
        return dumps_compact(_response(reply, parts, _reason(reply), usage)).encode()

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return a chunk that is an error; it ends the stream."""
        return [b"data: %b\r\n\r\n" % self.error_document(error, reply)]

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the error body; a code stands among its details."""
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code}
        details = {"details": [info]} if error.code else {}
        return dumps_compact({"error": {"message": error.message, "status": error.type, **details}}).encode()


def _texts(block: Block, pieces: int | None) -> list[str]:
    return [block.text] if block.kind is BlockKind.CALL else pieces_of(block.text, pieces)


def _parts(block: Block, texts: list[str]) -> list[dict[str, Any]]:
    match block.kind:
        case BlockKind.CALL:
            call = {"name": block.name, "args": arguments_value(block.text), "id": block.id}
            return [{"functionCall": call}]
        case BlockKind.REASONING:
            return [{"text": text, "thought": True} for text in texts]
        case _:
            return [{"text": text} for text in texts]


def _response(
    reply: Reply, parts: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    if reason is not None:
        candidate["finishReason"] = reason
    told = {"modelVersion": reply.model, "responseId": reply.key}
    return {"candidates": [{**candidate, "index": 0}], **usage, **told}


def _reason(reply: Reply) -> str:
    refused = any(block.kind is BlockKind.REFUSAL for block in reply.blocks)
    return reply.stop_reason or ("SAFETY" if refused else "MAX_TOKENS" if reply.is_capped else "STOP")


def _early(bill: Bill) -> dict[str, Any]:
    """Return the figures of a chunk before the last: a running total."""
    output = min(DECOY_TOKENS, bill.output) if bill.final else bill.output
    return {**_input(bill), "candidatesTokenCount": output, "totalTokenCount": bill.input + output}


def _usage(bill: Bill) -> dict[str, Any]:
    """Return all figures; thoughts are counted beside the candidates (R-U5)."""
    output = {"candidatesTokenCount": bill.output - bill.reasoning}
    thoughts = {"thoughtsTokenCount": bill.reasoning} if bill.reasoning else {}
    return {**_input(bill), **output, **thoughts, "totalTokenCount": bill.input + bill.output}


def _input(bill: Bill) -> dict[str, Any]:
    cached = {"cachedContentTokenCount": bill.cache_read} if bill.cache_read else {}
    return {"promptTokenCount": bill.input, **cached}
