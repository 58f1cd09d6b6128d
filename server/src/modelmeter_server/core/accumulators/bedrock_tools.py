"""Blocks of tools that Bedrock ran itself: a `toolUse` with a type, and a `toolResult` in the model's own turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hosted import hosted_tool
from ..lenient import word
from .bedrock_blocks import CALL, RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..hosted import HostedTool
    from .bedrock_blocks import Block

_FAILED = "error"


def is_hosted(block: Block) -> bool:
    """Say whether the block is a use of a tool that the provider runs."""
    return block.kind == CALL and not block.is_clients


def hosted_tools(blocks: Iterable[Block]) -> Iterator[HostedTool]:
    """Yield every use with what its result says; results stream in pieces."""
    blocks = list(blocks)
    results = {block.id: block for block in blocks if block.kind == RESULT}
    for block in filter(is_hosted, blocks):
        result = results.get(block.id) if block.id else None
        gave = [] if result is None else result.results or result.opened.get("content")
        status = "" if result is None else word(result.opened.get("status"))
        failed = status == _FAILED
        yield hosted_tool(
            block.name or CALL,
            id=block.id,
            status=status,
            arguments=block.arguments(),
            result=gave,
            error=_texts(gave) if failed else "",
        )


def _texts(content: object) -> str:
    parts = content if isinstance(content, list) else []
    return " ".join(filter(None, (word(each.get("text")) for each in parts if isinstance(each, dict))))
