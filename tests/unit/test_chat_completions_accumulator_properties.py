"""Laws of every chat: truthful at every cut, the same in any chunking, unmoved by noise and junk."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import ChatCompletionsAccumulator
from modelmeter_server.core.accumulators.chat_extras import MessageExtras
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.outcomes import End
from tests.support import chat_events as wire
from tests.support.accumulator_laws import check_bill, check_cut, everything, figures
from tests.support.chat_streams import chunks, told
from tests.support.json_damage import JUNK, UNREADABLE, critical_depths, nest, paths, replaced, spelled
from tests.support.wire_bytes import Json, chunks_at, ending, frame, joined_calls, joined_text, read, sse

ENDS = st.sampled_from([End.CLEAN, End.RESET])
RICH = [
    wire.role(),
    wire.said(reasoning_content="hm"),
    wire.text("Hello"),
    wire.text(" yöu"),
    *wire.call(0, '{"a"', ":1}"),
    wire.finish("tool_calls"),
    wire.usage(),
]
BILL = (30, 8, 10, None, 3)


def make() -> ChatCompletionsAccumulator:
    return ChatCompletionsAccumulator(deltas=True)


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "abort"])
def test_a_stream_cut_at_any_byte_says_what_had_been_told(end: End, reason: str):
    stream = told([*RICH[1:4], wire.finish(reason), RICH[-1]])
    for cut in range(len(stream.data) + 1):
        check_cut(make, stream, cut, end)


@settings(max_examples=60, deadline=None)
@given(chunks(), st.data())
def test_any_stream_cut_anywhere_says_what_had_been_told(answer: list[Json], data: st.DataObject):
    stream = told(answer)
    boundaries = [
        offset + shift for span in stream.spans for offset in (span.told, span.end) for shift in (-1, 0)
    ]
    cuts = data.draw(st.lists(st.integers(0, len(stream.data)) | st.sampled_from(boundaries), max_size=12))
    for cut in cuts:
        check_cut(make, stream, cut, data.draw(ENDS))


@settings(max_examples=80, deadline=None)
@given(chunks(), ENDS, st.data())
def test_any_chunking_gives_the_same(answer: list[Json], end: End, data: st.DataObject):
    stream = sse(*answer, wire.DONE)[: data.draw(st.sampled_from([None, -1, -2, -40, 300]))]
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=30))
    expected = everything(make, [stream], end)
    assert everything(make, chunks_at(stream, cuts), end) == expected
    assert everything(make, (stream[i : i + 1] for i in range(len(stream))), end) == expected


@settings(max_examples=80, deadline=None)
@given(chunks())
def test_joined_deltas_are_the_answer(answer: list[Json]):
    outcome, snapshot, deltas, _ = everything(make, [sse(*answer, wire.DONE)])
    json.dumps([snapshot.text, snapshot.reasoning], ensure_ascii=False).encode()  # valid Unicode
    if isinstance(outcome, Answer):
        assert joined_text(deltas) == outcome.text == snapshot.text
        assert joined_calls(deltas) == list(snapshot.tool_calls)
    check_bill(outcome)


NOISE = st.sampled_from(
    [
        b": keep-alive\n\n",
        b"\n\n",
        b"data:  \n\n",
        frame(wire.chunk(prompt_filter_results=[{}])),
        frame(wire.chunk({"index": 0, "finish_reason": None, "content_filter_offsets": {}})),
        frame(b"{broken"),
        frame([], ""),
        frame({"type": "ping"}),
        frame(wire.chunk(wire.choice({"content": "no"}, index=1), usage=None)),
    ]
)


@settings(max_examples=80, deadline=None)
@given(chunks(), st.data())
def test_noise_never_changes_a_stream_that_generated(answer: list[Json], data: st.DataObject):
    frames = [frame(event) for event in [wire.text("a"), *answer, wire.DONE]]
    noisy = [frames[0]]
    for each in frames[1:]:
        noisy += [*data.draw(st.lists(NOISE, max_size=2)), each]
    assert everything(make, noisy)[:3] == everything(make, frames)[:3]


EVENTS = [(index, path) for index, event in enumerate(RICH) for path in paths(event)]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(EVENTS), JUNK, ENDS)
def test_junk_in_any_place_never_raises_and_never_changes_the_bill_elsewhere(place: Any, junk: Any, end: End):
    index, path = place
    damaged = [frame(event) for event in RICH]
    damaged[index] = frame(spelled(replaced(RICH[index], path, junk)), "")
    outcome, snapshot, _, _ = everything(make, [b"".join(damaged)], end)
    check_bill(outcome)
    told_nothing = junk in UNREADABLE and index == len(RICH) - 1
    if not told_nothing and index != len(RICH) - 1:
        assert figures(snapshot.usage) == BILL


DOCUMENT = wire.document(
    {
        "role": "assistant",
        "content": "Hello",
        "reasoning": "hm",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    reason="tool_calls",
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(paths(DOCUMENT))), JUNK, st.sampled_from(list(End)))
def test_junk_in_a_body_never_raises_and_never_changes_the_bill_elsewhere(path: Any, junk: Any, end: End):
    outcome = read(make(), spelled(replaced(DOCUMENT, path, junk)), end)
    check_bill(outcome)
    if junk not in UNREADABLE and "usage" not in path:
        assert figures(outcome.usage) == BILL


def test_a_body_cut_at_any_byte_has_generated_and_is_never_an_answer():
    data = json.dumps(DOCUMENT).encode()
    told_at = data.index(b'"usage"') + len(b'"usage": ') + len(json.dumps(DOCUMENT["usage"]))
    for cut in range(1, len(data)):
        for end in (End.CLEAN, End.RESET):
            outcome = read(make(), data[:cut], end)
            check_bill(outcome)
            assert not isinstance(outcome, Answer)
            assert outcome.may_have_generated
            assert figures(outcome.usage) == (BILL if cut >= told_at else None), cut


def test_arguments_and_members_nested_at_any_depth_never_raise():
    for depth in critical_depths():
        deep = nest(depth).encode()
        call = b'{"id":"x","function":{"name":"look","arguments":' + deep + b'},"more":' + deep + b"}"
        delta = b'{"content":null,"other":' + deep + b',"tool_calls":[' + call + b"]}"
        data = b'data: {"choices":[{"index":0,"delta":' + delta + b',"finish_reason":"tool_calls"}]}\n\n'
        check_bill(read(make(), data))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(End)))
def test_no_bytes_make_it_raise(data: bytes, end: End):
    for start in (b"", b"{", b'data: {"choices":[{"delta":', b'{"choices":[{"message":', b"data: [DON"):
        accumulator = make()
        accumulator.feed(start + data)
        check_bill(accumulator.finish(ending(end)))


@given(st.lists(st.tuples(st.integers(0, 1), st.text(max_size=3)), max_size=6))
def test_entries_of_a_member_are_joined_by_their_index(pieces: list[tuple[int, str]]):
    extras = MessageExtras(lambda: True)
    for index, text in pieces:
        extras.add("details", [{"index": index, "type": "t", "text": text}])
    entries = extras.members().get("details", [])
    assert "".join(each["text"] for each in entries) == "".join(text for _, text in pieces)
    assert all(first["index"] != second["index"] for first, second in itertools.pairwise(entries))
