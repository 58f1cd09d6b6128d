"""What may stand in typed messages: who may say what, and what each part must hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .continuations import continuation_violations
from .errors import FieldViolation
from .json_text import NotJson, loads_strict
from .remote_media import is_data_url
from .requests import (
    Continuation,
    MediaKind,
    MediaPart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .models import ModelSpec

_FIELD: Final = "messages.messages"
_MEDIA_TYPE: Final = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE
)
_WEB_URL: Final = re.compile(r"https?://[!-~]+", re.IGNORECASE)


def message_violations(messages: Sequence[Message], model: ModelSpec) -> Iterator[FieldViolation]:
    """Return every mistake in the messages."""
    if not messages:
        yield FieldViolation(_FIELD, "must hold at least one message")
    for index, message in enumerate(messages):
        path = f"{_FIELD}[{index}]"
        if not message.parts:
            yield FieldViolation(f"{path}.parts", "must hold at least one part")
        for number, part in enumerate(message.parts):
            yield from _part(part, message.role, f"{path}.parts[{number}]", model)
        if len(message.parts) > 1 and any(isinstance(part, Continuation) for part in message.parts):
            fix = "a continuation stands for its whole turn: leave it alone in its message"
            yield FieldViolation(f"{path}.parts", fix)


def part_field(part: Part) -> str:
    """Return the name of a part's field in the request."""
    match part:
        case TextPart():
            return "text"
        case MediaPart():
            return part.kind.value
        case ToolCallPart():
            return "tool_call"
        case ToolResultPart():
            return "tool_result"
        case Continuation():
            return "continuation"


def _part(part: Part, role: Role, where: str, model: ModelSpec) -> Iterator[FieldViolation]:
    path = f"{where}.{part_field(part)}"
    if isinstance(part, MediaPart | ToolResultPart) and role is not Role.USER:
        yield FieldViolation(path, "stands in user messages only")
    if isinstance(part, ToolCallPart | Continuation) and role is not Role.ASSISTANT:
        yield FieldViolation(path, "stands in assistant messages only")
    match part:
        case TextPart():
            if not part.text:
                yield FieldViolation(path, "must not be empty: leave the part out")
        case MediaPart():
            yield from _media(part, path, model)
        case ToolCallPart():
            yield from _tool_call(part, path)
        case ToolResultPart():
            if not part.call_id:
                yield FieldViolation(f"{path}.call_id", "must name the call that this answers")
        case Continuation():
            yield from continuation_violations(
                part, path, provider_kind=model.provider_kind, allow_remote_media=model.allow_remote_media
            )


def _media(part: MediaPart, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    if not part.media_type:
        yield FieldViolation(f"{path}.media_type", "must be set, such as `image/png` or `application/pdf`")
    elif not _MEDIA_TYPE.fullmatch(part.media_type):
        yield FieldViolation(
            f"{path}.media_type", "must be an IANA media type, such as `image/png`, without parameters"
        )
    elif part.kind is not MediaKind.DOCUMENT and not part.media_type.lower().startswith(
        f"{part.kind.value}/"
    ):
        yield FieldViolation(f"{path}.media_type", f"must begin with `{part.kind.value}/`")
    if part.url is None:
        if not part.data:
            yield FieldViolation(f"{path}.data", "must not be empty")
    elif part.data:
        yield FieldViolation(path, "takes `data` or `url`, not both")
    elif not is_data_url(part.url):
        yield from _remote(part.url, f"{path}.url", model)


def _remote(url: str, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    if not model.allow_remote_media:
        fix = "the provider would fetch this: send the bytes in `data`, or let the deployment allow remote media"
        yield FieldViolation(path, fix)
    elif not _WEB_URL.fullmatch(url):
        yield FieldViolation(path, "must begin with `https://` or `http://`, or be a `data:` URL")


def _tool_call(part: ToolCallPart, path: str) -> Iterator[FieldViolation]:
    if not part.id:
        yield FieldViolation(f"{path}.id", "must be the id that the provider gave the call")
    if not part.name:
        yield FieldViolation(f"{path}.name", "must be the name that the model called")
    if not part.free_text:
        try:
            # Not the stricter reading of callers' JSON: a model wrote it, and a name told twice is no caller's mistake.
            loads_strict(part.arguments_json or "{}")
        except NotJson as error:
            yield FieldViolation(f"{path}.arguments_json", f"must be JSON, or `free_text` be set: {error}")
