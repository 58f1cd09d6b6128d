"""Work of the Responses API's own tools: what ran, and what of it is billed beside the usage."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..counters import counter
from ..hosted import hosted_tool, present
from ..lenient import word
from ..text import well_formed
from ..usage import AdditionalUsage, Usage
from ..usage_meter import part_of
from .responses_items import is_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..hosted import HostedTool

_MAX_TOOLS = 1_000
"""Members of `tool_usage` and of `tools` that are read; recorded answers have a few."""

_CALLERS = frozenset(("apply_patch", "computer", "computer_use", "local_shell"))
"""Tools with an item type of their own that the caller runs."""

_NOT_BILLED_APIECE = frozenset(("mcp", "tool_search"))
"""Tools whose calls cost tokens only. What is not listed here is taken to cost something: of an unknown tool a bill
must not say that it is exact."""

_ARGUMENTS = ("action", "queries", "query", "code", "input", "arguments", "container_id", "parameters")
_RESULTS = ("output", "outputs", "results", "result", "output_text")

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
    """Yield the items that are calls of tools which the provider ran, of kinds yet unknown too."""
    for item in items:
        if tool := _provider_ran(item):
            arguments = present(item, _ARGUMENTS)
            yield hosted_tool(
                tool,
                id=item.get("id"),
                status=item.get("status"),
                name=item.get("name"),
                server=item.get("server_label"),
                # An MCP call has its arguments as the text that was generated, as a function call has.
                arguments=arguments["arguments"]
                if arguments and [*arguments] == ["arguments"]
                else arguments,
                result=present(item, _RESULTS),
                error=item.get("error"),
            )


def _provider_ran(item: Mapping[str, Any]) -> str:
    """Return the tool of a call that the provider ran; nothing for any other item.

    `custom_tool_call` ends like the provider's own items and is the caller's; others are the caller's to run although
    the API has a type for them.
    """
    type = word(item.get("type"))
    tool = type.removesuffix("_call")
    if tool == type or is_call(item) or tool in _CALLERS:
        return ""
    if tool == "shell":
        environment = item.get("environment")
        # Without an environment nobody said where it runs; a container of the provider's is always named.
        return tool if isinstance(environment, dict) and environment.get("type") != "local" else ""
    return "" if item.get("execution") == "client" else tool


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
        tool = _provider_ran(item)
        if tool and tool not in _NOT_BILLED_APIECE and not _is_unbilled(item):
            counts[tool] = counts.get(tool, 0) + 1
    return counts


def _is_unbilled(item: Mapping[str, Any]) -> bool:
    action = item.get("action")
    return isinstance(action, dict) and action.get("type") in _UNBILLED_ACTIONS
