"""Any stream of Gemini: parts, figures and finish reasons at random, with what they come to."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from . import gemini_chunks as wire
from .accumulator_laws import Facts, Figures, facts
from .wire_bytes import Json

TEXT = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
COUNTS = st.integers(0, 60)
_INPUT = ("promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount")
_OUTPUT = ("candidatesTokenCount", "thoughtsTokenCount")

USAGE = st.fixed_dictionaries({}, optional=dict.fromkeys((*_INPUT, *_OUTPUT), COUNTS | st.none()))
"""Without a total, which only says whether thoughts lie inside the candidates."""


@dataclass
class Bill:
    """The figures of a stream by the rules, worked out the long way."""

    input: dict[str, int] = field(default_factory=dict)
    output: dict[str, int] = field(default_factory=dict)

    def take(self, usage: Json | None) -> Figures | None:
        """Take one usage object and return what is known after it; `None` when nothing is."""
        for known, names in ((self.input, _INPUT), (self.output, _OUTPUT)):
            told = {name: usage[name] for name in names if usage and usage.get(name) is not None}
            if sum(told.values()) > 0 or sum(known.values()) == 0:
                known |= told
        return self.figures() if self.input or self.output else None

    def figures(self) -> Figures:
        """Return what is known."""
        prompts = [self.input[name] for name in _INPUT[:2] if name in self.input]
        whole = sum(prompts) if prompts else None
        output = sum(self.output.values()) if self.output else None
        return whole, output, self.input.get(_INPUT[2]), None, self.output.get(_OUTPUT[1])


def _parts(kind: str, pieces: list[str], number: int) -> list[Json]:
    if kind == "text":
        return [wire.text(piece) for piece in pieces]
    if kind == "thought":
        return [wire.thought(piece) for piece in pieces]
    if kind == "signed":
        return [wire.text(piece, thoughtSignature="c2ln") for piece in pieces]
    if kind == "whole":
        return [wire.call(f"tool_{number}", {"pieces": len(pieces)}, id=f"c{number}")]
    told = [wire.pieces(("$.q", (piece.encode("utf-8", "replace").decode(),))) for piece in pieces]
    return [wire.pieces(name=f"tool_{number}"), *told, {"functionCall": {}}]


PARTS = st.lists(
    st.tuples(
        st.sampled_from(["text", "thought", "signed", "whole", "streamed"]), st.lists(TEXT, max_size=3)
    ),
    max_size=4,
)
REASONS = st.sampled_from(["STOP", "STOP", "MAX_TOKENS", "SAFETY", "OTHER", "CONTINUATION", "NEW"])


@st.composite
def chunks(draw: st.DrawFn) -> list[Json]:
    """Draw the chunks of a whole answer, which may finish more than once."""
    parts = [
        part for number, (kind, pieces) in enumerate(draw(PARTS)) for part in _parts(kind, pieces, number)
    ]
    early = [
        wire.chunk(part, told=draw(USAGE | st.none()), finish=draw(st.none() | st.none() | REASONS))
        for part in parts
    ]
    return [*early, wire.chunk(finish=draw(REASONS), told=draw(USAGE | st.none()))]


def told(chunks: list[Json]) -> Facts:
    """Return the stream of the chunks with its timeline."""
    bill = Bill()
    known = [(index, bill.take(chunk.get("usageMetadata"))) for index, chunk in enumerate(chunks)]
    return facts(wire.sse(*chunks), [(index, row) for index, row in known if row is not None])
