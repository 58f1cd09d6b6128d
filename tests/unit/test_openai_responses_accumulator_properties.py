"""Laws of every response: truthful at every cut, the same in any chunking, unmoved by noise and junk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.counters import counter
from modelmeter_server.core.outcomes import End
from tests.support import responses_events as wire
from tests.support.accumulator_laws import check_bill, check_cut, everything, figures
from tests.support.json_damage import JUNK, UNREADABLE, paths, replaced, spelled, without
from tests.support.responses_streams import events, told
from tests.support.wire_bytes import Json, chunks_at, ending, frame, joined_calls, joined_text, read, sse

ENDS = st.sampled_from([End.CLEAN, End.RESET])
OUTPUT = [wire.reasoning("hm"), wire.message("Hello yöu", index=1), wire.call("look", '{"a":1}')]
RICH = [
    wire.created(),
    wire.added(0, {"type": "reasoning", "summary": []}),
    wire.summary(0, "hm"),
    *wire.text_events(1, "Hello", " yöu"),
    *wire.call_events(2, OUTPUT[2], '{"a"', ":1}"),
    wire.ended(*OUTPUT),
]
BILL = (30, 8, 10, None, 3)


def make() -> OpenAIResponsesAccumulator:
    return OpenAIResponsesAccumulator(deltas=True)


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
@pytest.mark.parametrize("status", ["completed", "failed", "incomplete"])
def test_a_stream_cut_at_any_byte_says_what_had_been_told(end: End, status: str):
    stream = told([*RICH[:4], wire.ended(*OUTPUT, status=status)])
    for cut in range(len(stream.data) + 1):
        check_cut(make, stream, cut, end)


@settings(max_examples=60, deadline=None)
@given(events(), st.data())
def test_any_stream_cut_anywhere_says_what_had_been_told(response: list[Json], data: st.DataObject):
    stream = told(response)
    boundaries = [
        offset + shift for span in stream.spans for offset in (span.told, span.end) for shift in (-1, 0)
    ]
    cuts = data.draw(st.lists(st.integers(0, len(stream.data)) | st.sampled_from(boundaries), max_size=12))
    for cut in cuts:
        check_cut(make, stream, cut, data.draw(ENDS))


@settings(max_examples=80, deadline=None)
@given(events(), ENDS, st.data())
def test_any_chunking_gives_the_same(response: list[Json], end: End, data: st.DataObject):
    stream = sse(*response)[: data.draw(st.sampled_from([None, -1, -2, -40, 300]))]
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=30))
    expected = everything(make, [stream], end)
    assert everything(make, chunks_at(stream, cuts), end) == expected
    assert everything(make, (stream[i : i + 1] for i in range(len(stream))), end) == expected


@settings(max_examples=80, deadline=None)
@given(events())
def test_joined_deltas_are_the_answer(response: list[Json]):
    outcome, snapshot, deltas, _ = everything(make, [sse(*response)])
    json.dumps([snapshot.text, snapshot.reasoning], ensure_ascii=False).encode()  # valid Unicode
    if isinstance(outcome, Answer):
        assert joined_text(deltas) == outcome.text == snapshot.text
        assert joined_calls(deltas) == list(snapshot.tool_calls)
    check_bill(outcome)


NOISE = st.sampled_from(
    [
        frame({"type": "response.web_search_call.searching", "output_index": 0}),
        b": keep-alive\n\n",
        b"\n\n",
        b"data:  \n\n",
        b"data: [DONE]\n\n",
        frame({"type": "weather", "response": {"usage": wire.USAGE}}),
        frame(b"{broken", "response.completed"),
        frame({"type": "x", "error": {"type": "server_error"}}),
        frame([], ""),
    ]
)


@settings(max_examples=80, deadline=None)
@given(events(), st.data())
def test_noise_never_changes_a_stream(response: list[Json], data: st.DataObject):
    frames = [frame(event) for event in response]
    noisy = [piece for each in frames for piece in (each, *data.draw(st.lists(NOISE, max_size=2)))]
    plain, noised = everything(make, frames), everything(make, noisy)
    assert noised[:3] == plain[:3]


EVENTS = [(index, path) for index, event in enumerate(RICH) for path in paths(event)]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(EVENTS), JUNK, ENDS)
def test_junk_in_any_place_never_raises_and_never_changes_the_bill_elsewhere(place: Any, junk: Any, end: End):
    index, path = place
    damaged = [frame(event) for event in RICH]
    damaged[index] = frame(spelled(replaced(RICH[index], path, junk)), RICH[index]["type"])
    outcome, snapshot, _, _ = everything(make, [b"".join(damaged)], end)
    check_bill(outcome)
    told_nothing = junk in UNREADABLE and index == len(RICH) - 1
    if not told_nothing and "usage" not in path and path != ("response",):
        assert figures(snapshot.usage) == BILL


USAGE_PATHS = [
    path for index, path in EVENTS if index == len(RICH) - 1 and "usage" in path and path[-1] != "usage"
]
ODD = JUNK.filter(
    lambda junk: counter(junk) is None and junk not in (*UNREADABLE, "raw:longer-than-int64", "raw:long")
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(USAGE_PATHS), ODD)
def test_an_odd_figure_is_not_told_and_never_costs_the_others(path: Any, junk: Any):
    last = frame(spelled(replaced(RICH[-1], path, junk)), RICH[-1]["type"])
    odd = everything(make, [sse(*RICH[:-1]), last])[1].usage
    if path[-1] in ("input_tokens", "output_tokens"):
        kept = (None, *BILL[1:]) if path[-1] == "input_tokens" else (BILL[0], None, *BILL[2:])
        assert figures(odd) == (None if junk is None else kept)
    else:
        gone = everything(make, [sse(*RICH[:-1], without(RICH[-1], path))])[1].usage
        assert odd == gone


DOCUMENT = wire.response(*OUTPUT, usage=wire.USAGE)


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


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(End)))
def test_no_bytes_make_it_raise(data: bytes, end: End):
    for start in (
        b"",
        b"{",
        b"event: response.completed\ndata: {",
        b"event: response.output_text.delta\ndata: ",
    ):
        accumulator = make()
        accumulator.feed(start + data)
        check_bill(accumulator.finish(ending(end)))
