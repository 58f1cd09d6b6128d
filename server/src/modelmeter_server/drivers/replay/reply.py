"""What the model says in one play: blocks of content, a stop word and a bill, before any wire format."""

from __future__ import annotations

import re
from enum import Enum, unique
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.accumulators.accumulator import BYTES_PER_TOKEN
from modelmeter_server.core.json_text import dumps_compact
from modelmeter_server.core.requests import FORCED_TOOL
from modelmeter_server.core.text import cut_utf8

from .sample import sample
from .script import Figures, Play, ScriptedCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .ask import Ask

# A word with the white space after it, or as many characters as a long run without any is cut into.
_WORD = re.compile(r"\S{0,23}\s|\S{1,24}")


@unique
class BlockKind(Enum):
    """What a block of content is."""

    REASONING = "reasoning"
    TEXT = "text"
    REFUSAL = "refusal"
    CALL = "call"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block of content."""

    kind: BlockKind
    text: str
    """For a call its arguments."""
    id: str = ""
    name: str = ""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Usage as the play tells it, every figure known."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    final: bool


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    key: str
    """Makes the ids of this answer; the same for the same request and play."""
    model: str
    blocks: tuple[Block, ...]
    stop_reason: str | None
    """The scripted word; `None`: what the wire says for these blocks."""
    is_capped: bool
    """The request's output limit cut the blocks."""
    bill: Bill | None
    pieces: int | None
    """Pieces that each text comes in."""


def compose(play: Play, ask: Ask, key: str) -> Reply:
    """Return what a model would say that follows this play; the same for the same arguments."""
    blocks = _blocks(play, ask, key)
    capped = blocks
    if play.stop_reason is None and ask.max_tokens is not None:
        capped = _capped(blocks, ask.max_tokens * BYTES_PER_TOKEN)
    return Reply(
        key=key,
        model=ask.model,
        blocks=tuple(capped),
        stop_reason=play.stop_reason,
        is_capped=capped != blocks,
        bill=None if play.usage is None else _bill(play.usage, ask, capped),
        pieces=play.pieces,
    )


def reply_key(script: str, body: bytes) -> str:
    """Return a short word that stands for this request to this script."""
    return blake2b(body, digest_size=8, key=script.encode()[:64]).hexdigest()


def pieces_of(text: str, count: int | None) -> list[str]:
    """Cut a text into so many pieces, or into words that keep the white space after them."""
    if count is None:
        return _WORD.findall(text)
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _blocks(play: Play, ask: Ask, key: str) -> list[Block]:
    reasoning = [Block(kind=BlockKind.REASONING, text=play.reasoning)] if play.reasoning else []
    return reasoning + _answer(play, ask, key)


def _answer(play: Play, ask: Ask, key: str) -> list[Block]:
    """Choose what answers: what the script says, else what the request demands, else an echo."""
    if play.refusal is not None:
        return [Block(kind=BlockKind.REFUSAL, text=play.refusal)]
    said = _text(play.text) if play.text else []
    calls = _calls(play.tool_calls, ask, key)
    if calls or play.text is not None:
        return said + calls
    if ask.is_forced:
        return [Block(kind=BlockKind.CALL, text=_structured(play, ask), id=f"call_{key}_0", name=FORCED_TOOL)]
    if ask.demanded is not None:
        demanded = _calls((ScriptedCall(),), ask, key)
        if demanded:
            return demanded
    if ask.schema is not None:
        return _text(_structured(play, ask))
    return _text(_echo(ask))


def _text(text: str) -> list[Block]:
    return [Block(kind=BlockKind.TEXT, text=text)]


def _echo(ask: Ask) -> str:
    said = f'You said "{ask.excerpt}".' if ask.excerpt else "You said nothing in words."
    return f"{said} This is the replay provider: no model was asked."


def _structured(play: Play, ask: Ask) -> str:
    return _sample_text(ask.schema) if play.structured is None else play.structured


def _calls(scripted: tuple[ScriptedCall, ...], ask: Ask, key: str) -> list[Block]:
    calls = []
    for number, call in enumerate(scripted):
        tool = ask.tool(call.name)
        name = call.name or (tool.name if tool else None)
        if name is None:
            continue
        arguments = call.arguments
        if arguments is None:
            arguments = _sample_text(tool.parameters) if tool else "{}"
        calls.append(
            Block(kind=BlockKind.CALL, text=arguments, id=call.id or f"call_{key}_{number}", name=name)
        )
    return calls


def _sample_text(schema: Any) -> str:
    # A tool without parameters takes an object without properties.
    return dumps_compact(sample(schema if isinstance(schema, dict) and schema else {"type": "object"}))


def _capped(blocks: list[Block], room: int) -> list[Block]:
    """Cut the blocks to so many bytes, as a provider does at its output limit."""
    capped = []
    for block in blocks:
        text = cut_utf8(block.text, room)
        capped.append(block if text == block.text else msgspec.structs.replace(block, text=text))
        room -= len(text.encode())
        if text != block.text:
            break
    return capped


def _bill(told: Figures, ask: Ask, blocks: list[Block]) -> Bill:
    """Work out what the script leaves open: a token for every few bytes, and never nothing."""
    thought = _tokens(block for block in blocks if block.kind is BlockKind.REASONING)
    reasoning = thought if told.reasoning is None else told.reasoning
    output = max(1, reasoning, _tokens(blocks)) if told.output is None else told.output
    return Bill(
        input=input_tokens(told, ask),
        output=output,
        cache_read=told.cache_read,
        cache_write=told.cache_write,
        reasoning=min(reasoning, output),
        final=told.final,
    )


def input_tokens(told: Figures, ask: Ask) -> int:
    """Return the input that a play tells: the script's own figure, or a token for every few bytes, never nothing."""
    cached = told.cache_read + told.cache_write
    return max(1, cached, ask.size // BYTES_PER_TOKEN) if told.input is None else told.input


def _tokens(blocks: Iterable[Block]) -> int:
    return -(-sum(len(block.text.encode()) for block in blocks) // BYTES_PER_TOKEN)
