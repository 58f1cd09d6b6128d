"""Laws of every Anthropic stream: truthful at every cut, the same in any chunking, unmoved by noise and junk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.counters import counter
from modelmeter_server.core.outcomes import End
from tests.support import anthropic_events as wire
from tests.support.accumulator_laws import check_bill, check_cut, everything, figures
from tests.support.anthropic_streams import events, told
from tests.support.json_damage import JUNK, UNREADABLE, paths, replaced, spelled, without
from tests.support.wire_bytes import Json, chunks_at, ending, frame, joined_calls, joined_text, read, sse

ENDS = st.sampled_from([End.CLEAN, End.RESET])
RICH = [
    wire.start({"input_tokens": 9, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}),
    wire.PING,
    *wire.thinking_block(0, "hm"),
    *wire.text_block(1, "Hello", " yöu"),
    *wire.tool_block(2, "look", '{"a"', ":1}"),
    wire.ended("tool_use", {"output_tokens": 31, "output_tokens_details": {"thinking_tokens": 5}}),
    wire.STOP,
]


def make() -> AnthropicAccumulator:
    return AnthropicAccumulator(deltas=True)


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
@pytest.mark.parametrize("first", [0, 1], ids=["with usage", "without usage"])
def test_a_stream_cut_at_any_byte_says_what_had_been_told(end: End, first: int):
    stream = told([wire.start(None), *RICH[1:]] if first else RICH)
    for cut in range(len(stream.data) + 1):
        check_cut(make, stream, cut, end)


@settings(max_examples=60, deadline=None)
@given(events(), st.data())
def test_any_stream_cut_anywhere_says_what_had_been_told(message: list[Json], data: st.DataObject):
    stream = told(message)
    boundaries = [
        offset + shift for span in stream.spans for offset in (span.told, span.end) for shift in (-1, 0)
    ]
    cuts = data.draw(st.lists(st.integers(0, len(stream.data)) | st.sampled_from(boundaries), max_size=12))
    for cut in cuts:
        check_cut(make, stream, cut, data.draw(ENDS))


@settings(max_examples=80, deadline=None)
@given(events(), ENDS, st.data())
def test_any_chunking_gives_the_same(message: list[Json], end: End, data: st.DataObject):
    stream = sse(*message)[: data.draw(st.sampled_from([None, -1, -2, -40, 300]))]
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=30))
    expected = everything(make, [stream], end)
    assert everything(make, chunks_at(stream, cuts), end) == expected
    assert everything(make, (stream[i : i + 1] for i in range(len(stream))), end) == expected


@settings(max_examples=80, deadline=None)
@given(events())
def test_joined_deltas_are_the_answer(message: list[Json]):
    outcome, snapshot, deltas, _ = everything(make, [sse(*message)])
    assert joined_text(deltas) == snapshot.text
    assert joined_calls(deltas) == list(snapshot.tool_calls)
    if isinstance(outcome, Answer):
        assert outcome.text == snapshot.text
    check_bill(outcome)
    json.dumps(snapshot.text, ensure_ascii=False).encode()  # whatever leaves is valid Unicode


NOISE = st.sampled_from(
    [
        frame(wire.PING),
        b": keep-alive\n\n",
        b"\n\n",
        b"data:  \n\n",
        b"id: 7\nretry: 10\n\n",
        frame({"type": "weather", "usage": {"input_tokens": 7}}),
        frame(b"{broken", "content_block_delta"),
        frame(b"{broken", "message_stop"),
        frame({"type": "x", "error": {"type": "overloaded_error"}}),
        frame([], ""),
    ]
)


@settings(max_examples=80, deadline=None)
@given(events(), st.data())
def test_noise_never_changes_a_stream(message: list[Json], data: st.DataObject):
    frames = [frame(event) for event in message]
    noisy = [piece for each in frames for piece in (each, *data.draw(st.lists(NOISE, max_size=2)))]
    plain, noised = everything(make, frames), everything(make, noisy)
    assert noised[:3] == plain[:3]


EVENTS = [(index, path) for index, event in enumerate(RICH) for path in paths(event)]
BILL = {"usage", "message", "delta"}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(EVENTS), JUNK, ENDS)
def test_junk_in_any_place_never_raises_and_never_changes_the_bill_elsewhere(place: Any, junk: Any, end: End):
    index, path = place
    damaged = [frame(event) for event in RICH]
    damaged[index] = frame(spelled(replaced(RICH[index], path, junk)), RICH[index]["type"])
    outcome, snapshot, _, _ = everything(make, [b"".join(damaged)], end)
    check_bill(outcome)
    if junk in UNREADABLE or "usage" in path or path == ("message",):
        return
    assert figures(snapshot.usage) == (56, 31, 40, 7, 5)


USAGE_PATHS = [(index, path) for index, path in EVENTS if "usage" in path and path[-1] != "usage"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(USAGE_PATHS), JUNK.filter(lambda junk: counter(junk) is None))
def test_an_odd_figure_counts_as_one_that_was_not_told(place: Any, junk: Any):
    index, path = place
    if junk in UNREADABLE or junk in ("raw:longer-than-int64", "raw:long"):
        return
    odd, gone = [frame(event) for event in RICH], [frame(event) for event in RICH]
    odd[index] = frame(spelled(replaced(RICH[index], path, junk)), RICH[index]["type"])
    gone[index] = frame(without(RICH[index], path))
    assert everything(make, odd)[:3] == everything(make, gone)[:3]


DOCUMENT = json.loads(
    wire.document(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}},
        reason="tool_use",
        usage={"input_tokens": 9, "output_tokens": 31, "cache_read_input_tokens": 40},
    )
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(paths(DOCUMENT))), JUNK, st.sampled_from(list(End)))
def test_junk_in_a_body_never_raises_and_never_changes_the_bill_elsewhere(path: Any, junk: Any, end: End):
    outcome = read(make(), spelled(replaced(DOCUMENT, path, junk)), end)
    check_bill(outcome)
    if junk not in UNREADABLE and "usage" not in path:
        assert figures(outcome.usage) == (49, 31, 40, None, None)


def test_a_body_cut_at_any_byte_has_generated_and_is_never_an_answer():
    data = json.dumps(DOCUMENT).encode()
    told_at = data.index(b'"usage"') + len(b'"usage": ') + len(json.dumps(DOCUMENT["usage"]))
    for cut in range(1, len(data)):
        for end in (End.CLEAN, End.RESET):
            outcome = read(make(), data[:cut], end)
            check_bill(outcome)
            assert not isinstance(outcome, Answer)
            assert outcome.may_have_generated
            expected = (49, 31, 40, None, None) if cut >= told_at else None
            assert figures(outcome.usage) == expected, cut


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(End)))
def test_no_bytes_make_it_raise(data: bytes, end: End):
    for start in (b"", b"{", b"event: message_start\ndata: {", b"event: content_block_delta\ndata: "):
        accumulator = make()
        accumulator.feed(start + data)
        check_bill(accumulator.finish(ending(end)))
