"""Provider bytes for tests: events and documents as JSON, framed as on the wire, and read by an accumulator.

The events themselves come from `anthropic_events` and `responses_events`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.answers import Answer, Delta, TextDelta, ToolCallDelta
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, End, Ending, Stage

Json = dict[str, Any]


def body(document: object) -> bytes:
    """Return a document as one JSON body. Lone surrogates are escaped, as JSON allows."""
    return json.dumps(document).encode()


def frame(event: object, name: str | None = None) -> bytes:
    """Return one event. Its name is the JSON `type` unless given; `""` leaves the `event:` line out."""
    if name is None:
        name = event.get("type", "") if isinstance(event, dict) else ""
    data = event if isinstance(event, bytes) else body(event)
    line = f"event: {name}\n".encode() if name else b""
    return line + b"data: " + data + b"\n\n"


def sse(*events: object) -> bytes:
    """Return an event stream; bytes are taken as the data of an event without a name."""
    return b"".join(map(frame, events))


def ending(end: End = End.CLEAN, *, cause: Cause = Cause.NETWORK, stage: Stage = Stage.BODY) -> Ending:
    """Return how the reading ended."""
    return Ending(end=end, cause=cause, stage=stage)


def read(
    accumulator: Accumulator, data: bytes | Iterable[bytes], end: End | Ending = End.CLEAN
) -> Answer | Failure:
    """Feed the bytes as a driver does, which stops when the accumulator is done, and return the outcome."""
    for chunk in [data] if isinstance(data, bytes) else data:
        accumulator.feed(chunk)
        if accumulator.done:
            break
    return accumulator.finish(ending(end) if isinstance(end, End) else end)


def answer(accumulator: Accumulator, data: bytes | Iterable[bytes], end: End = End.CLEAN) -> Answer:
    """Return the answer; an AssertionError tells the failure that came instead."""
    outcome = read(accumulator, data, end)
    assert isinstance(outcome, Answer), outcome
    return outcome


def failed(accumulator: Accumulator, data: bytes | Iterable[bytes], end: End | Ending = End.CLEAN) -> Failure:
    """Return the failure; an AssertionError tells the answer that came instead."""
    outcome = read(accumulator, data, end)
    assert isinstance(outcome, Failure), outcome
    return outcome


def joined_text(deltas: list[Delta]) -> str:
    """Return the text of the text deltas."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def joined_calls(deltas: list[Delta]) -> list[tuple[str, str, str]]:
    """Return (id, name, arguments) of each tool call, put together from its deltas."""
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, [delta.id, delta.name, ""])
            call[2] += delta.arguments_json
    return [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]


def chunks_at(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """Yield the bytes in pieces, cut at the given offsets."""
    start = 0
    for cut in sorted(cuts):
        yield data[start:cut]
        start = cut
    yield data[start:]
