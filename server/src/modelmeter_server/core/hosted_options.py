"""Which tools of the provider's own a request may switch on: those that the model's configuration names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from .caller_json import field_path
from .errors import FieldViolation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .models import ModelSpec

DISABLED: Final = (
    "the deployment has not enabled this tool of the provider: its model does not name it in hosted_tools"
)

_OWN: Final = "takes the provider's own tools only: the request's `tools` declare tools"
_DATED: Final = re.compile(r"_(\d{8}|\d{4}_\d{2}_\d{2})$")

# Tools that are switched on as something else; of a server's tools the set comes with the server.
_ALSO: Final = {"mcp_toolset": "mcp"}

# Keys that switch on a tool of the provider, with the tool's name.
_KEYS: Final = {
    "mcpservers": "mcp",
    "websearchoptions": "web_search",
    "searchparameters": "live_search",  # xAI
    "enablesearch": "web_search",  # Qwen
    "datasources": "data_sources",  # Azure
}

_CALLERS: Final = frozenset(("apply_patch", "computer", "computer_use_preview", "local_shell"))
"""Tools of the Responses API that the caller runs, whose calls are no function calls."""

_CALLER_RUNS: Final = "the caller would have to run this, and its calls have no place in an answer"
_APPROVAL: Final = (
    'must be "never": a call that waits for approval would end the answer, and no request can approve it'
)
_PICTURES: Final = "answers hold text and tool calls only: they have no place for its pictures"


def enables(hosted_tools: frozenset[str], tool_type: object) -> bool:
    """Tell whether a deployment enabled a tool of the provider, by its type or by its type without the date.

    `web_search` enables `web_search_20260318` too.
    """
    if not isinstance(tool_type, str):
        return False
    plain = _DATED.sub("", tool_type)
    return not hosted_tools.isdisjoint((tool_type, plain, _ALSO.get(plain, plain)))


def key_violations(key: str, value: object, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Return why a key that switches tools on is refused; `key` is without case, `_` and `-`."""
    tool = _KEYS.get(key)
    if tool is not None and not enables(model.hosted_tools, tool):
        yield FieldViolation(path, f"is reserved: {DISABLED}")
    elif key == "plugins" and "plugins" not in model.hosted_tools:
        yield from _named(value, "id", path, model)
    elif key == "compoundcustom":
        yield from _compound(value, path, model)


def tool_violations(value: object, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Return every mistake in the tools among the provider options, which go after the request's own."""
    if not isinstance(value, list):
        yield FieldViolation(path, "must be an array of the provider's own tools")
        return
    # Inside additionalModelRequestFields the tools are those of the model's own format.
    is_converse = model.provider_kind == "bedrock" and path.count(".") == 1
    judge = _system_tool if is_converse else _JUDGES.get(model.provider_kind, _typed)
    for index, tool in enumerate(value):
        where = f"{path}[{index}]"
        if isinstance(tool, dict) and tool:
            yield from judge(tool, where, model)
        else:
            yield FieldViolation(where, _OWN)


def _typed(tool: Mapping[str, Any], where: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge a tool such as `{"type": "web_search"}`."""
    kind = tool.get("type")
    if not isinstance(kind, str) or kind in ("function", "custom"):
        yield FieldViolation(where, _OWN)
    elif not enables(model.hosted_tools, kind):
        yield FieldViolation(f"{where}.type", DISABLED)


def _of_responses(tool: Mapping[str, Any], where: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge a tool of the Responses API, some of which the provider does not run itself."""
    mistakes = list(_typed(tool, where, model))
    yield from mistakes
    if mistakes:
        return
    kind, environment = tool.get("type"), tool.get("environment")
    if kind in _CALLERS:
        yield FieldViolation(f"{where}.type", _CALLER_RUNS)
    elif kind == "shell" and (
        not isinstance(environment, dict) or environment.get("type") in (None, "local")
    ):
        yield FieldViolation(f"{where}.environment", _CALLER_RUNS)
    elif kind == "tool_search" and tool.get("execution") == "client":
        yield FieldViolation(f"{where}.execution", _CALLER_RUNS)
    elif kind == "mcp" and tool.get("require_approval") != "never":
        yield FieldViolation(f"{where}.require_approval", _APPROVAL)
    elif kind == "image_generation":
        yield FieldViolation(f"{where}.type", _PICTURES)


def _of_google(tool: Mapping[str, Any], where: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge a tool such as `{"googleSearch": {}}`: every member is a tool, by either spelling of its name."""
    enabled = {_normal(name) for name in model.hosted_tools}
    for name in tool:
        place = field_path(where, name)
        if _normal(name) == "functiondeclarations":
            yield FieldViolation(place, _OWN)
        elif _normal(name) not in enabled:
            yield FieldViolation(place, DISABLED)


def _system_tool(tool: Mapping[str, Any], where: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge a tool of Bedrock: `{"systemTool": {"name": "nova_grounding"}}`."""
    told = tool.get("systemTool")
    if [*tool] != ["systemTool"] or not isinstance(told, dict):
        yield FieldViolation(where, f"{_OWN}; the provider's are written as `systemTool`")
    elif not enables(model.hosted_tools, told.get("name")):
        yield FieldViolation(f"{where}.systemTool.name", DISABLED)


_JUDGES: Final = {"gemini": _of_google, "openai_responses": _of_responses}


def _named(value: object, name: str, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge a list of tools that one member names, such as OpenRouter's plugins by their `id`."""
    if not isinstance(value, list):
        yield FieldViolation(path, f"is reserved: {DISABLED}")
        return
    for index, each in enumerate(value):
        if not isinstance(each, dict) or not enables(model.hosted_tools, each.get(name)):
            yield FieldViolation(f"{path}[{index}]", DISABLED)


def _compound(value: object, path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    """Judge Groq's `{"tools": {"enabled_tools": ["web_search"]}}`."""
    tools = value.get("tools") if isinstance(value, dict) else None
    names = tools.get("enabled_tools") if isinstance(tools, dict) else None
    for index, name in enumerate(names if isinstance(names, list) else ()):
        if not enables(model.hosted_tools, name):
            yield FieldViolation(f"{path}.tools.enabled_tools[{index}]", DISABLED)


def _normal(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
