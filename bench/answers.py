"""One answer of so many text deltas in each wire format: the same words, in the shapes and spelling of the providers.

Every event stands in an HTTP chunk of its own, as providers send them. What an event repeats (ids, counters,
fingerprints, padding) is as long as in recorded streams, because reading it is part of the cost.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INPUT_TOKENS = 25


def answers(deltas: int) -> dict[str, bytes]:
    """Return whole HTTP answers by provider kind."""
    return {kind: _http(media, events(kind, deltas)) for kind, (media, _) in _FORMATS.items()}


def events(kind: str, deltas: int) -> Iterator[bytes]:
    """Return the events of one answer."""
    return _FORMATS[kind][1](deltas)


def kind_of(target: bytes) -> str:
    """Return the provider kind whose requests go to this path."""
    return next((kind for mark, kind in _MARKS.items() if mark in target), "anthropic")


_MARKS = {
    b"/chat/completions": "chat_completions",
    b"/responses": "openai_responses",
    b":streamGenerateContent": "gemini",
    b"/converse-stream": "bedrock",
}


def _http(media: str, stream: Iterator[bytes]) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in stream) + b"0\r\n\r\n"


def _named(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _compact(event))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _words(deltas: int) -> Iterator[str]:
    return (f"word{n} " for n in range(deltas))


def _anthropic(deltas: int) -> Iterator[bytes]:
    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench-1",
        "content": [],
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
    }
    yield _named({"type": "message_start", "message": message})
    yield _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for word in _words(deltas):
        delta = {"type": "text_delta", "text": word}
        yield _named({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _named({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": stop, "usage": {"output_tokens": deltas}})
    yield _named({"type": "message_stop"})


def _bedrock(deltas: int) -> Iterator[bytes]:
    yield _frame("messageStart", {"role": "assistant", "p": "abcdefgh"})
    for number, word in enumerate(_words(deltas)):
        padding = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01"[: number % 54]
        yield _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}, "p": padding})
    yield _frame("contentBlockStop", {"contentBlockIndex": 0, "p": "abc"})
    yield _frame("messageStop", {"stopReason": "end_turn", "p": "abcdef"})
    usage = {"inputTokens": INPUT_TOKENS, "outputTokens": deltas, "totalTokens": INPUT_TOKENS + deltas}
    yield _frame("metadata", {"usage": usage, "metrics": {"latencyMs": 5}, "p": "abcd"})


def _frame(name: str, payload: dict[str, Any]) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    block = b"".join(
        struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for key, value in headers.items()
    )
    data = _compact(payload)
    prelude = struct.pack(">II", 16 + len(block) + len(data), len(block))
    start = prelude + struct.pack(">I", crc32(prelude)) + block + data
    return start + struct.pack(">I", crc32(start))


def _chat_completions(deltas: int) -> Iterator[bytes]:
    def chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        document = {
            "id": "chatcmpl-BpJBM4XqgLRpLxmTeun39ESCNhQwb",
            "object": "chat.completion.chunk",
            "created": 1751568164,
            "model": "bench-1",
            "service_tier": "default",
            "system_fingerprint": "fp_07871e2ad8",
            "choices": choices,
            "usage": usage,
        }
        return b"data: %b\n\n" % _compact(document)

    def choice(delta: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    yield chunk(choice({"role": "assistant", "content": "", "refusal": None}))
    for word in _words(deltas):
        yield chunk(choice({"content": word}))
    yield chunk(choice({}, "stop"))
    usage = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": deltas,
        "total_tokens": INPUT_TOKENS + deltas,
    }
    yield chunk([], usage)
    yield b"data: [DONE]\n\n"


def _gemini(deltas: int) -> Iterator[bytes]:
    for number, word in enumerate(_words(deltas), 1):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": word}], "role": "model"}}
        if number == deltas:
            candidate["finishReason"] = "STOP"
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": number,
            "totalTokenCount": INPUT_TOKENS + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": INPUT_TOKENS}],
        }
        document = {
            "candidates": [{**candidate, "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "bench-1",
            "responseId": "beHBaJfEMIi-qtsP3769-Q8",
        }
        # Google's own spelling: a space after each colon, CRLF at the end of each line.
        yield b"data: %b\r\n\r\n" % json.dumps(document, separators=(",", ": ")).encode()


def _openai_responses(deltas: int) -> Iterator[bytes]:
    head: dict[str, Any] = {
        "id": "resp_082ac2a584945d9a016a85bf1998b48196",
        "object": "response",
        "status": "in_progress",
        "model": "bench-1",
        "output": [],
        "usage": None,
    }
    id = "msg_082ac2a584945d9a016a85bf1ab6a88196"
    message = {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    place = {"item_id": id, "output_index": 0, "content_index": 0}
    text = "".join(_words(deltas))
    whole = {**message, "status": "completed", "content": [{**part, "text": text}]}
    usage = {
        "input_tokens": INPUT_TOKENS,
        "output_tokens": deltas,
        "total_tokens": INPUT_TOKENS + deltas,
    }
    done = {**head, "status": "completed", "output": [whole], "usage": usage}
    stream: list[dict[str, Any]] = [
        {"type": "response.created", "response": head},
        {"type": "response.in_progress", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **place, "part": part},
        *(
            {
                "type": "response.output_text.delta",
                **place,
                "delta": word,
                "logprobs": [],
                "obfuscation": "Q1w2E3r4T5y6"[: 16 - len(word)],
            }
            for word in _words(deltas)
        ),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": {**part, "text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": done},
    ]
    for number, event in enumerate(stream):
        yield _named({**event, "sequence_number": number})


_FORMATS: dict[str, tuple[str, Callable[[int], Iterator[bytes]]]] = {
    "anthropic": ("text/event-stream", _anthropic),
    "bedrock": ("application/vnd.amazon.eventstream", _bedrock),
    "chat_completions": ("text/event-stream", _chat_completions),
    "gemini": ("text/event-stream", _gemini),
    "openai_responses": ("text/event-stream", _openai_responses),
}

KINDS = tuple(_FORMATS)
"""The wire formats, the yardstick first."""
