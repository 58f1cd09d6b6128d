"""A use of a provider's own tool, as every wire format tells it: what was asked, what came of it, how much is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .json_text import NotJson, dumps_compact, loads_strict
from .lenient import word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_JSON: Final = 65_536
"""Most characters of the arguments, and of the result, of one use: text and figures fit, pictures do not."""

MAX_TOTAL_JSON: Final = 1_048_576
"""Most characters of them in one answer, so that an answer stays far below what a gRPC message may hold."""

_MAX_ERROR: Final = 1_024


class HostedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A use of one of the provider's own tools; the caller never runs it. Empty is what nobody told."""

    type: str
    """The provider's word for the tool."""
    id: str = ""
    status: str = ""
    """The provider's word for how it ended."""
    name: str = ""
    """What was called within the tool: the tool of an MCP server."""
    server: str = ""
    """The MCP server, by the name that the request gave it."""
    arguments_json: str = ""
    """What the model asked of the tool, as JSON text."""
    result_json: str = ""
    """What the tool gave, as JSON text."""
    error: str = ""
    """What the provider says went wrong."""
    omitted: bool = False
    """The arguments or the result were too long to be kept."""


def hosted_tool(
    type: str,
    *,
    id: object = "",
    status: object = "",
    name: object = "",
    server: object = "",
    arguments: object = None,
    result: object = None,
    error: object = None,
) -> HostedTool:
    """Return one use from what a provider told, whatever its types are.

    `arguments` is a JSON value, or the text of one, which is kept as it was generated; `result` is a JSON value. What
    is longer than `MAX_JSON` is left out whole, and `omitted` says so: half a document is none.
    """
    asked, gave = _asked(arguments), _text(result)
    return HostedTool(
        type=type,
        id=word(id),
        status=word(status),
        name=word(name),
        server=word(server),
        arguments_json=asked or "",
        result_json=gave or "",
        error=_error(error),
        omitted=asked is None or gave is None,
    )


def within_limits(tools: Iterable[HostedTool]) -> tuple[HostedTool, ...]:
    """Return the uses with the JSON of the first ones, `MAX_TOTAL_JSON` in all; every use itself stays."""
    kept: list[HostedTool] = []
    room = MAX_TOTAL_JSON
    for tool in tools:
        size = len(tool.arguments_json) + len(tool.result_json)
        if size > room:
            kept.append(msgspec.structs.replace(tool, arguments_json="", result_json="", omitted=True))
        else:
            room -= size
            kept.append(tool)
    return tuple(kept)


def present(told: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any] | None:
    """Return the members that are told, in the provider's order; `None` if none is."""
    wanted = frozenset(names)
    return {name: value for name, value in told.items() if name in wanted and value is not None} or None


def _asked(arguments: object) -> str | None:
    """Return arguments as JSON text; text that is a JSON object stays as the model wrote it."""
    if isinstance(arguments, str):
        if len(arguments) > MAX_JSON:
            return None
        try:
            if isinstance(loads_strict(arguments), dict | list):
                return arguments
        except NotJson:
            pass
    return _text(arguments)


def _text(value: object) -> str | None:
    """Return a value as JSON text, nothing for one that says nothing, and `None` for one that is too long."""
    if value in (None, "", {}, []):
        return ""
    try:
        text = dumps_compact(value)
    except NotJson:  # nested too deeply to be written
        return None
    return text if len(text) <= MAX_JSON else None


def _error(told: object) -> str:
    """Return what went wrong: the text, or the code, type and message of an object."""
    if isinstance(told, dict):
        words = (word(told.get(name)) for name in ("error_code", "code", "type", "message"))
        return ": ".join(dict.fromkeys(filter(None, words)))[:_MAX_ERROR]
    return word(told)[:_MAX_ERROR]
