"""Bytes that were made to break a reader: half characters, huge numbers, deep nesting, endless everything."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.answers import Answer, Expectation, TextDelta
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, End, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import anthropic_events as wire
from tests.support.json_damage import critical_depths, nest
from tests.support.wire_bytes import answer, ending, failed, frame, joined_text, sse

HIGH, LOW = "\ud83d", "\ude00"


def test_a_character_split_over_two_deltas_is_one():
    accumulator = AnthropicAccumulator(deltas=True)
    outcome = answer(accumulator, wire.stream(wire.text_block(0, f"a{HIGH}", f"{LOW}b")))
    assert outcome.text == joined_text(accumulator.drain()) == "a😀b"


def test_half_a_character_is_replaced_when_its_block_ends():
    accumulator = AnthropicAccumulator(deltas=True)
    outcome = answer(accumulator, wire.stream(wire.text_block(0, f"a{HIGH}"), wire.text_block(1, f"{LOW}b")))
    assert outcome.text == joined_text(accumulator.drain()) == "a\ufffd\ufffdb"


def test_a_block_ends_where_its_index_is_used_again():
    accumulator = AnthropicAccumulator(deltas=True)
    blocks = [wire.opened(0), wire.text(0, f"a{HIGH}"), wire.opened(0), wire.text(0, f"{LOW}b")]
    assert (
        answer(accumulator, wire.stream(blocks)).text == joined_text(accumulator.drain()) == "a\ufffd\ufffdb"
    )


def test_half_characters_never_leave_in_any_text():
    odd = f"x{HIGH}"
    blocks = [
        wire.thinking_block(0, odd, signed=odd),
        wire.tool_block(1, odd, '{"a":"', odd, '"}'),
        [wire.opened(2, "tool_use", id=odd, input={odd: odd}), wire.closed(2)],
        [wire.opened(3, "server_tool_use", id=odd, name=odd), wire.closed(3)],
    ]
    events = wire.message(*blocks, reason=odd)
    events[0] = wire.start(id=odd, model=odd)
    for data in (sse(*events), sse(*events[:-1])):
        accumulator = AnthropicAccumulator(deltas=True)
        accumulator.feed(data)
        said = (repr(accumulator.finish(ending())), repr(accumulator.snapshot()), repr(accumulator.drain()))
        for text in said:
            assert "\\ud83d" not in text.replace("\\\\ud83d", "")  # its JSON escape is well-formed


def test_half_a_character_that_is_held_back_is_not_in_a_snapshot():
    accumulator = AnthropicAccumulator(deltas=True)
    accumulator.feed(sse(wire.start(), wire.opened(0), wire.text(0, f"a{HIGH}")))
    assert accumulator.snapshot().text == "a"
    assert accumulator.drain() == [TextDelta("a")]


def test_half_characters_in_an_error_are_replaced():
    for events in ([wire.error(f"overloaded{HIGH}", HIGH)], [wire.start(), wire.error(f"x{HIGH}")]):
        outcome = failed(AnthropicAccumulator(), sse(*events))
        (outcome.message + (outcome.provider_code or "")).encode()


@pytest.mark.parametrize(
    "literal", ["1e999", "NaN", "-Infinity", "9" * 10_000, "9" * 40, "-1", "1.5", "true", "[[]]"]
)
def test_numbers_that_no_counter_can_hold_cost_nothing_else(literal: str):
    usage = f'{{"input_tokens": {literal}, "cache_read_input_tokens": 7, "output_tokens": 3}}'
    data = frame(json.dumps(wire.start("@")).replace('"@"', usage).encode(), "message_start")
    usage_told = failed(AnthropicAccumulator(), data).usage
    assert usage_told is not None
    assert (usage_told.cache_read_tokens, usage_told.output_tokens) == (7, 3)
    assert usage_told.input_tokens in (7, 2**63 - 1)


@pytest.mark.parametrize("place", ["input", "name", "id", "type", "text", "citations", "unknown"])
def test_no_depth_of_nesting_raises(place: str):
    for depth in critical_depths():
        opened = wire.opened(0, "tool_use")
        opened["content_block"][place] = "@"
        block = json.dumps(opened).replace('"@"', nest(depth))
        start, stop = sse(wire.start()), sse(wire.ended("tool_use", {"output_tokens": 4}), wire.STOP)
        accumulator = AnthropicAccumulator(deltas=True)
        outcome = _finished(accumulator, start + frame(block.encode(), "content_block_start") + stop)
        assert outcome.usage is not None
        assert outcome.usage.output_tokens == 4
        accumulator.snapshot()


def _finished(accumulator: AnthropicAccumulator, data: bytes) -> Answer | Failure:
    accumulator.feed(data)
    return accumulator.finish(ending())


def test_arguments_nested_too_deeply_to_be_written_are_unusable_and_never_empty():
    for depth in critical_depths():
        block = json.dumps(wire.opened(0, "tool_use", input="@")).replace('"@"', nest(depth))
        data = sse(wire.start()) + frame(block.encode(), "content_block_start") + sse(wire.ended(), wire.STOP)
        outcome = _finished(AnthropicAccumulator(), data)
        if isinstance(outcome, Answer):  # read as an answer: then with its arguments
            assert (depth <= 128, len(outcome.tool_calls[0].arguments_json)) == (True, 2 * depth + 1)
        else:
            assert outcome.kind is Kind.UNUSABLE


def test_forced_arguments_nested_deeply_are_judged_and_never_raise():
    expect = Expectation(schema_check=lambda document: None, forced_tool=True)
    for depth in (128, 129, 5000, 200_000):
        block = wire.tool_block(0, FORCED_TOOL, nest(depth))
        outcome = _finished(AnthropicAccumulator(expect), wire.stream(block, reason="tool_use"))
        assert isinstance(outcome, Answer) == (depth <= 128)


def test_a_blank_start_without_end_costs_linear_time():
    # Sixty thousand reads: quadratic time would be minutes, and the time limit of a test is seconds.
    accumulator = AnthropicAccumulator()
    for _ in range(60_000):
        accumulator.feed(b" \n" * 50)
    assert failed(accumulator, wire.stream(), End.RESET).kind is Kind.UNUSABLE


def test_a_blank_start_hides_no_document():
    document = wire.document({"type": "text", "text": "Hello"})
    for pieces in (
        [b" ", b"\r\n", b"\t", document],
        [b"\xef", b"\xbb", b"\xbf", b" ", document],
        [b" \n" + document],
    ):
        assert answer(AnthropicAccumulator(), pieces).text == "Hello"


@pytest.mark.parametrize("name", ["message_delta", "content_block_delta", "content_block_start"])
def test_a_hundred_thousand_events_cost_linear_time(name: str):
    told = {
        "message_delta": {"type": name, "usage": {"server_tool_use": {"a": 1}, "output_tokens": 5}},
        "content_block_delta": wire.text(0, "x"),
        "content_block_start": wire.opened(0),
    }[name]
    accumulator = AnthropicAccumulator()
    accumulator.feed(sse(wire.start()))
    chunk = frame(told) * 1000
    for _ in range(100):
        accumulator.feed(chunk)
    assert failed(accumulator, b"").kind is Kind.INTERRUPTED


def test_counters_under_ever_new_names_cost_linear_time():
    accumulator = AnthropicAccumulator()
    for batch in range(60):
        names = [{"server_tool_use": {f"tool_{batch}_{n}": n + 1}} for n in range(1000)]
        accumulator.feed(sse(*(wire.ended(None, usage) for usage in names)))
    accumulator.feed(sse(wire.ended(None, {"output_tokens": 5})))
    usage = accumulator.snapshot().usage
    assert usage is not None
    assert len(usage.hosted_tool_requests) == 60_000


def test_words_of_the_provider_are_cut_in_every_message():
    long = "x" * 100_000
    events = [wire.error(long), wire.start(), wire.error(long)]
    for outcome in (
        failed(AnthropicAccumulator(), sse(events[0])),
        failed(AnthropicAccumulator(), sse(*events[1:])),
        failed(AnthropicAccumulator(), wire.stream(reason=long)),
        failed(AnthropicAccumulator(), wire.stream(wire.tool_block(0, long, "{"), reason="tool_use")),
    ):
        assert len(outcome.message) < 300
        assert len(outcome.provider_code or "") <= 64


def test_configured_keys_are_scrubbed_before_words_are_cut():
    key = "sk-" + "k" * 60
    event = wire.error(f"invalid-{key}", f"your key {key} is wrong")
    for events in ([event], [wire.start(), event]):
        accumulator = AnthropicAccumulator(scrub=lambda text: text.replace(key, "[redacted]"))
        outcome = failed(accumulator, sse(*events))
        assert "kkk" not in outcome.message + (outcome.provider_code or "")


def test_a_member_nested_too_deeply_costs_neither_the_stop_reason_nor_the_usage_nor_the_end():
    deep = b"[" * 100_000 + b"]" * 100_000
    ended = b'event: message_delta\ndata: {"delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":700},"z":'
    stop = b'event: message_stop\ndata: {"type":"message_stop","z":'
    stream = sse(wire.start(), *wire.text_block(0, "x")) + ended + deep + b"}\n\n" + stop + deep + b"}\n\n"
    outcome = answer(AnthropicAccumulator(), stream)
    assert outcome.usage is not None
    assert (outcome.usage.output_tokens, outcome.truncated) == (700, True)


def test_a_body_of_a_million_blocks_is_read_no_further_than_the_limit():
    head, bracket, rest = wire.document({"type": "text", "text": "x"}).partition(b"[")
    body = head + bracket + b"0," * 10**6 + rest
    accumulator = AnthropicAccumulator()
    outcome = failed(accumulator, body)
    assert (outcome.kind, outcome.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
    assert "more than 10000 parts" in outcome.message
    assert accumulator._parts == MAX_PARTS + 1
