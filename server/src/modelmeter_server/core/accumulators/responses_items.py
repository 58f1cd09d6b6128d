"""What an output item of the Responses API says. Items are JSON as it came: any member may be missing or odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import ToolCall
from ..lenient import word
from .accumulator import spelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_TEXT = ("output_text", "text")  # the second is what compatible servers call it


def parts_in(item: Mapping[str, Any]) -> int:
    """Count the parts that reading the item walks over."""
    return sum(len(parts) for name in ("content", "summary") if isinstance(parts := item.get(name), list))


def is_call(item: Mapping[str, Any]) -> bool:
    """Say whether the item calls a tool of the caller's."""
    return item.get("type") in ("function_call", "custom_tool_call")


def arguments_name(item: Mapping[str, Any]) -> str:
    """Return the name of the member that holds a call's arguments."""
    return "input" if item.get("type") == "custom_tool_call" else "arguments"


def is_blank(item: Mapping[str, Any]) -> bool:
    """Say whether a call has no arguments, or a message neither text nor a refusal."""
    if is_call(item):
        return not item.get(arguments_name(item))
    return item.get("type") == "message" and not written(item) and not is_refusal(item)


def tool_call(item: Mapping[str, Any]) -> ToolCall:
    """Read a call; the id that a result must name is `call_id`, not the item's own."""
    free_text = item.get("type") == "custom_tool_call"
    arguments = item.get(arguments_name(item))
    return ToolCall(
        id=word(item.get("call_id")),
        name=word(item.get("name")),
        # Compatible servers send an object instead of text.
        arguments_json=spelled(arguments),
        free_text=free_text,
    )


def with_arguments(call: ToolCall) -> ToolCall:
    """Return the call with `{}` where an ordinary tool was given nothing."""
    if call.arguments_json or call.free_text:
        return call
    return msgspec.structs.replace(call, arguments_json="{}")


def _parts(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):  # some compatible servers write a text, as a prompt may have it
        yield {"type": "output_text", "text": content}
    elif isinstance(content, list):
        yield from (part for part in content if isinstance(part, dict))


def written(item: Mapping[str, Any]) -> str:
    """Return the text parts joined, whatever the item is."""
    return "".join(_string(part.get("text")) for part in _parts(item) if part.get("type") in _TEXT)


def text_of(item: Mapping[str, Any]) -> str:
    """Return what the item adds to the answer's text; a remark on the work adds nothing."""
    if item.get("type") != "message" or item.get("phase") == "commentary":
        return ""
    return written(item)


def is_refusal(item: Mapping[str, Any]) -> bool:
    """Say whether a part of the item is a refusal."""
    return any(part.get("type") == "refusal" for part in _parts(item))


def reasoning_of(item: Mapping[str, Any]) -> str:
    """Return the thoughts of a reasoning item, shown or summed up."""
    if item.get("type") != "reasoning":
        return ""
    summary = item.get("summary")
    parts = [part for part in summary if isinstance(part, dict)] if isinstance(summary, list) else []
    return "".join(_string(part.get("text")) for part in [*_parts(item), *parts])


def _string(value: object) -> str:
    """Return a text as it is: half a character may stand at the end of one part and the rest in the next."""
    return value if isinstance(value, str) else ""
