"""Laws of every stream of Bedrock: truthful at every cut, the same in any chunking, unmoved by noise and junk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import BedrockAccumulator
from modelmeter_server.core.answers import Answer, Expectation
from modelmeter_server.core.counters import counter
from modelmeter_server.core.outcomes import End
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import bedrock_events as wire
from tests.support.accumulator_laws import check_bill, check_cut, everything, figures
from tests.support.bedrock_streams import events, told
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
from tests.support.wire_bytes import Json, answer, chunks_at, ending, joined_calls, joined_text, read

ENDS = st.sampled_from([End.CLEAN, End.RESET])
USAGE = {"inputTokens": 9, "cacheReadInputTokens": 40, "cacheWriteInputTokens": 7, "outputTokens": 31}
RICH = wire.message(
    wire.reasoning_block(0, "hm"),
    wire.text_block(1, "Hello", " yöu"),
    wire.tool_block(2, "look", '{"a"', ":1}"),
    reason="tool_use",
    usage=USAGE,
)
BILL = (56, 31, 40, 7, None)
HIGH, LOW = "\ud83d", "\ude00"


def make() -> BedrockAccumulator:
    return BedrockAccumulator(deltas=True)


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
def test_a_stream_cut_at_any_byte_says_what_had_been_told(end: End):
    stream = told(RICH)
    for cut in range(len(stream.data) + 1):
        check_cut(make, stream, cut, end)


@settings(max_examples=60, deadline=None)
@given(events(), st.data())
def test_any_stream_cut_anywhere_says_what_had_been_told(message: list[Json], data: st.DataObject):
    stream = told(message)
    boundaries = [span.end + shift for span in stream.spans for shift in (-1, 0)]
    cuts = data.draw(st.lists(st.integers(0, len(stream.data)) | st.sampled_from(boundaries), max_size=12))
    for cut in cuts:
        check_cut(make, stream, cut, data.draw(ENDS))


@settings(max_examples=80, deadline=None)
@given(events(), ENDS, st.data())
def test_any_chunking_gives_the_same(message: list[Json], end: End, data: st.DataObject):
    stream = wire.frames(*message)[: data.draw(st.sampled_from([None, -1, -2, -40, 300]))]
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=30))
    expected = everything(make, [stream], end)
    assert everything(make, chunks_at(stream, cuts), end) == expected
    assert everything(make, (stream[i : i + 1] for i in range(len(stream))), end) == expected


@settings(max_examples=80, deadline=None)
@given(events())
def test_joined_deltas_are_the_answer(message: list[Json]):
    outcome, snapshot, deltas, _ = everything(make, [wire.frames(*message)])
    assert joined_text(deltas) == snapshot.text
    assert joined_calls(deltas) == list(snapshot.tool_calls)
    if isinstance(outcome, Answer):
        assert outcome.text == snapshot.text
    check_bill(outcome)
    json.dumps(snapshot.text, ensure_ascii=False).encode()  # whatever leaves is valid Unicode


NOISE = st.sampled_from(
    [
        wire.named("weather", {"usage": {"inputTokens": 7}}),
        wire.named("weather", b"\xff"),
        wire.named("messageStop", b"{broken"),
        wire.named("metadata", b"{broken"),
        wire.raw_frame({}, b""),
        wire.raw_frame({":message-type": "greeting"}, b"{}"),
    ]
)


@settings(max_examples=80, deadline=None)
@given(events(), st.data())
def test_noise_never_changes_a_stream(message: list[Json], data: st.DataObject):
    frames = [wire.frame(event) for event in message]
    noisy = [piece for each in frames for piece in (*data.draw(st.lists(NOISE, max_size=2)), each)]
    plain, noised = everything(make, frames), everything(make, noisy)
    assert noised[1:3] == plain[1:3]
    assert noised[0] == plain[0]


@settings(max_examples=80, deadline=None)
@given(events(), st.integers(0), st.integers(1, 255), ENDS)
def test_a_changed_byte_never_makes_an_answer_that_was_not_given(message, where: int, change: int, end: End):
    data = bytearray(wire.frames(*message))
    data[where % len(data)] ^= change
    outcome = read(make(), bytes(data), end)
    check_bill(outcome)
    assert not isinstance(outcome, Answer)


PLACES = [
    (index, name, path)
    for index, event in enumerate(RICH)
    for name, payload in event.items()
    for path in paths(payload)
]


def damaged(place: Any, change: Any) -> bytes:
    """Return the rich stream with one payload changed."""
    index, name, path = place
    frames = [wire.frame(event) for event in RICH]
    frames[index] = wire.named(name, change(RICH[index][name], path))
    return b"".join(frames)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), JUNK, ENDS)
def test_junk_in_any_place_never_raises_and_never_changes_the_bill_elsewhere(place: Any, junk: Any, end: End):
    data = damaged(place, lambda payload, path: spelled(replaced(payload, path, junk)))
    outcome, snapshot, _, _ = everything(make, [data], end)
    check_bill(outcome)
    if junk not in UNREADABLE and "usage" not in place[2]:
        assert figures(snapshot.usage) == BILL


COUNTERS = [place for place in PLACES if "usage" in place[2] and place[2][-1] != "usage"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COUNTERS), JUNK.filter(lambda junk: counter(junk) is None))
def test_an_odd_figure_counts_as_one_that_was_not_told(place: Any, junk: Any):
    if junk in UNREADABLE or junk in ("raw:longer-than-int64", "raw:long"):
        return
    odd = damaged(place, lambda payload, path: spelled(replaced(payload, path, junk)))
    gone = damaged(place, without)
    assert everything(make, [odd])[:3] == everything(make, [gone])[:3]


DOCUMENT = json.loads(
    wire.document(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"text": "Hello"},
        {"toolUse": {"toolUseId": "c", "name": "look", "input": {"a": 1}}},
        reason="tool_use",
        usage=USAGE,
    )
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
    told_at = data.index(b'"usage"') + len(b'"usage": ') + len(json.dumps(USAGE))
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
    for start in (b"", b"{", wire.frames(wire.START), wire.frames(wire.text(0, "a"))[:40]):
        accumulator = make()
        accumulator.feed(start + data)
        check_bill(accumulator.finish(ending(end)))
    check_bill(read(make(), wire.named("contentBlockDelta", data), end))


# Hostile texts


def test_a_character_split_over_two_deltas_is_one():
    accumulator = make()
    outcome = answer(accumulator, wire.stream(wire.text_block(0, f"a{HIGH}", f"{LOW}b")))
    assert outcome.text == joined_text(accumulator.drain()) == "a😀b"


def test_half_a_character_is_replaced_when_its_block_ends():
    accumulator = make()
    outcome = answer(accumulator, wire.stream(wire.text_block(0, f"a{HIGH}"), wire.text_block(1, f"{LOW}b")))
    assert outcome.text == joined_text(accumulator.drain()) == "a\ufffd\ufffdb"


def test_half_characters_never_leave_in_any_text():
    odd = f"x{HIGH}"
    blocks = [
        wire.reasoning_block(0, odd, signed=odd),
        wire.tool_block(1, odd, '{"a":"', odd, '"}', toolUseId=odd),
        wire.tool_block(2, odd, type="server_tool_use"),
        [wire.reasoning(3, redactedContent=odd), wire.closed(3)],
        [*wire.text_block(4, odd)[:-1], wire.delta(4, citation={odd: odd}), wire.closed(4)],
    ]
    events = wire.message(*blocks, reason=odd)
    for data in (wire.frames(*events), wire.frames(*events[:-1]), wire.exception("x", odd)):
        accumulator = make()
        accumulator.feed(data)
        said = (repr(accumulator.finish(ending())), repr(accumulator.snapshot()), repr(accumulator.drain()))
        for text in said:
            assert "\\ud83d" not in text.replace("\\\\ud83d", "")  # its JSON escape is well-formed


@pytest.mark.parametrize("place", ["input", "name", "toolUseId", "type", "unknown"])
def test_no_depth_of_nesting_raises(place: str):
    for depth in critical_depths():
        opened = wire.opened(
            0, **({} if place == "name" else {place: "@"}), **({"name": "@"} if place == "name" else {})
        )
        payload = json.dumps(opened["contentBlockStart"]).replace('"@"', nest(depth))
        start, end = wire.frames(wire.START), wire.frames(wire.stopped("tool_use"), wire.metadata())
        accumulator = make()
        accumulator.feed(start + wire.named("contentBlockStart", payload.encode()) + end)
        outcome = accumulator.finish(ending())
        assert figures(outcome.usage) == (12, 20, None, None, None)
        accumulator.snapshot()


def test_forced_arguments_nested_deeply_are_judged_and_never_raise():
    expect = Expectation(schema_check=lambda document: None, forced_tool=True)
    for depth in (128, 129, 5000, 200_000):
        block = wire.tool_block(0, FORCED_TOOL, nest(depth))
        outcome = read(BedrockAccumulator(expect), wire.stream(block, reason="tool_use"))
        assert isinstance(outcome, Answer) == (depth <= 128)


def test_a_hundred_thousand_events_cost_linear_time():
    # Quadratic time would be minutes, and the time limit of a test is seconds.
    accumulator = make()
    accumulator.feed(wire.frames(wire.START))
    chunk = wire.frames(wire.text(0, "x")) * 1000
    for _ in range(100):
        accumulator.feed(chunk)
    assert len(accumulator.snapshot().text) == 100_000


def test_configured_keys_are_scrubbed_before_words_are_cut():
    key = "key-" + "k" * 60
    frame = wire.exception(f"validation-{key}", f"your key {key} is wrong")
    for data in (frame, wire.frames(wire.START, wire.text(0, "a")) + frame):
        accumulator = BedrockAccumulator(scrub=lambda text: text.replace(key, "[redacted]"))
        outcome = read(accumulator, data)
        assert not isinstance(outcome, Answer)
        assert "kkk" not in outcome.message + (outcome.provider_code or "")
