"""Any stream of the Messages API: blocks, figures and stop reasons at random, with what they come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from . import anthropic_events as wire
from .accumulator_laws import Facts, Figures, facts
from .wire_bytes import Json, sse

TEXT = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
COUNTS = st.integers(0, 60)
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

USAGE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((*_INPUT, "output_tokens"), COUNTS | st.none()),
        "output_tokens_details": st.fixed_dictionaries({"thinking_tokens": COUNTS}),
    },
)


@dataclass
class Bill:
    """The figures of a stream by the rules, worked out the long way."""

    input: dict[str, int] = field(default_factory=dict)
    output: int | None = None
    thinking: int | None = None

    def take(self, usage: Json | None) -> Figures:
        """Take one usage object and return what is known after it."""
        told = {name: usage[name] for name in _INPUT if (usage or {}).get(name) is not None} if usage else {}
        if sum(told.values()) > 0 or sum(self.input.values()) == 0:
            self.input |= told
        output = (usage or {}).get("output_tokens")
        if output == 0 and (self.output or 0) > 0:
            return self.figures()
        self.output = self.output if output is None else output
        thinking = (usage or {}).get("output_tokens_details", {}).get("thinking_tokens")
        self.thinking = self.thinking if thinking is None else thinking
        return self.figures()

    def figures(self) -> Figures:
        """Return what is known."""
        whole = sum(self.input.values()) if self.input else None
        read, write = self.input.get(_INPUT[2]), self.input.get(_INPUT[1])
        return whole, self.output, read, write, self.thinking


def _block(index: int, kind: str, pieces: list[str]) -> list[Json]:
    if kind == "text":
        return wire.text_block(index, *pieces)
    if kind == "thinking":
        return wire.thinking_block(index, *pieces)
    return wire.tool_block(index, f"tool_{index}", *(["[", '"', *("x" for _ in pieces), '"]']))


BLOCKS = st.lists(
    st.tuples(st.sampled_from(["text", "thinking", "tool"]), st.lists(TEXT, max_size=3)), max_size=3
)
REASONS = st.sampled_from(
    [None, "end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "pause_turn", "new"]
)


@st.composite
def events(draw: st.DrawFn) -> list[Json]:
    """Draw the events of a whole message."""
    blocks = [
        event for index, (kind, pieces) in enumerate(draw(BLOCKS)) for event in _block(index, kind, pieces)
    ]
    early = [wire.ended(None, usage) for usage in draw(st.lists(USAGE, max_size=2))]
    last: list[Any] = [wire.ended(draw(REASONS), draw(USAGE | st.none()))]
    return [wire.start(draw(USAGE | st.none())), *blocks, *early, *last, wire.STOP]


def told(events: list[Json]) -> Facts:
    """Return the stream of the events with its timeline."""
    bill = Bill()
    timeline = []
    for index, event in enumerate(events):
        usage = event["message"]["usage"] if event["type"] == "message_start" else event.get("usage")
        timeline.append((index, bill.take(usage)))
    return facts(sse(*events), timeline)
