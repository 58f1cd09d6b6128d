"""What tells one request from another: a digest of the whole, and one of each field to name what differs.

The encoding is specified in docs/digest.md, with test vectors, so that any language can compute it. A field that the
request does not set is left out, and so a field that a later version adds changes no digest of requests without it.
Pure.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import msgspec

from .requests import MediaPart, TextPart, ToolCallPart, ToolResultPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .embeddings import EmbeddingRequest
    from .requests import CompletionRequest, Continuation, Message, Part, Tool, ToolChoice, TurnScope

FIELD_PREFIX = b"modelmeter.field.v1\n"
"""What is hashed before a field, so that no other hash of the same bytes is equal."""

REQUEST_PREFIX = b"modelmeter.request.v1\n"

FIELDS = (
    "operation",
    "model",
    "text",
    "messages",
    "native_json",
    "system",
    "tools",
    "tool_choice",
    "output_schema_json",
    "schema_mode",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop_sequences",
    "reasoning_effort",
    "provider_options_json",
    "continuation",
    "inputs",
    "dimensions",
    "input_type",
    "turn",
)
"""The fields that a digest covers, in the order in which a difference is looked for."""

SHORT = 16
"""Hex digits of a field's digest that are kept: they name a difference, and decide nothing."""

_LENGTH = struct.Struct(">Q")
_INTEGER = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")

Value = str | bytes | bool | int | float | list["Value"] | dict[str, "Value"]
"""What can be encoded. A record drops what is `None` before it gets here."""


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one request, in hex."""

    request: str
    """SHA-256, 64 digits."""
    fields: dict[str, str]
    """The first `SHORT` digits of each field that is set, in the order of `FIELDS`."""


def digest(request: CompletionRequest, identity: str) -> Digest:
    """Digest a completion request as asked; `identity` is what its model's name stands for.

    Covers everything that can change the answer. Time, labels, routing, the call's id and effect, its ceiling, its
    retry policy, marks of what to cache and the end user's id are not of that kind.
    """
    return digest_of(completion_fields(request, identity))


def embedding_digest(request: EmbeddingRequest, identity: str) -> Digest:
    """Digest a batch of texts as asked, like `digest`."""
    return digest_of(embedding_fields(request, identity))


def digest_of(fields: Mapping[str, Value | None]) -> Digest:
    """Digest the fields of any operation, in their order; those that are `None` are not there."""
    whole = hashlib.sha256(REQUEST_PREFIX)
    short: dict[str, str] = {}
    for name, value in fields.items():
        if value is None:
            continue
        label = encode(name)
        of_field = hashlib.sha256(b"".join((FIELD_PREFIX, label, encode(value))))
        whole.update(label)
        whole.update(of_field.digest())
        short[name] = of_field.hexdigest()[:SHORT]
    return Digest(request=whole.hexdigest(), fields=short)


def first_difference(recorded: Mapping[str, str], asked: Mapping[str, str]) -> str:
    """Return the first field that differs between two requests; empty when all that are known agree."""
    known = (*FIELDS, *sorted((recorded.keys() | asked.keys()) - set(FIELDS)))
    return next((name for name in known if recorded.get(name) != asked.get(name)), "")


# The fields


def completion_fields(request: CompletionRequest, identity: str) -> dict[str, Value | None]:
    """Return the fields that count, in the order of `FIELDS`, with `None` for those that are not set."""
    effort = request.reasoning_effort
    return {
        "operation": "COMPLETE",
        "model": identity,
        "text": request.text,
        "messages": _messages(request.messages),
        "native_json": request.native_json,
        "system": request.system or None,
        "tools": [_tool(tool) for tool in request.tools] or None,
        "tool_choice": _tool_choice(request.tool_choice),
        "output_schema_json": request.output_schema_json or None,
        "schema_mode": None if request.schema_mode is None else request.schema_mode.name,
        "max_output_tokens": request.max_output_tokens,
        "temperature": _double(request.temperature),
        "top_p": _double(request.top_p),
        "top_k": request.top_k,
        "seed": request.seed,
        "stop_sequences": list(request.stop_sequences) or None,
        "reasoning_effort": None if effort is None else effort.name,
        "provider_options_json": request.provider_options_json or None,
        "continuation": None if request.continuation is None else _continuation(request.continuation),
        "turn": None if request.turn is None else _turn(request.turn),
    }


def embedding_fields(request: EmbeddingRequest, identity: str) -> dict[str, Value | None]:
    """Return the fields that count of a batch of texts, in the order of `FIELDS`."""
    return {
        "operation": "EMBED",
        "model": identity,
        "provider_options_json": request.provider_options_json or None,
        "inputs": list(request.inputs),
        "dimensions": request.dimensions,
        "input_type": None if request.input_type is None else request.input_type.name,
    }


def _turn(turn: TurnScope) -> Value:
    return _record(previous_response_id=turn.previous_response_id, generate=turn.generate)


def _messages(messages: tuple[Message, ...] | None) -> Value | None:
    if messages is None:
        return None
    return [
        {"role": message.role.name, "parts": [_part(part) for part in message.parts]} for message in messages
    ]


def _part(part: Part) -> Value:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, MediaPart):
        return {"media": _media(part)}
    if isinstance(part, ToolCallPart):
        call = {"id": part.id, "name": part.name, "arguments_json": part.arguments_json}
        return {"tool_call": _record(**call, free_text=part.free_text or None)}
    if isinstance(part, ToolResultPart):
        result = {"call_id": part.call_id, "output": part.output or None, "failed": part.failed or None}
        return {"tool_result": _record(**result)}
    return {"continuation": _continuation(part)}


def _media(part: MediaPart) -> Value:
    return _record(
        kind=part.kind.name,
        media_type=part.media_type or None,
        data=part.data or None,
        url=part.url or None,
        name=part.name or None,
    )


def _tool(tool: Tool) -> Value:
    return _record(
        name=tool.name,
        description=tool.description or None,
        parameters_json=tool.parameters_json or None,
        strict=tool.strict or None,
    )


def _tool_choice(choice: ToolChoice | None) -> Value | None:
    if choice is None:
        return None
    return _record(
        mode=choice.mode.name,
        name=choice.name or None,
        disable_parallel_calls=choice.disable_parallel_calls or None,
    )


def _continuation(continuation: Continuation) -> Value:
    return {"provider": continuation.provider, "state_json": continuation.state_json}


def _record(**values: Value | None) -> Value:
    return {name: value for name, value in values.items() if value is not None}


def _double(value: float | None) -> float | None:
    """Make a number a double, with one zero: `1` and `1.0` ask for the same, and so do the two zeros."""
    return None if value is None else float(value) + 0.0


# The encoding


def encode(value: Value) -> bytes:
    """Return the canonical bytes of a value: a letter for its type, then its length or count, then its content."""
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def _write(value: Value, pieces: list[bytes]) -> None:
    if isinstance(value, str):
        data = value.encode()
        pieces += (b"T", _LENGTH.pack(len(data)), data)
    elif isinstance(value, bool):
        pieces.append(b"Y" if value else b"N")
    elif isinstance(value, int):
        pieces += (b"I", _INTEGER.pack(value))
    elif isinstance(value, float):
        pieces += (b"D", _DOUBLE.pack(value))
    elif isinstance(value, bytes):
        pieces += (b"B", _LENGTH.pack(len(value)), value)
    elif isinstance(value, list):
        _write_all(b"L", len(value), value, pieces)
    else:
        # By name, so that the order in which a program keeps its fields does not matter.
        entries = sorted(value.items(), key=lambda entry: entry[0].encode())
        _write_all(b"R", len(entries), (part for entry in entries for part in entry), pieces)


def _write_all(letter: bytes, count: int, values: Iterable[Value], pieces: list[bytes]) -> None:
    pieces += (letter, _LENGTH.pack(count))
    for each in values:
        _write(each, pieces)
