"""Any stream of ConverseStream: blocks, figures and stop reasons at random, with what they come to."""

from __future__ import annotations

from hypothesis import strategies as st

from . import bedrock_events as wire
from .accumulator_laws import Facts, Figures, frame_facts
from .wire_bytes import Json

TEXT = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
COUNTS = st.integers(0, 60) | st.none()
_INPUT = ("inputTokens", "cacheWriteInputTokens", "cacheReadInputTokens")

USAGE = st.fixed_dictionaries({}, optional=dict.fromkeys((*_INPUT, "outputTokens"), COUNTS))
BLOCKS = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "tool"]), st.lists(TEXT, max_size=3)), max_size=3
)
REASONS = st.sampled_from(
    [
        "end_turn",
        "max_tokens",
        "stop_sequence",
        "tool_use",
        "guardrail_intervened",
        "malformed_tool_use",
        "new",
    ]
)


def _block(index: int, kind: str, pieces: list[str]) -> list[Json]:
    if kind == "text":
        return wire.text_block(index, *pieces)
    if kind == "reasoning":
        return wire.reasoning_block(index, *pieces)
    return wire.tool_block(index, f"tool_{index}", *(["[", '"', *("x" for _ in pieces), '"]']))


@st.composite
def events(draw: st.DrawFn) -> list[Json]:
    """Draw the events of a whole message."""
    blocks = [_block(index, kind, pieces) for index, (kind, pieces) in enumerate(draw(BLOCKS))]
    return wire.message(*blocks, reason=draw(REASONS), usage=draw(USAGE | st.none()))


def figures_of(usage: Json | None) -> Figures | None:
    """Return what a usage object tells, worked out the long way; `None` if it tells nothing."""
    told = {name: value for name, value in (usage or {}).items() if value is not None}
    parts = [told[name] for name in _INPUT if name in told]
    if not parts and "outputTokens" not in told:
        return None
    whole = sum(parts) if parts else None
    return whole, told.get("outputTokens"), told.get(_INPUT[2]), told.get(_INPUT[1]), None


def told(events: list[Json]) -> Facts:
    """Return the stream of the events with its timeline."""
    usages = [event["metadata"].get("usage") if "metadata" in event else None for event in events]
    rows = [(index, figures_of(usage)) for index, usage in enumerate(usages)]
    return frame_facts(wire.frames(*events), [(index, row) for index, row in rows if row is not None])
