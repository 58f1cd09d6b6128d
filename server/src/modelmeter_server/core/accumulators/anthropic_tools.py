"""Blocks of tools that Anthropic ran itself: a use, and a result that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ..hosted import hosted_tool
from ..lenient import word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..hosted import HostedTool

_USE: Final = "server_tool_use"
_MCP_USE: Final = "mcp_tool_use"
_RESULT: Final = "_tool_result"
_MCP: Final = "mcp"

_BILLED_RESULTS: Final = {"web_search_tool_result": "web_search", "web_fetch_tool_result": "web_fetch"}
"""Results of the tools that `server_tool_use` counts, by which they are counted where it does not."""


class Block(Protocol):
    """What is read of a content block."""

    type: str
    opened: dict[str, Any]

    @property
    def name(self) -> str:
        """The tool that is used."""

    @property
    def id(self) -> str:
        """The use that a result names."""

    def arguments(self) -> str:
        """The argument text so far."""


def billed_tool(block: Block) -> str | None:
    """Return the tool of a result that has a fee; a search that failed has none."""
    tool = _BILLED_RESULTS.get(block.type)
    return None if tool is None or _is_error(block.opened.get("content")) else tool


def hosted_requests(
    told: Mapping[str, int], counted: Mapping[str, int], final: frozenset[str]
) -> dict[str, int]:
    """Return the requests without zeros: what was told with the stop, of other tools the larger of both figures.

    `message_start` tells zeros before anything ran, and gateways tell nothing after it.
    """
    largest = {
        tool: told[tool] if tool in final else max(told.get(tool, 0), counted.get(tool, 0))
        for tool in {**told, **counted}
    }
    return {tool: requests for tool, requests in largest.items() if requests}


def hosted_tools(blocks: Iterable[Block]) -> Iterator[HostedTool]:
    """Yield every use, with the result that came of it. The caller's own tools are `tool_use`, which is neither."""
    blocks = list(blocks)
    results = {
        word(block.opened.get("tool_use_id")): block.opened
        for block in blocks
        if block.type.endswith(_RESULT)
    }
    for block in blocks:
        if block.type in (_USE, _MCP_USE):
            result = results.get(block.id, {}) if block.id else {}
            content = result.get("content")
            is_mcp = block.type == _MCP_USE
            yield hosted_tool(
                _MCP if is_mcp else block.name or block.type,
                id=block.id,
                name=block.name if is_mcp else "",
                server=block.opened.get("server_name"),
                arguments=block.arguments(),
                result=content,
                error=_error(result, content),
            )


def _is_error(content: object) -> bool:
    return isinstance(content, dict) and word(content.get("type")).endswith("_error")


def _error(result: Mapping[str, Any], content: object) -> str:
    """Return the code of a failed tool of the provider's, or what a failed MCP tool said."""
    if isinstance(content, dict):
        return word(content.get("error_code"))
    if result.get("is_error") is not True:
        return ""
    texts = (
        [each.get("text") for each in content if isinstance(each, dict)]
        if isinstance(content, list)
        else [content]
    )
    return " ".join(filter(None, map(word, texts)))
