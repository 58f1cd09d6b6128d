"""Any stream of Chat Completions: pieces, figures and endings at random, with what they come to."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from . import chat_events as wire
from .accumulator_laws import Facts, Figures, facts
from .wire_bytes import Json, sse

TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=6)  # lone surrogates too
COUNTS = st.integers(1, 60)
USAGE = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": COUNTS, "completion_tokens": COUNTS},
    optional={
        "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": COUNTS}),
        "completion_tokens_details": st.fixed_dictionaries({"reasoning_tokens": COUNTS}),
    },
)
REASONS = st.sampled_from(["stop", "length", "tool_calls", "content_filter", "abort", "of_tomorrow"])
_OUTPUTS = st.one_of(
    TEXT.map(wire.text),
    TEXT.map(lambda text: wire.said(reasoning_content=text)),
    TEXT.map(lambda text: wire.said(role="assistant", content=text, refusal=None)),
    st.just(wire.role()),
    st.just(wire.chunk(prompt_filter_results=[])),
)


@st.composite
def chunks(draw: st.DrawFn) -> list[Json]:
    """Draw the chunks of a whole answer, without `[DONE]`."""
    output: list[Json] = draw(st.lists(_OUTPUTS, max_size=4))
    for index in range(draw(st.integers(0, 2))):
        pieces = ["[", *draw(st.lists(st.just("1,"), max_size=2)), "1]"]
        output += wire.call(index, *pieces, name=f"tool_{index}")
    for each in output:
        each["usage"] = draw(USAGE)
    return [*output, wire.finish(draw(REASONS), usage=draw(USAGE)), wire.usage(draw(USAGE))]


def told(events: list[Json]) -> Facts:
    """Return the stream of the chunks, ended by `[DONE]`, with its timeline."""
    timeline: list[tuple[int, Figures]] = []
    cached = reasoning = None
    for index, event in enumerate(events):
        usage: dict[str, Any] | None = event.get("usage")
        if usage:
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", cached)
            reasoning = usage.get("completion_tokens_details", {}).get("reasoning_tokens", reasoning)
            row = (usage["prompt_tokens"], usage["completion_tokens"], cached, None, reasoning)
            timeline.append((index, row))
    return facts(sse(*events, wire.DONE), timeline)
