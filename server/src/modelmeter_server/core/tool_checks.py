"""What may stand in the tools of a request and in its tool choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .caller_json import read_caller_json, remembering
from .errors import FieldViolation
from .json_text import NotJson
from .requests import FORCED_TOOL, Tool, ToolChoice, ToolMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_violations(tools: Sequence[Tool]) -> Iterator[FieldViolation]:
    """Return every mistake in the tools."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if not _NAME.fullmatch(tool.name):
            yield FieldViolation(f"{path}.name", "must be 1 to 64 characters of `A-Z a-z 0-9 _ -`")
        elif tool.name == FORCED_TOOL:
            yield FieldViolation(f"{path}.name", f"`{FORCED_TOOL}` is the service's own: choose another name")
        elif tool.name in seen:
            yield FieldViolation(f"{path}.name", "stands twice: give each tool a name of its own")
        seen.add(tool.name)
        complaint = _parameters_complaint(tool.parameters_json)
        if complaint:
            yield FieldViolation(f"{path}.parameters_json", complaint)


def choice_violations(choice: ToolChoice, tools: Sequence[Tool]) -> Iterator[FieldViolation]:
    """Return every mistake in the tool choice."""
    if not tools:
        yield FieldViolation("tool_choice", "needs tools to choose from: set `tools` or leave it out")
        return
    if choice.mode is ToolMode.NAMED:
        if not choice.name:
            yield FieldViolation("tool_choice.name", "must name the tool that has to be called")
        elif choice.name not in {tool.name for tool in tools}:
            yield FieldViolation("tool_choice.name", "must be the name of one of the request's tools")
    elif choice.name:
        yield FieldViolation("tool_choice.name", "goes with the mode NAMED only")
    if choice.mode is ToolMode.NONE and choice.disable_parallel_calls:
        fix = "means nothing when no tool may be called: leave it out"
        yield FieldViolation("tool_choice.disable_parallel_calls", fix)


@remembering
def _parameters_complaint(text: str) -> str | None:
    if not text:
        return None
    try:
        schema = read_caller_json(text).value
    except NotJson as error:
        return f"must be JSON: {error}"
    if not isinstance(schema, dict):
        return "must be a JSON Schema as an object"
    if schema.get("type") != "object":
        return 'must be the schema of an object: add "type": "object"'
    return None
