"""Any stream of the Responses API: items, figures and endings at random, with what they come to."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from . import responses_events as wire
from .accumulator_laws import Facts, Figures, facts
from .wire_bytes import Json, sse

TEXT = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
COUNTS = st.integers(0, 60) | st.none()
_BOTH = ("input_tokens", "output_tokens")

USAGE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(_BOTH, COUNTS),
        "input_tokens_details": st.fixed_dictionaries({"cached_tokens": COUNTS}),
        "output_tokens_details": st.fixed_dictionaries({"reasoning_tokens": COUNTS}),
    },
)
FULL_USAGE = st.fixed_dictionaries(dict.fromkeys(_BOTH, st.integers(0, 60)))
ITEMS = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "call"]), st.lists(TEXT, max_size=3)), max_size=3
)
ENDINGS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"status": "completed"},
        {"status": "failed", "error": {"code": "server_error", "message": "synthetic"}},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    ]
)


def _item(index: int, kind: str, pieces: list[str]) -> tuple[Json, list[Json]]:
    """Return an item and the events that stream it."""
    if kind == "text":
        return wire.message("".join(pieces), index=index), wire.text_events(index, *pieces)
    if kind == "reasoning":
        item = wire.reasoning("".join(pieces))
        thoughts = [wire.summary(index, piece) for piece in pieces]
        return item, [wire.added(index, {"type": "reasoning"}), *thoughts, wire.item_done(index, item)]
    fragments = ["[", *("1," for _ in pieces), "1]"]
    item = wire.call(f"tool_{index}", "".join(fragments), f"call_{index}")
    return item, wire.call_events(index, item, *fragments)


@st.composite
def events(draw: st.DrawFn) -> list[Json]:
    """Draw the events of a whole response."""
    items = [_item(index, kind, pieces) for index, (kind, pieces) in enumerate(draw(ITEMS))]
    streamed = [event for _, each in items for event in each]
    output = [item for item, _ in items] if draw(st.booleans()) else []
    ending: dict[str, Any] = draw(ENDINGS)
    return [
        wire.created(),
        *streamed,
        wire.ended(*output, usage=draw(USAGE | FULL_USAGE | st.none()), **ending),
    ]


def _figures(usage: Json | None) -> Figures | None:
    if usage is None or any(usage.get(name) is None for name in _BOTH):
        return None
    cached = usage.get("input_tokens_details", {}).get("cached_tokens")
    reasoning = usage.get("output_tokens_details", {}).get("reasoning_tokens")
    return usage["input_tokens"], usage["output_tokens"], cached, None, reasoning


def told(events: list[Json]) -> Facts:
    """Return the stream of the events with its timeline."""
    timeline = []
    for index, event in enumerate(events):
        row = _figures(event.get("response", {}).get("usage"))
        if row is not None:
            timeline.append((index, row))
    return facts(sse(*events), timeline)
