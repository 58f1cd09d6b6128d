"""The prompt as chat messages: one list in which system, user, assistant and tool messages follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.continuations import message_answers, native_answers
from modelmeter_server.core.message_checks import part_field
from modelmeter_server.core.requests import (
    Continuation,
    MediaKind,
    MediaPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from modelmeter_server.drivers.cache_marks import ephemeral, explicit
from modelmeter_server.drivers.json_body import (
    base64_text,
    native_prompt,
    place_of_state,
    refused,
    result_text,
    sole_continuation,
    split_data_url,
    state_turns,
)

if TYPE_CHECKING:
    from modelmeter_server.core.dialects import Dialect
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CacheBreakpoint, CompletionRequest, Message, Part

_PDF: Final = "application/pdf"
_AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


def prompt(request: CompletionRequest, model: ModelSpec, dialect: Dialect) -> tuple[list[Any], int]:
    """Return the messages, and how many of them are the request's own instructions. Raises RequestRefused."""
    system: Any = request.system
    if request.native_json is not None:
        native = native_prompt(request, model)
        groups: list[list[Any]] = [[turn] for turn in native.turns_json]
        answered = native_answers(native.turns)
        if native.system:
            system = native.system_json
    elif request.messages is not None:
        groups = [_turns(message, index, dialect) for index, message in enumerate(request.messages)]
        answered = message_answers(request.messages)
    else:
        groups, answered = [[{"role": "user", "content": request.text or ""}]], []
    if request.continuation is not None:
        values, state = state_turns(request.continuation, "continuation")
        groups.insert(place_of_state(values, answered), list(state))
    if request.system_cache_breakpoint is not None:
        system = [{"type": "text", "text": system, **_mark(request.system_cache_breakpoint, dialect)}]
    leading = [{"role": "system", "content": system}] if system else []
    return [*leading, *(turn for group in groups for turn in group)], len(leading)


def _turns(message: Message, index: int, dialect: Dialect) -> list[Any]:
    where = f"messages.messages[{index}].parts"
    paths = [f"{where}[{number}].{part_field(part)}" for number, part in enumerate(message.parts)]
    placed = list(zip(message.parts, paths, strict=True))
    if any(isinstance(part, Continuation) for part in message.parts):
        continuation = sole_continuation(message.parts, where)
        return list(state_turns(continuation, paths[0])[1])
    return _user(placed, dialect) if message.role is Role.USER else [_assistant(placed, dialect)]


def _user(placed: list[tuple[Part, str]], dialect: Dialect) -> list[Any]:
    """Return a message as its tool results, each a message of its own, and what the user said after them."""
    results: list[Any] = []
    content: list[Any] = []
    for part, path in placed:
        if not isinstance(part, ToolResultPart):
            content.append(_marked(part, path, dialect))
        elif content:
            raise refused(path, "this provider wants tool results right after their calls: put them first")
        else:
            marked = {"type": "text", "text": result_text(part), **_mark(part.cache_breakpoint, dialect)}
            results.append({"role": "tool", "tool_call_id": part.call_id, "content": _plain([marked])})
    return [*results, {"role": "user", "content": _plain(content)}] if content else results


def _assistant(placed: list[tuple[Part, str]], dialect: Dialect) -> dict[str, Any]:
    texts: list[Any] = []
    calls: list[Any] = []
    for part, path in placed:
        if isinstance(part, ToolCallPart):
            calls.append(_call(part, path, dialect))
        elif calls:
            raise refused(path, "this provider keeps a turn's text before its tool calls: put it first")
        else:
            texts.append(_marked(part, path, dialect))
    content = _plain(texts) if texts else None
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _plain(content: list[Any]) -> Any:
    """Return one text as a string: some servers take nothing else. A text with a mark stays a part."""
    return content[0]["text"] if len(content) == 1 and content[0].keys() == {"type", "text"} else content


def _mark(mark: CacheBreakpoint | None, dialect: Dialect) -> dict[str, Any]:
    return ephemeral(mark) if dialect.cache_marks == "cache_control" else explicit(mark)


def _marked(part: Part, path: str, dialect: Dialect) -> dict[str, Any]:
    content = _content(part, path, dialect)
    return content if isinstance(part, Continuation) else content | _mark(part.cache_breakpoint, dialect)


def _call(part: ToolCallPart, path: str, dialect: Dialect) -> dict[str, Any]:
    if not part.free_text:
        function = {"name": part.name, "arguments": part.arguments_json or "{}"}
        return {"id": part.id, "type": "function", "function": function}
    if not dialect.custom_tools:
        msg = f"{path}.free_text"
        raise refused(msg, "this provider's tools take JSON, never free text")
    return {"id": part.id, "type": "custom", "custom": {"name": part.name, "input": part.arguments_json}}


def _content(part: Part, path: str, dialect: Dialect) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if not isinstance(part, MediaPart):
        raise refused(path, "does not stand in a message of this role")
    if part.kind.value not in dialect.media:
        raise refused(path, f"this provider takes no {part.kind.value}")
    if part.kind is MediaKind.AUDIO:
        return _audio(part, path)
    if part.kind is MediaKind.DOCUMENT:
        return _document(part, path)
    return {"type": "image_url", "image_url": {"url": _url(part)}}


def _url(part: MediaPart) -> str:
    return f"data:{part.media_type};base64,{base64_text(part.data)}" if part.url is None else part.url


def _inline(part: MediaPart, path: str) -> tuple[str, str]:
    """Return media type and base64 text of a part. Raises RequestRefused for what is not inline."""
    if part.url is None:
        return part.media_type, base64_text(part.data)
    inline = split_data_url(part.url)
    if inline is None:
        msg = f"{path}.url"
        raise refused(msg, "this provider takes it inline only: send the bytes in `data`")
    return inline


def _audio(part: MediaPart, path: str) -> dict[str, Any]:
    media_type, data = _inline(part, path)
    known = _AUDIO_FORMATS.get(media_type.lower())
    if known is None:
        msg = f"{path}.media_type"
        raise refused(msg, "this provider takes audio as `audio/wav` and `audio/mpeg`")
    return {"type": "input_audio", "input_audio": {"data": data, "format": known}}


def _document(part: MediaPart, path: str) -> dict[str, Any]:
    media_type, data = _inline(part, path)
    if media_type.lower() != _PDF:
        msg = f"{path}.media_type"
        raise refused(msg, f"this provider takes documents as `{_PDF}`")
    name = part.name or "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{_PDF};base64,{data}"}}
