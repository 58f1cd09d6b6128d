"""Chunks of `streamGenerateContent`, written by hand after the recorded ones; every figure can be chosen."""

from __future__ import annotations

from typing import Any

from .wire_bytes import Json, body

USAGE: Json = {"promptTokenCount": 12, "candidatesTokenCount": 20, "totalTokenCount": 32}


def usage(prompt: object = None, candidates: object = None, **told: Any) -> Json:
    """Return a usage object; what is `None` is left out, as Google does."""
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": candidates, **told}
    return {name: count for name, count in counts.items() if count is not None}


def text(text: str, **fields: Any) -> Json:
    return {"text": text, **fields}


def thought(text: str, **fields: Any) -> Json:
    return {"text": text, "thought": True, **fields}


def call(name: str, arguments: object = None, *, signature: str | None = None, **fields: Any) -> Json:
    """Return a part with a whole call."""
    told = {"name": name, **({} if arguments is None else {"args": arguments}), **fields}
    return {"functionCall": told, **({"thoughtSignature": signature} if signature else {})}


def pieces(*told: tuple[str, object], more: bool = True, **fields: Any) -> Json:
    """Return a part with pieces of arguments, each a path and its value; a tuple is a text that goes on."""
    partial = [_piece(path, value) for path, value in told]
    return {"functionCall": {**fields, "partialArgs": partial, **({"willContinue": True} if more else {})}}


def _piece(path: str, value: object) -> Json:
    if isinstance(value, tuple):
        return {"jsonPath": path, "stringValue": value[0], "willContinue": True}
    if value is None:
        return {"jsonPath": path, "nullValue": None}
    kinds = {str: "stringValue", bool: "boolValue"}
    return {"jsonPath": path, kinds.get(type(value), "numberValue"): value}


def chunk(*parts: Json, finish: str | None = None, told: Json | None = None, **candidate: Any) -> Json:
    """Return one chunk; without `told` it has no usage."""
    content: Json = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    finished = {"finishReason": finish} if finish else {}
    return {
        "candidates": [{**content, **finished, "index": 0, **candidate}],
        **({} if told is None else {"usageMetadata": told}),
        "modelVersion": "m-1",
        "responseId": "r-1",
    }


def blocked(reason: str = "SAFETY", told: Json | None = None) -> Json:
    """Return the only chunk of a blocked prompt."""
    head = {"promptFeedback": {"blockReason": reason}, "modelVersion": "m-1", "responseId": "r-1"}
    return head if told is None else {**head, "usageMetadata": told}


def error(code: int, status: str, **fields: Any) -> Json:
    """Return an error, as a chunk or as the document of an HTTP answer."""
    return {"error": {"code": code, "message": "synthetic", "status": status, **fields}}


def sse(*chunks: object) -> bytes:
    """Return an event stream as Google writes it: no names, CRLF."""
    frames = (chunk if isinstance(chunk, bytes) else body(chunk) for chunk in chunks)
    return b"".join(b"data: " + frame + b"\r\n\r\n" for frame in frames)


def array(*chunks: object) -> bytes:
    """Return the growing array that comes when nobody asked for events."""
    frames = (chunk if isinstance(chunk, bytes) else body(chunk) for chunk in chunks)
    return b"[" + b",\r\n".join(frames) + b"\n]\n"


def stream(*parts: Json, finish: str | None = "STOP", told: Json | None = USAGE) -> bytes:
    """Return a whole answer, one chunk for each part, as an event stream."""
    return sse(*(chunk(part) for part in parts[:-1]), chunk(*parts[-1:], finish=finish, told=told))
