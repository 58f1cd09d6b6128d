"""The Responses API read event by event: what a stream says, and what it does not."""

from __future__ import annotations

import pytest

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator, Snapshot
from modelmeter_server.core.answers import FREE_TEXT, Expectation, Finish
from modelmeter_server.core.outcomes import Certainty, End, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import responses_events as wire
from tests.support.wire_bytes import answer, ending, failed, frame, joined_text, read, sse


def known(*events: object, expectation: Expectation = FREE_TEXT) -> Snapshot:
    """Return what is known after the events, the stream still open."""
    accumulator = OpenAIResponsesAccumulator(expectation)
    accumulator.feed(sse(*events))
    return accumulator.snapshot()


def test_a_whole_stream_yields_the_terminal_response_object():
    outcome = answer(OpenAIResponsesAccumulator(), wire.stream("Hello", " you"))
    assert (outcome.text, outcome.stop_reason, outcome.finish) == ("Hello you", "completed", Finish.STOP)
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (30, 8)
    assert (outcome.usage.cache_read_tokens, outcome.usage.reasoning_tokens) == (10, 3)
    assert (outcome.certainty, outcome.truncated) == (Certainty.EXACT, False)
    assert (outcome.model_served, outcome.provider_response_id) == ("m-1", "resp_1")


def test_nothing_before_the_terminal_event_says_what_it_cost():
    events = [wire.created(), wire.in_progress(), *wire.text_events(0, "Hello", " you")]
    for length in range(1, len(events) + 1):
        seen = known(*events[:length])
        assert (seen.usage, seen.certainty) == (None, Certainty.UNKNOWN)
    outcome = failed(OpenAIResponsesAccumulator(), sse(*events))
    assert (outcome.kind, outcome.estimated_output_tokens) == (Kind.UNACCOUNTED, 3)
    assert outcome.provider_response_id == "resp_1"  # so that the cost can be looked up


def test_generation_is_not_claimed_before_any_output():
    queued = wire.event("queued", response=wire.response(status="queued"))
    seen = known(wire.created(), queued, wire.in_progress())
    assert (seen.started, seen.generated, seen.response_id) == (True, False, "resp_1")
    outcome = failed(OpenAIResponsesAccumulator(), sse(wire.created(), queued, wire.in_progress()), End.RESET)
    assert (outcome.kind, outcome.certainty) == (Kind.UNAVAILABLE, Certainty.UNKNOWN)


EVIDENCE = [
    wire.text(0, "x"),
    wire.summary(0, "x"),
    wire.event("reasoning_text.delta", output_index=0, content_index=0, delta="x"),
    wire.event("refusal.delta", output_index=0, content_index=0, delta="I"),
    wire.arguments(0, "{"),
    wire.custom_input(0, "ls"),
    wire.event("mcp_call_arguments.delta", output_index=0, delta="{"),
    wire.event("code_interpreter_call_code.delta", output_index=0, delta="1"),
    wire.event("audio.delta", delta="AAAA"),
    wire.added(0, {"type": "reasoning", "id": "rs_1"}),
    wire.item_done(0, wire.call()),
]


@pytest.mark.parametrize("event", EVIDENCE, ids=lambda event: event["type"])
def test_reasoning_refusal_and_tool_deltas_all_count_as_generation(event: dict[str, object]):
    for data in (frame(event), frame(event, ""), frame(b"{broken", str(event["type"]))):
        accumulator = OpenAIResponsesAccumulator()
        accumulator.feed(sse(wire.created()) + data)
        assert accumulator.generated
        outcome = accumulator.finish(ending(End.RESET))
        assert outcome.certainty is Certainty.UNKNOWN
        assert getattr(outcome, "kind", None) is Kind.UNACCOUNTED


def test_an_incomplete_response_is_terminal_and_carries_usage():
    limit = {"incomplete_details": {"reason": "max_output_tokens"}}
    accumulator = OpenAIResponsesAccumulator()
    outcome = answer(accumulator, sse(*wire.text_events(0, "cut"), wire.ended(status="incomplete", **limit)))
    assert accumulator.done
    assert (outcome.text, outcome.stop_reason) == ("cut", "incomplete:max_output_tokens")
    assert (outcome.truncated, outcome.finish, outcome.certainty) == (True, Finish.LENGTH, Certainty.EXACT)


def test_a_failed_response_is_terminal():
    accumulator = OpenAIResponsesAccumulator()
    accumulator.feed(sse(wire.created(), wire.ended(status="failed", usage=None)))
    assert accumulator.done
    assert accumulator.snapshot().complete


def test_an_error_event_is_captured():
    nested = {"type": "error", "error": {"type": "server_error", "code": "oops", "message": "broke"}}
    for event in (wire.error("oops", "broke"), nested):
        error = known(event).error
        assert error is not None
        assert (error.own_code, error.message) == ("oops", "broke")


def test_unknown_event_types_are_ignored():
    noise: list[object] = [
        wire.event("weather", response={"usage": wire.USAGE}),
        wire.event("output_text.annotation.added", annotation={}),
        wire.event("content_part.added", output_index=0, part={"type": "output_text", "text": "x"}),
        wire.event("mcp_list_tools.failed", error={"type": "server_error"}),
        {"type": "ping"},
        {},
        [],
        None,
    ]
    plain = [wire.created(), *wire.text_events(0, "Hello"), wire.ended(wire.message("Hello"))]
    noisy = [event for each in plain[:-1] for event in (each, *noise)] + plain[-1:]
    assert read(OpenAIResponsesAccumulator(), sse(*noisy)) == read(OpenAIResponsesAccumulator(), sse(*plain))
    assert not known(*noise).generated


def test_a_malformed_event_does_not_lose_the_rest():
    broken = frame(b'{"type":"response.output_text.delta","del', "response.output_text.delta")
    accumulator = OpenAIResponsesAccumulator()
    events = [wire.created(), *wire.text_events(0, "Hello")]
    data = sse(*events) + broken + sse(wire.ended(wire.message("Hello")))
    assert (answer(accumulator, data).text, accumulator.skipped_events) == ("Hello", 1)


def test_a_snapshot_tells_everything_at_any_moment():
    events = [
        wire.created(),
        wire.added(0, {"type": "reasoning"}),
        wire.summary(0, "hm"),
        *wire.text_events(1, "so"),
        wire.added(2, wire.call("look", "", "c")),
        wire.arguments(2, '{"q'),
    ]
    seen = known(*events)
    assert (seen.started, seen.generated, seen.complete, seen.error) == (True, True, False, None)
    assert (seen.text, seen.reasoning, seen.tool_calls) == ("so", "hm", (("c", "look", '{"q'),))
    assert (seen.forced_input, seen.stop_reason, seen.usage) == (None, None, None)
    forced = known(wire.added(0, wire.call(FORCED_TOOL, "")), wire.arguments(0, '{"a'), expectation=_FORCED)
    assert (forced.forced_input, forced.tool_calls) == ('{"a', ())


_FORCED = Expectation(forced_tool=True)


def test_what_follows_the_terminal_event_does_not_matter():
    accumulator = OpenAIResponsesAccumulator()
    data = wire.stream("Hello")
    accumulator.feed(data)
    accumulator.feed(sse(wire.error("server_error"), wire.ended(status="failed", usage=None)))
    assert accumulator.finish(ending(End.RESET)) == read(OpenAIResponsesAccumulator(), data)


def test_commentary_is_reasoning_and_never_the_answer():
    remark = {"type": "message", "phase": "commentary", "content": []}
    events = [
        wire.added(0, remark),
        wire.text(0, "Looking."),
        wire.item_done(0, wire.message("Looking.", phase="commentary")),
        *wire.text_events(1, "Found."),
        wire.ended(wire.message("Looking.", phase="commentary"), wire.message("Found.")),
    ]
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    assert answer(accumulator, sse(*events)).text == joined_text(accumulator.drain()) == "Found."
    assert accumulator.snapshot().reasoning == "Looking."
