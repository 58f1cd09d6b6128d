"""Laws that hold for every accumulator and every stream: cuts are truthful, chunking does not matter.

Streams are read here a second time, by other and simpler means than the accumulators': only LF or only CRLF line
ends, one data line an event; frames by botocore.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from botocore.eventstream import EventStreamBuffer

from modelmeter_server.core.accumulators import Accumulator, Snapshot, coalesce
from modelmeter_server.core.answers import Answer, Delta
from modelmeter_server.core.errors import TABLE, Failure
from modelmeter_server.core.outcomes import Certainty, Disposition, End, Kind
from modelmeter_server.core.usage import Usage

from .wire_bytes import ending

Make = Callable[[], Accumulator]
Figures = tuple[int | None, int | None, int | None, int | None, int | None]
"""Input, output, cache read, cache write, reasoning."""

_PROOFS = (
    "message_start",
    "response.output_item.added",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
)
_ENDS = ("message_stop", "response.completed", "response.incomplete", "response.failed", "metadata")


@dataclass(frozen=True)
class Span:
    """One event of a stream and where it stands."""

    name: str
    payload: dict[str, Any]
    told: int
    """Offset after its JSON: from here on a clean end counts it."""
    end: int
    """Offset after its blank line: from here on every end counts it."""


@dataclass
class Facts:
    """What a stream tells, event by event."""

    data: bytes
    spans: list[Span]
    timeline: list[tuple[int, Figures]]
    """Index of an event with what is known after it, as in the recorded timelines."""

    def complete(self, cut: int, end: End) -> int:
        """Return how many events count after `cut` bytes."""
        offset = attrgetter("told" if end is End.CLEAN else "end")
        return bisect_right(self.spans, cut, key=offset)

    def usage_after(self, events: int) -> Figures | None:
        """Return the figures told by that many events; zeros alone are none (R-U6)."""
        rows = [figures for index, figures in self.timeline if index < events]
        return rows[-1] if rows and any(rows[-1][:2]) else None

    def _first(self, is_it: Callable[[Span], bool]) -> int:
        """Return the index of the first such event, or the number of events."""
        return next((index for index, span in enumerate(self.spans) if is_it(span)), len(self.spans))

    @cached_property
    def proof(self) -> int:
        """Index of the first event that proves generation."""
        return self._first(
            lambda span: (
                span.name in _PROOFS
                or span.name.endswith(".delta")
                or "candidates" in span.payload
                or _shows_output(span.payload)
            )
        )

    @cached_property
    def stop(self) -> int:
        """Index of the event with the stop reason."""
        return self._first(lambda span: span.name in _ENDS or _stop_reason(span.payload) is not None)

    @cached_property
    def marker(self) -> int:
        """Index of the end marker."""
        return self._first(lambda span: span.name in _ENDS or _finish_reason(span.payload) is not None)

    def whole(self, end: End) -> int:
        """Return the index of the event that makes the answer whole: of a format without an end marker, the first
        with a stop reason, if nothing but the end of the body follows."""
        if self.marker < len(self.spans) or not any("candidates" in span.payload for span in self.spans):
            return self.marker
        return self.stop if end is End.CLEAN else len(self.spans)


def _choices(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of a chunk of Chat Completions; of other events none."""
    return payload.get("choices") or []


def _shows_output(payload: dict[str, Any]) -> bool:
    deltas = [choice.get("delta") or {} for choice in _choices(payload)]
    shown = any(value for delta in deltas for name, value in delta.items() if name not in ("role", "channel"))
    return shown or _finish_reason(payload) is not None


def _finish_reason(payload: dict[str, Any]) -> object:
    reasons = [each.get("finish_reason") for each in _choices(payload) if not each.get("index")]
    return reasons[0] if reasons else None


def _stop_reason(payload: dict[str, Any]) -> object:
    if "choices" in payload:
        return _finish_reason(payload)
    if "candidates" in payload:
        candidates = payload["candidates"]
        return candidates[0].get("finishReason") if candidates else None
    delta = payload.get("delta")
    return delta.get("stop_reason") if isinstance(delta, dict) else payload.get("stopReason")


def facts(data: bytes, timeline: Iterable[tuple[int, Figures]]) -> Facts:
    """Read a stream of events whose lines all end with LF, or all with CRLF."""
    spans, offset, name = [], 0, ""
    payload, told = None, 0
    for line in data.splitlines(keepends=True):
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"data" and value != b"[DONE]":
            payload, told = json.loads(value), offset + len(line.rstrip())
        offset += len(line)
        if not line.strip() and payload is not None:
            # A CR ends its line by itself: the LF that follows says nothing more.
            spans.append(Span(name or payload.get("type", ""), payload, told, offset - len(line) + 1))
            name, payload = "", None
    if payload is not None:  # no blank line ever came
        spans.append(Span(name or payload.get("type", ""), payload, told, offset + 1))
    return Facts(data, spans, list(timeline))


def frame_facts(data: bytes, timeline: Iterable[tuple[int, Figures]]) -> Facts:
    """Read a stream of Amazon's frames; a last one that is not whole is none."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    spans, offset = [], 0
    for message in buffer:
        offset += message.prelude.total_length
        name = message.headers.get(":event-type") or message.headers[":exception-type"]
        spans.append(Span(name, json.loads(message.payload), offset, offset))
    return Facts(data, spans, list(timeline))


def figures(usage: Usage | None) -> Figures | None:
    """Reduce a usage to the columns of a timeline."""
    if usage is None:
        return None
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    return usage.input_tokens, usage.output_tokens, read, write, usage.reasoning_tokens


def check_cut(make: Make, stream: Facts, cut: int, end: End) -> None:
    """Assert that the outcome after `cut` bytes says what had been told, no more and no less."""
    accumulator = make()
    accumulator.feed(stream.data[:cut])
    outcome = accumulator.finish(ending(end))
    events = stream.complete(cut, end)

    def where() -> str:
        return f"cut at {cut}, {end.name}, after {events} events: {outcome}"

    assert figures(outcome.usage) == stream.usage_after(events), where()
    check_bill(outcome)
    if events <= stream.stop:
        assert outcome.certainty is not Certainty.EXACT, where()
    if events <= stream.whole(end):
        assert isinstance(outcome, Failure), where()
        landed = events > stream.proof or stream.usage_after(events) is not None
        assert outcome.disposition is (Disposition.LANDED if landed else Disposition.DID_NOT_HAPPEN), where()
        assert outcome.kind is _severed_kind(landed=landed, told=outcome.usage is not None), where()


def _severed_kind(*, landed: bool, told: bool) -> Kind:
    if not landed:
        return Kind.UNAVAILABLE
    return Kind.INTERRUPTED if told else Kind.UNACCOUNTED


def check_bill(outcome: Answer | Failure) -> None:
    """Assert that usage, certainty, kind and disposition fit each other."""
    assert (outcome.usage is None) == (outcome.certainty in (Certainty.NONE, Certainty.UNKNOWN)), outcome
    assert outcome.usage is None or outcome.usage.is_seen, outcome
    if outcome.certainty is Certainty.EXACT:
        assert outcome.estimated_output_tokens is None, outcome
    if isinstance(outcome, Answer):
        assert outcome.certainty is not Certainty.NONE, outcome
        return
    row = TABLE[outcome.kind]
    assert outcome.certainty in row.certainties, outcome
    assert outcome.disposition is (row.disposition or outcome.disposition), outcome
    is_free = outcome.disposition is Disposition.DID_NOT_HAPPEN and outcome.certainty is Certainty.NONE
    assert outcome.may_have_generated is not is_free, outcome
    if outcome.kind is Kind.UNACCOUNTED:
        assert outcome.usage is None, outcome
    if outcome.kind is Kind.INTERRUPTED:
        assert outcome.usage is not None, outcome


def everything(
    make: Make, chunks: Iterable[bytes], end: End = End.CLEAN
) -> tuple[Answer | Failure, Snapshot, list[Delta], int]:
    """Return all that an accumulator says of a stream. Deltas are drained after every chunk, then joined."""
    accumulator = make()
    deltas: list[Delta] = []
    for chunk in chunks:
        accumulator.feed(chunk)
        deltas += accumulator.drain()
    outcome = accumulator.finish(ending(end))
    deltas += accumulator.drain()
    return outcome, accumulator.snapshot(), coalesce(deltas), accumulator.skipped_events
