"""Laws of every Gemini stream: truthful at every cut, the same in any chunking and shape, unmoved by noise and junk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import GeminiAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.counters import counter
from modelmeter_server.core.outcomes import End
from tests.support import gemini_chunks as wire
from tests.support.accumulator_laws import check_bill, check_cut, everything, figures
from tests.support.gemini_streams import chunks, told
from tests.support.json_damage import (
    JUNK,
    UNREADABLE,
    critical_depths,
    nest,
    paths,
    replaced,
    spelled,
    without,
)
from tests.support.wire_bytes import Json, chunks_at, ending, joined_calls, joined_text, read

ENDS = st.sampled_from([End.CLEAN, End.RESET])
RICH = [
    wire.chunk(
        wire.thought("hm"), told=wire.usage(40, None, thoughtsTokenCount=5, cachedContentTokenCount=7)
    ),
    wire.chunk(wire.text("Hello"), told=wire.usage(40, 3, thoughtsTokenCount=5)),
    wire.chunk(wire.text(" yöu"), told=wire.usage(40, 9, thoughtsTokenCount=5), groundingMetadata={}),
    wire.chunk({"executableCode": {"code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}),
    wire.chunk(wire.call("look", {"a": [1, {"b": "c"}]}, signature="c2ln", id="c1")),
    wire.chunk(wire.pieces(name="add"), wire.pieces(("$.x[0]", 1)), wire.pieces(("$.y", "z"), more=False)),
    wire.chunk(
        finish="STOP",
        told=wire.usage(40, 26, thoughtsTokenCount=5, toolUsePromptTokenCount=16, totalTokenCount=87),
        groundingMetadata={"webSearchQueries": ["q"], "groundingChunks": [{"maps": {}}]},
    ),
]
BILL = (56, 31, 7, None, 5)


def make() -> GeminiAccumulator:
    return GeminiAccumulator(deltas=True)


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
@pytest.mark.parametrize("first", [0, 3], ids=["with usage", "without usage at first"])
def test_a_stream_cut_at_any_byte_says_what_had_been_told(end: End, first: int):
    stream = told(RICH[first:])
    for cut in range(len(stream.data) + 1):
        check_cut(make, stream, cut, end)


@settings(max_examples=60, deadline=None)
@given(chunks(), st.data())
def test_any_stream_cut_anywhere_says_what_had_been_told(message: list[Json], data: st.DataObject):
    stream = told(message)
    boundaries = [
        offset + shift for span in stream.spans for offset in (span.told, span.end) for shift in (-1, 0)
    ]
    cuts = data.draw(st.lists(st.integers(0, len(stream.data)) | st.sampled_from(boundaries), max_size=12))
    for cut in cuts:
        check_cut(make, stream, cut, data.draw(ENDS))


@settings(max_examples=80, deadline=None)
@given(chunks(), st.sampled_from([wire.sse, wire.array]), ENDS, st.data())
def test_any_chunking_gives_the_same(message: list[Json], pack: Any, end: End, data: st.DataObject):
    stream = pack(*message)[: data.draw(st.sampled_from([None, -1, -2, -40, 300]))]
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=30))
    expected = everything(make, [stream], end)
    assert everything(make, chunks_at(stream, cuts), end) == expected
    assert everything(make, (stream[i : i + 1] for i in range(len(stream))), end) == expected


@settings(max_examples=80, deadline=None)
@given(chunks())
def test_a_growing_array_is_read_like_the_events(message: list[Json]):
    events, array = (everything(make, [pack(*message)]) for pack in (wire.sse, wire.array))
    assert array[1:] == events[1:]
    if isinstance(events[0], Answer):
        assert array[0] == events[0]


@settings(max_examples=120, deadline=None)
@given(chunks())
def test_joined_deltas_are_the_answer(message: list[Json]):
    outcome, snapshot, deltas, _ = everything(make, [wire.sse(*message)])
    assert joined_text(deltas) == snapshot.text
    assert [call[:2] for call in joined_calls(deltas)] == [call[:2] for call in snapshot.tool_calls]
    if isinstance(outcome, Answer):
        assert outcome.text == snapshot.text
        calls = [(call.id, call.name, call.arguments_json) for call in outcome.tool_calls]
        assert [(id, name, arguments or "{}") for id, name, arguments in joined_calls(deltas)] == calls
    check_bill(outcome)
    json.dumps(snapshot.text, ensure_ascii=False).encode()  # whatever leaves is valid Unicode


@settings(max_examples=80, deadline=None)
@given(chunks())
def test_the_turn_that_goes_back_holds_every_part_that_came(message: list[Json]):
    outcome, _, _, _ = everything(make, [wire.sse(*message)])
    if not isinstance(outcome, Answer) or outcome.continuation is None:
        return
    (content,) = json.loads(outcome.continuation.state_json)
    came = [part for each in message for part in each["candidates"][0].get("content", {}).get("parts", [])]
    for name in ("thoughtSignature", "thought"):
        texts = [
            "".join(part.get("text", "") for part in parts if name in part)
            for parts in (came, content["parts"])
        ]
        assert texts[0].encode("utf-16", "surrogatepass") == texts[1].encode("utf-16", "surrogatepass")
    named = [part["functionCall"]["name"] for part in came if "name" in part.get("functionCall", {})]
    called = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    assert [call["name"] for call in called] == named
    assert all("willContinue" not in call and "partialArgs" not in call for call in called)


NOISE = st.sampled_from(
    [
        b": keep-alive\r\n\r\n",
        b"\r\n\r\n",
        b"data:  \r\n\r\n",
        b"data: [DONE]\r\n\r\n",
        b"id: 7\r\nretry: 10\r\n\r\n",
        b'event: weather\r\ndata: {"usageMetadata": {"promptTokenCount": 7}}\r\n\r\n',
        wire.sse(b"{broken"),
        wire.sse([], {}, {"candidates": []}, {"candidates": [{"index": 1, "finishReason": "SAFETY"}]}),
        wire.sse({"usageMetadata": {"promptTokensDetails": None}, "error": None}),
    ]
)


@settings(max_examples=80, deadline=None)
@given(chunks(), st.data())
def test_noise_never_changes_a_stream(message: list[Json], data: st.DataObject):
    frames = [wire.sse(each) for each in message]
    noisy = [piece for each in frames for piece in (each, *data.draw(st.lists(NOISE, max_size=2)))]
    plain, noised = everything(make, frames), everything(make, noisy)
    assert noised[1:3] == plain[1:3]
    if not isinstance(plain[0], Answer):
        assert noised[0] == plain[0]


EVENTS = [(index, path) for index, event in enumerate(RICH) for path in paths(event)]


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(EVENTS), JUNK, ENDS)
def test_junk_in_any_place_never_raises_and_never_changes_the_bill_elsewhere(place: Any, junk: Any, end: End):
    index, path = place
    damaged = [wire.sse(event) for event in RICH]
    damaged[index] = wire.sse(spelled(replaced(RICH[index], path, junk)))
    outcome, snapshot, _, _ = everything(make, [b"".join(damaged)], end)
    check_bill(outcome)
    if junk not in UNREADABLE and "usageMetadata" not in path:
        assert figures(snapshot.usage) == BILL


USAGE_PATHS = [(index, path) for index, path in EVENTS if len(path) == 2 and path[0] == "usageMetadata"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(USAGE_PATHS), JUNK.filter(lambda junk: counter(junk) is None))
def test_an_odd_figure_counts_as_one_that_was_not_told(place: Any, junk: Any):
    index, path = place
    if junk in UNREADABLE or junk in ("raw:longer-than-int64", "raw:long"):
        return
    odd, gone = [wire.sse(event) for event in RICH], [wire.sse(event) for event in RICH]
    odd[index] = wire.sse(spelled(replaced(RICH[index], path, junk)))
    gone[index] = wire.sse(without(RICH[index], path))
    assert everything(make, odd)[:3] == everything(make, gone)[:3]


DOCUMENT = wire.chunk(
    wire.thought("hm"),
    wire.text("Hello"),
    wire.call("look", {"a": 1}, signature="c2ln"),
    finish="STOP",
    told=wire.usage(49, 26, thoughtsTokenCount=5, cachedContentTokenCount=40),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(paths(DOCUMENT))), JUNK, st.sampled_from(list(End)))
def test_junk_in_a_body_never_raises_and_never_changes_the_bill_elsewhere(path: Any, junk: Any, end: End):
    outcome = read(make(), spelled(replaced(DOCUMENT, path, junk)), end)
    check_bill(outcome)
    if junk not in UNREADABLE and "usageMetadata" not in path:
        assert figures(outcome.usage) == (49, 31, 40, None, 5)


def test_a_body_cut_at_any_byte_has_generated_and_is_never_an_answer():
    data = json.dumps(DOCUMENT).encode()
    told_at = (
        data.index(b'"usageMetadata"')
        + len(b'"usageMetadata": ')
        + len(json.dumps(DOCUMENT["usageMetadata"]))
    )
    for cut in range(1, len(data)):
        for end in (End.CLEAN, End.RESET):
            outcome = read(make(), data[:cut], end)
            check_bill(outcome)
            assert not isinstance(outcome, Answer)
            assert outcome.may_have_generated
            assert figures(outcome.usage) == ((49, 31, 40, None, 5) if cut >= told_at else None), cut


@pytest.mark.parametrize("depth", critical_depths())
def test_no_depth_of_nesting_breaks_anything(depth: int):
    part = b'{"functionCall":{"name":"look","args":{"a":%b}}}' % nest(depth).encode()
    deep = b'{"candidates":[{"content":{"parts":[%b]}}]}' % part
    check_bill(read(make(), wire.sse(deep, wire.chunk(finish="STOP", told=wire.USAGE))))
    check_bill(read(make(), deep))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(End)))
def test_no_bytes_make_it_raise(data: bytes, end: End):
    for start in (b"", b"{", b"[", b'[{"a":"', b'data: {"candidates":[{"content":', b"data: "):
        accumulator = make()
        accumulator.feed(start + data)
        check_bill(accumulator.finish(ending(end)))
