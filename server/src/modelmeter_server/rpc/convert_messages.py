"""A prompt's typed messages in the core's terms. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.request_limits import MAX_MESSAGES, MAX_PARTS
from modelmeter_server.core.requests import (
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

from .convert_breakpoint import breakpoint_of
from .words import ROLE_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from modelmeter.v1 import message_pb2

    from .convert_request import Violations

# Holds the place of a part that was noted as wrong, so that the parts after it keep their index.
_STAND_IN = TextPart("-")
_CONTENTS = "text, image, audio, document, tool_call, tool_result, continuation"


def messages_from(messages: Iterable[message_pb2.Message], found: Violations) -> tuple[Message, ...]:
    """Return the turns in the core's terms; parts that say nothing are noted in `found`."""
    turns: list[Message] = []
    room = MAX_PARTS + 1
    for index, message in enumerate(islice(messages, MAX_MESSAGES + 1)):
        turns.append(_message(message, f"messages.messages[{index}]", found, room))
        room -= len(turns[-1].parts)
        if not room:
            break
    return tuple(turns)


def _message(message: message_pb2.Message, path: str, found: Violations, room: int) -> Message:
    role = found.word(f"{path}.role", message.role, ROLE_WORDS)
    if not message.role:
        found.add(f"{path}.role", "must be ROLE_USER or ROLE_ASSISTANT")
    parts = tuple(
        _part(part, f"{path}.parts[{index}]", found) or _STAND_IN
        for index, part in enumerate(islice(message.parts, room))
    )
    return Message(role or _likely_role(parts), parts)


def _likely_role(parts: tuple[Part, ...]) -> Role:
    """Guess who speaks, lest a wrong role be blamed for parts that it does not fit."""
    said_by_model = any(isinstance(part, (ToolCallPart, Continuation)) for part in parts)
    return Role.ASSISTANT if said_by_model else Role.USER


def _part(part: message_pb2.Part, path: str, found: Violations) -> Part | None:
    content = part.WhichOneof("content")
    if content is None:
        found.add(path, f"must have one of {_CONTENTS}")
        return None
    told: Part | None
    if content in _MEDIA:
        told = _media(_MEDIA[content], getattr(part, content), f"{path}.{content}", found)
    else:
        told = _PARTS[content](part)
    mark = breakpoint_of(part, "cache_breakpoint", found, path)
    if told is None or mark is None:
        return told
    if isinstance(told, Continuation):
        found.add(f"{path}.cache_breakpoint", "cannot stand in a continuation, which goes back untouched")
        return told
    return msgspec.structs.replace(told, cache_breakpoint=mark)


def _media(kind: MediaKind, media: message_pb2.Media, path: str, found: Violations) -> MediaPart | None:
    source = media.WhichOneof("source")
    if source is None:
        found.add(path, "must have `data` or `url`")
        return None
    return MediaPart(
        kind=kind,
        media_type=media.media_type,
        data=media.data if source == "data" else b"",
        url=media.url if source == "url" else None,
        name=media.name,
    )


def _tool_call(part: message_pb2.Part) -> Part:
    call = part.tool_call
    arguments = call.arguments_json or ("" if call.free_text else "{}")
    return ToolCallPart(id=call.id, name=call.name, arguments_json=arguments, free_text=call.free_text)


def _tool_result(part: message_pb2.Part) -> Part:
    result = part.tool_result
    return ToolResultPart(call_id=result.call_id, output=result.output, failed=result.failed)


def continuation_from(message: message_pb2.Continuation) -> Continuation:
    """Return a provider's own turns."""
    return Continuation(message.provider, message.state_json, message.target)


_MEDIA = {kind.value: kind for kind in MediaKind}
_PARTS: dict[str, Callable[[message_pb2.Part], Part]] = {
    "text": lambda part: TextPart(part.text),
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "continuation": lambda part: continuation_from(part.continuation),
}
