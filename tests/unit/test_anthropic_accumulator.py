"""The Messages API read event by event: what a stream says, and what it does not."""

from __future__ import annotations

import json

from modelmeter_server.core.accumulators import AnthropicAccumulator, Snapshot
from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, Finish
from modelmeter_server.core.outcomes import Certainty, End, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import anthropic_events as wire
from tests.support.wire_bytes import answer, ending, failed, frame, read, sse

FORCED = Expectation(forced_tool=True)


def known(*events: object, expectation: Expectation = FREE_TEXT) -> Snapshot:
    """Return what is known after the events, the stream still open."""
    accumulator = AnthropicAccumulator(expectation)
    accumulator.feed(sse(*events))
    return accumulator.snapshot()


def test_a_whole_stream_rebuilds_the_message():
    outcome = answer(AnthropicAccumulator(), wire.stream(wire.text_block(0, "Hello", " you"), output=5))
    assert (outcome.text, outcome.stop_reason, outcome.finish) == ("Hello you", "end_turn", Finish.STOP)
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (12, 5)
    assert (outcome.certainty, outcome.truncated) == (Certainty.EXACT, False)
    assert (outcome.model_served, outcome.provider_response_id) == ("m-1", "msg_1")
    assert (outcome.tool_calls, outcome.continuation, outcome.structured_json) == ((), None, None)


def test_usage_is_known_the_moment_generation_starts():
    before = known(wire.PING)
    assert (before.usage, before.started, before.certainty) == (None, False, Certainty.UNKNOWN)
    after = known(wire.PING, wire.start())
    assert after.usage is not None
    assert (after.usage.input_tokens, after.started, after.certainty) == (12, True, Certainty.AT_LEAST)


def test_cumulative_output_counts_are_not_summed():
    events = [wire.start(), *(wire.ended(None, {"output_tokens": told}) for told in (4, 9, 15))]
    usage = known(*events).usage
    assert usage is not None
    assert usage.output_tokens == 15


def test_a_partial_usage_object_does_not_zero_what_is_already_known():
    usage = known(wire.start(), wire.ended("end_turn", {"output_tokens": 40})).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (12, 40)


def test_cached_tokens_are_added_back_into_the_input_count():
    told = {"input_tokens": 5, "cache_creation_input_tokens": 70, "cache_read_input_tokens": 900}
    usage = known(wire.start(told)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_write_tokens, usage.cache_read_tokens) == (975, 70, 900)
    assert usage.uncached_input_tokens == 5


def test_a_stream_that_stops_early_is_not_complete():
    events = wire.message(wire.text_block(0, "all of it"))[:-1]
    assert not known(*events).complete
    outcome = failed(AnthropicAccumulator(), sse(*events))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert outcome.partial_text == "all of it"


def test_an_error_event_inside_a_200_is_captured():
    error = known(wire.start(), wire.error("overloaded_error", "Overloaded")).error
    assert error is not None
    assert (error.type, error.message) == ("overloaded_error", "Overloaded")


def test_forced_tool_fragments_are_reassembled_and_parsed():
    block = wire.tool_block(0, FORCED_TOOL, '{"ci', 'ty": "Pa', 'ris"}')
    outcome = answer(AnthropicAccumulator(FORCED), wire.stream(block, reason="tool_use"))
    assert json.loads(outcome.structured_json or "") == {"city": "Paris"}
    assert outcome.text == '{"city": "Paris"}'


def test_another_blocks_fragments_are_not_mixed_into_the_forced_tool():
    mixed = [
        wire.opened(0, "tool_use", name="look"),
        wire.opened(1, "tool_use", name=FORCED_TOOL),
        wire.json_piece(0, '{"q":'),
        wire.json_piece(1, '{"a":'),
        wire.json_piece(0, "1}"),
        wire.json_piece(1, "2}"),
        wire.closed(1),
        wire.closed(0),
    ]
    outcome = answer(AnthropicAccumulator(FORCED), wire.stream(mixed, reason="tool_use"))
    assert outcome.structured_json == '{"a":2}'
    assert [call.arguments_json for call in outcome.tool_calls] == ['{"q":1}']


def test_half_a_tool_argument_is_not_an_answer():
    block = wire.tool_block(0, FORCED_TOOL, '{"city": "Pa')
    outcome = failed(AnthropicAccumulator(FORCED), wire.stream(block, reason="max_tokens"))
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert "length" in outcome.message


def test_thinking_deltas_do_not_become_the_answer():
    blocks = wire.thinking_block(0, "I wonder"), wire.text_block(1, "Yes")
    accumulator = AnthropicAccumulator(deltas=True)
    outcome = answer(accumulator, wire.stream(*blocks))
    assert outcome.text == "Yes"
    assert accumulator.snapshot().reasoning == "I wonder"


def test_unknown_events_and_pings_are_ignored():
    noise = [wire.PING, {"type": "content_block_glow", "index": 0}, {"type": "weather"}, {}, [], 7, None]
    plain = wire.message(wire.text_block(0, "Hello"))
    noisy = [event for each in plain[:-1] for event in (each, *noise)] + plain[-1:]
    assert read(AnthropicAccumulator(), sse(*noisy)) == read(AnthropicAccumulator(), sse(*plain))
    before = known(*noise)
    assert (before.started, before.generated, before.usage) == (False, False, None)


def test_a_malformed_event_does_not_lose_the_rest():
    events = wire.message(wire.text_block(0, "Hello", " you"))
    broken = [frame(event) for event in events]
    broken.insert(4, frame(b'{"type":"content_block_delta","index":0,"delta":{', "content_block_delta"))
    accumulator = AnthropicAccumulator()
    outcome = answer(accumulator, b"".join(broken))
    assert (outcome.text, accumulator.skipped_events) == ("Hello you", 1)


def test_thinking_and_signature_are_reassembled_for_continuation():
    thoughts = wire.thinking_block(0, "first", " then", signed="c2ln")
    block = wire.tool_block(1, "look", '{"q": 1}')
    outcome = answer(AnthropicAccumulator(), wire.stream(thoughts, block, reason="tool_use"))
    assert outcome.text == ""
    assert outcome.continuation is not None
    (turn,) = json.loads(outcome.continuation.state_json)
    assert (outcome.continuation.provider, turn["role"]) == ("anthropic", "assistant")
    assert turn["content"][0] == {"type": "thinking", "thinking": "first then", "signature": "c2ln"}
    assert turn["content"][1]["input"] == {"q": 1}


def test_concurrent_tool_calls_keep_their_own_arguments():
    mixed = [
        wire.opened(1, "tool_use", id="a", name="one"),
        wire.opened(2, "tool_use", id="b", name="two"),
        wire.json_piece(2, '{"b":'),
        wire.json_piece(1, '{"a":'),
        wire.json_piece(2, "2}"),
        wire.json_piece(1, "1}"),
        wire.closed(2),
        wire.closed(1),
    ]
    outcome = answer(AnthropicAccumulator(), wire.stream(mixed, reason="tool_use"))
    calls = [(call.id, call.name, call.arguments_json) for call in outcome.tool_calls]
    assert calls == [("a", "one", '{"a":1}'), ("b", "two", '{"b":2}')]


def test_the_forced_tool_is_not_reported_as_a_tool_call():
    block = wire.tool_block(0, FORCED_TOOL, "{}")
    accumulator = AnthropicAccumulator(FORCED)
    outcome = read(accumulator, wire.stream(block, reason="tool_use"))
    assert isinstance(outcome, Answer)
    assert (outcome.tool_calls, outcome.continuation) == ((), None)
    assert (accumulator.snapshot().tool_calls, accumulator.snapshot().forced_input) == ((), "{}")


def test_the_forced_tools_name_is_an_ordinary_name_when_nothing_was_forced():
    block = wire.tool_block(0, FORCED_TOOL, '{"a":1}')
    outcome = answer(AnthropicAccumulator(), wire.stream(block, reason="tool_use"))
    assert [call.name for call in outcome.tool_calls] == [FORCED_TOOL]


def test_a_truncated_tool_call_is_loud_rather_than_guessed():
    block = wire.tool_block(0, "look", '{"where": "Par')
    outcome = failed(AnthropicAccumulator(), wire.stream(block, reason="max_tokens"))
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert "`look`" in outcome.message
    assert "length" in outcome.message


def test_a_snapshot_tells_everything_at_any_moment():
    seen = known(
        wire.start(),
        *wire.thinking_block(0, "hm"),
        *wire.text_block(1, "so"),
        wire.opened(2, "tool_use", id="c", name="look"),
        wire.json_piece(2, '{"q'),
    )
    assert (seen.started, seen.generated, seen.complete, seen.error) == (True, True, False, None)
    assert (seen.text, seen.reasoning, seen.tool_calls) == ("so", "hm", (("c", "look", '{"q'),))
    assert (seen.forced_input, seen.stop_reason) == (None, None)
    assert (seen.model_served, seen.response_id, seen.certainty) == ("m-1", "msg_1", Certainty.AT_LEAST)


def test_reading_may_stop_at_message_stop_and_what_follows_does_not_matter():
    accumulator = AnthropicAccumulator()
    data = wire.stream(wire.text_block(0, "Hello"))
    accumulator.feed(data)
    assert accumulator.done
    accumulator.feed(sse(wire.error("overloaded_error"), wire.start({"input_tokens": 9999})))
    assert accumulator.finish(ending(End.RESET)) == read(AnthropicAccumulator(), data)
