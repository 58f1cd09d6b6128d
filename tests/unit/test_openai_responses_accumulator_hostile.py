"""Responses that were made to break a reader: half characters, huge numbers, deep nesting, endless everything."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import End, Kind
from tests.support import responses_events as wire
from tests.support.json_damage import critical_depths, nest
from tests.support.wire_bytes import answer, ending, failed, frame, joined_text, read, sse

HIGH, LOW = "\ud83d", "\ude00"


def test_a_character_split_over_two_deltas_or_parts_is_one():
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    assert (
        answer(accumulator, wire.stream(f"a{HIGH}", f"{LOW}b")).text
        == joined_text(accumulator.drain())
        == "a😀b"
    )
    whole = answer(OpenAIResponsesAccumulator(), wire.document(wire.message(f"a{HIGH}", f"{LOW}b")))
    assert whole.text == "a😀b"


def test_a_whole_text_does_not_follow_half_of_its_own_delta():
    events = [
        wire.added(0, wire.message()),
        wire.text(0, HIGH),
        wire.text_done(0, f"{HIGH}{LOW}"),
        wire.ended(),
    ]
    assert answer(OpenAIResponsesAccumulator(), sse(*events)).text == "\ufffd"


def test_half_characters_never_leave_in_any_text():
    odd = f"x{HIGH}"
    items = [
        wire.reasoning(odd),
        wire.message(odd),
        wire.call(odd, f'{{"a":"{odd}"}}', odd),
        wire.custom_call(odd, odd),
    ]
    hosted = {"type": f"{odd}_call", "id": odd, "status": odd}
    last = wire.ended(
        *items, hosted, id=odd, model=odd, service_tier=odd, tool_usage={odd: {"num_requests": 1}}
    )
    streamed = [event for index, item in enumerate(items) for event in wire.call_events(index, item, odd)]
    for data in (
        sse(last),
        sse(*streamed, wire.text(9, odd), wire.ended()),
        sse(*streamed),
        wire.document(*items),
    ):
        accumulator = OpenAIResponsesAccumulator(deltas=True)
        accumulator.feed(data)
        said = (repr(accumulator.finish(ending())), repr(accumulator.snapshot()), repr(accumulator.drain()))
        for text in said:
            assert "\\ud83d" not in text.replace("\\\\ud83d", "")  # its JSON escape is well-formed


def test_half_characters_in_an_error_are_replaced():
    for events in ([wire.error(odd := f"x{HIGH}", odd)], [wire.text(0, "a"), wire.error(odd)]):
        outcome = failed(OpenAIResponsesAccumulator(), sse(*events))
        (outcome.message + (outcome.provider_code or "")).encode()
    failing = wire.ended(status="failed", error={"code": odd, "message": odd})
    (failed(OpenAIResponsesAccumulator(), sse(failing)).message).encode()


@pytest.mark.parametrize(
    "literal", ["1e999", "NaN", "-Infinity", "9" * 10_000, "-1", "true", "[[]]", '"\\ud83d"']
)
def test_numbers_that_no_counter_can_hold_cost_nothing_else(literal: str):
    usage = (
        f'{{"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {{"cached_tokens": {literal}}}}}'
    )
    data = frame(
        json.dumps(wire.ended(wire.message("x"), usage="@")).replace('"@"', usage).encode(),
        "response.completed",
    )
    told = answer(OpenAIResponsesAccumulator(), data).usage
    assert told is not None
    assert (told.input_tokens, told.output_tokens) == (7, 3)
    assert told.cache_read_tokens in (None, 2**63 - 1)


@pytest.mark.parametrize(
    "place", ["arguments", "name", "call_id", "type", "content", "summary", "phase", "unknown"]
)
def test_no_depth_of_nesting_raises(place: str):
    for depth in critical_depths():
        for event in (
            wire.ended({**wire.call(), place: "@"}),
            wire.item_done(0, {**wire.call(), place: "@"}),
        ):
            data = frame(json.dumps(event).replace('"@"', nest(depth)).encode(), event["type"])
            accumulator = OpenAIResponsesAccumulator(deltas=True)
            outcome = read(accumulator, data)
            accumulator.snapshot()
            assert isinstance(outcome, Answer | Failure)


def test_arguments_nested_too_deeply_to_be_written_are_unusable_and_never_empty():
    for depth in critical_depths():
        data = wire.document(wire.call(arguments="@")).replace(b'"@"', nest(depth).encode())
        outcome = read(OpenAIResponsesAccumulator(), data)
        if isinstance(outcome, Answer):
            assert (depth <= 128, outcome.tool_calls[0].arguments_json) == (True, nest(depth))
        else:
            assert outcome.kind in (Kind.UNUSABLE, Kind.UNACCOUNTED, Kind.INTERRUPTED)


@pytest.mark.parametrize("event", [wire.text(0, "x"), wire.added(0, wire.message()), wire.created()])
def test_a_hundred_thousand_events_cost_linear_time(event: dict[str, object]):
    accumulator = OpenAIResponsesAccumulator()
    chunk = frame(event) * 1000
    for _ in range(100):
        accumulator.feed(chunk)
    assert failed(accumulator, wire.stream("x")[:0], End.RESET).usage is None


def test_a_body_of_one_byte_reads_costs_linear_time():
    accumulator = OpenAIResponsesAccumulator()
    document = wire.document(wire.message("x" * 300_000))
    for offset in range(len(document)):
        accumulator.feed(document[offset : offset + 1])
    assert len(answer(accumulator, b"").text) == 300_000


def test_words_of_the_provider_are_cut_in_every_message():
    long = "x" * 100_000
    for data in (
        sse(wire.error(long, long)),
        sse(wire.text(0, "a"), wire.error(long)),
        sse(wire.ended(status="failed", error={"code": long, "message": long})),
        wire.document(status=long),
        wire.document(wire.call(long, "{")),
    ):
        outcome = failed(OpenAIResponsesAccumulator(), data)
        assert len(outcome.message) < 350
        assert len(outcome.provider_code or "") <= 64


def test_configured_keys_are_scrubbed_before_words_are_cut():
    key = "sk-" + "k" * 60
    failing = wire.ended(status="failed", error={"code": f"bad-{key}", "message": key})
    for events in ([wire.error(f"invalid-{key}", key)], [wire.text(0, "a"), wire.error(key)], [failing]):
        accumulator = OpenAIResponsesAccumulator(scrub=lambda text: text.replace(key, "[redacted]"))
        outcome = failed(accumulator, sse(*events))
        assert "kkk" not in outcome.message + (outcome.provider_code or "")
