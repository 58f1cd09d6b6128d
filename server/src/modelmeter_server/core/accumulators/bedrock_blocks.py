"""The content blocks of an answer of Bedrock's Converse API, and how they go back to it."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from ..json_text import dumps_compact, loads_strict
from ..lenient import word
from ..text_buffer import TextBuffer
from .accumulator import spelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Members of the API's union of blocks.
TEXT = "text"
CALL = "toolUse"
RESULT = "toolResult"
REASONING = "reasoningContent"
CITATIONS = "citationsContent"


class Block:
    """One content block: as it was opened, and what its deltas added."""

    __slots__ = (
        "call_index",
        "citations",
        "is_closed",
        "json",
        "kind",
        "opened",
        "redacted",
        "results",
        "signature",
        "text",
        "whole",
    )

    def __init__(self, kind: str, opened: Mapping[str, Any] | None = None) -> None:
        self.kind = kind
        """Its member in the API's union of blocks."""
        self.opened = opened or {}
        """What stands in that member."""
        self.whole: Mapping[str, Any] | None = None
        """The block as a document had it, to go back untouched."""
        self.text = TextBuffer()
        """The thinking, in a block of reasoning."""
        self.json = TextBuffer()
        self.signature = ""
        self.redacted: list[str] = []
        self.citations: list[Any] = []
        self.results: list[Any] = []
        self.call_index: int | None = None
        """Position among the caller's tool calls."""
        self.is_closed = False

    @property
    def name(self) -> str:
        return word(self.opened.get("name"))

    @property
    def id(self) -> str:
        return word(self.opened.get("toolUseId"))

    @property
    def is_clients(self) -> bool:
        """Say whether it calls a tool; the provider's own tools have a type (`server_tool_use`)."""
        return self.kind == CALL and not self.opened.get("type")

    def arguments(self) -> str:
        """Return the argument text: fragments, else the `input` that the block has (R-T3)."""
        return str(self.json) or spelled(self.opened.get("input") or None)


def turn_block(block: Block) -> str:
    """Return the block as it must go back; nothing for one that has nothing to say."""
    if block.whole is not None:
        return dumps_compact(block.whole)
    if block.kind == CALL:
        # The arguments go back as the very text that was generated, not as a reading of it.
        arguments = block.arguments() or "{}"
        loads_strict(arguments)
        opened = dumps_compact({name: value for name, value in block.opened.items() if name != "input"})
        separator = "," if len(opened) > 2 else ""
        return f'{{"{CALL}":{opened[:-1]}{separator}"input":{arguments}}}}}'
    return ",".join(map(dumps_compact, _rebuilt(block)))


def _rebuilt(block: Block) -> Iterator[dict[str, Any]]:
    text = str(block.text)
    if block.kind == REASONING:
        if text or block.signature:
            signed = {"signature": block.signature} if block.signature else {}
            yield {REASONING: {"reasoningText": {"text": text, **signed}}}
        if block.redacted:
            yield {REASONING: {"redactedContent": _joined_base64(block.redacted)}}
    elif block.kind == RESULT:
        yield {RESULT: {**block.opened, "content": block.results}}
    elif block.citations:
        said = {"content": [{"text": text}]} if text else {}
        yield {CITATIONS: {**said, "citations": block.citations}}
    elif text:
        yield {TEXT: text}


def _joined_base64(pieces: list[str]) -> str:
    """Join bytes that came as one base64 text or several."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join(map(b64decode, pieces))).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
