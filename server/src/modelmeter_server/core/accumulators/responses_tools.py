"""Work of the Responses API's own tools: what ran, and what of it is billed beside the usage."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..answers import HostedTool
from ..counters import counter
from ..lenient import word
from ..text import well_formed
from ..usage import AdditionalUsage, Usage
from ..usage_meter import part_of
from .responses_items import is_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_TOOLS = 1_000
"""Members of `tool_usage` and of `tools` that are read; recorded answers have a few."""

_NOT_BILLED_APIECE = frozenset(("apply_patch", "computer", "local_shell", "mcp", "tool_search"))
"""Tools whose calls cost tokens only, or that the caller runs. What is not listed here is taken to cost something:
of an unknown tool a bill must not say that it is exact."""

_UNBILLED_ACTIONS = ("open_page", "find", "find_in_page")
"""Steps of a web search that follow the search itself, which alone has a fee."""

_ITEM_NAMES = {"image_gen": "image_generation"}
"""Tools that `tool_usage` calls by another name than the items do."""


class ToolUsage(NamedTuple):
    """What the provider's own tools are billed beside the tokens."""

    requests: dict[str, int]
    """Requests by the tool's name, told or counted; without zeros."""
    beside: tuple[AdditionalUsage, ...]
    is_told: bool
    """Some of it was told by `tool_usage` and is above 0."""


def hosted_tools(items: list[dict[str, Any]]) -> Iterator[HostedTool]:
    """Yield the items that are calls of the provider's own tools."""
    for item in items:
        type = word(item.get("type"))
        if type.endswith("_call") and not is_call(item):
            yield HostedTool(
                type=type.removesuffix("_call"), id=word(item.get("id")), status=word(item.get("status"))
            )


def read_tool_usage(response: Mapping[str, Any], items: list[dict[str, Any]]) -> ToolUsage:
    """Read `{"web_search": {"num_requests": 2}, "image_gen": {"input_tokens": 50, "output_tokens": 4000}}`.

    Tokens told there are in no other usage object. A tool of which it says nothing is counted by its items: compatible
    servers and older answers list them without any `tool_usage`, and their fee is due all the same.
    """
    tool_usage, models = response.get("tool_usage"), _models(response.get("tools"))
    told: dict[str, int] = {}
    beside: list[AdditionalUsage] = []
    for tool, value in islice(tool_usage.items(), _MAX_TOOLS) if isinstance(tool_usage, dict) else ():
        if not isinstance(value, dict):
            continue
        name, requests, usage = well_formed(tool), counter(value.get("num_requests")), _tokens(value)
        if requests is not None:
            told[name] = requests
        elif usage.input_tokens is not None or usage.output_tokens is not None:
            told[_ITEM_NAMES.get(name, name)] = 0
        if usage.is_seen:
            # Never without a model, which would mean the call's: its prices are others, and called exact.
            model = models.get(_ITEM_NAMES.get(name, name)) or name
            beside.append(AdditionalUsage(kind=name, model=model, usage=usage))
    requests_by_tool = {**_counted(items), **told}
    return ToolUsage(
        requests={name: requests for name, requests in requests_by_tool.items() if requests},
        beside=tuple(beside),
        is_told=any(told.values()),
    )


def _tokens(told: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=counter(told.get("input_tokens")),
        output_tokens=counter(told.get("output_tokens")),
        input_image_tokens=part_of(told, "input_tokens_details", "image_tokens"),
        output_image_tokens=part_of(told, "output_tokens_details", "image_tokens"),
    )


def _models(tools: Any) -> dict[str, str]:
    """Return the model that each tool works with, from the response's echo of the request."""
    first = islice(tools, _MAX_TOOLS) if isinstance(tools, list) else ()
    return {word(tool.get("type")): word(tool.get("model")) for tool in first if isinstance(tool, dict)}


def _counted(items: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in items:
        type = word(item.get("type"))
        tool = type.removesuffix("_call")
        if tool == type or is_call(item) or tool in _NOT_BILLED_APIECE or _is_unbilled(item):
            continue
        counts[tool] = counts.get(tool, 0) + 1
    return counts


def _is_unbilled(item: Mapping[str, Any]) -> bool:
    action = item.get("action")
    return isinstance(action, dict) and action.get("type") in _UNBILLED_ACTIONS
