"""How a Gemini answer ends: at the end of its body, by an error, by a block, by a cut (R-G1, R-E*, R-H6)."""

from __future__ import annotations

from typing import Any

import pytest

from modelmeter_server.core.accumulators import GeminiAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, End, Kind
from modelmeter_server.core.sse import EventTooLarge
from tests.support import gemini_chunks as wire
from tests.support.accumulator_laws import figures
from tests.support.wire_bytes import answer, body, ending, failed, read

HELLO = wire.chunk(wire.text("Hello"))
TOLD = wire.chunk(wire.text("Hello"), told=wire.usage(12, 5))
LAST = wire.chunk(wire.text("!"), finish="STOP", told=wire.USAGE)
PACKS = pytest.mark.parametrize("pack", [wire.sse, wire.array], ids=["events", "array"])


def make(**options: Any) -> GeminiAccumulator:
    return GeminiAccumulator(**options)


def test_a_finish_reason_does_not_end_the_reading():
    accumulator = make()
    accumulator.feed(wire.sse(LAST))
    assert not accumulator.done
    assert not accumulator.awaits_tail
    more = wire.chunk(wire.text(" more"), finish="STOP", told=wire.usage(40, 30))
    got = answer(accumulator, wire.sse(more))
    assert (got.text, figures(got.usage)) == ("! more", (40, 30, None, None, None))


@pytest.mark.parametrize("end", [End.RESET, End.CUT])
def test_a_finish_and_its_usage_then_a_broken_connection_is_interrupted_with_final_figures(end: End):
    got = failed(make(), wire.sse(TOLD, LAST), end)
    assert (got.kind, got.certainty, got.disposition) == (
        Kind.INTERRUPTED,
        Certainty.EXACT,
        Disposition.LANDED,
    )


@pytest.mark.parametrize("end", list(End))
def test_without_a_finish_what_was_told_decides(end: End):
    assert failed(make(), wire.sse(TOLD), end).kind is Kind.INTERRUPTED
    assert failed(make(), wire.sse(TOLD), end).certainty is Certainty.AT_LEAST
    assert failed(make(), wire.sse(HELLO), end).kind is Kind.UNACCOUNTED
    assert failed(make(), b": keep-alive\r\n\r\n", end).kind is Kind.UNAVAILABLE


def test_an_empty_stream_reports_nothing_generated():
    assert not make().snapshot().generated
    got = failed(make(), b"")
    assert (got.kind, got.disposition) == (Kind.UNAVAILABLE, Disposition.DID_NOT_HAPPEN)


def test_a_whole_answer_whose_cost_was_never_told_is_a_completion():
    got = answer(make(), wire.sse(wire.chunk(wire.text("Hello"), finish="STOP")))
    assert (got.certainty, got.usage) == (Certainty.UNKNOWN, None)


@PACKS
@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
def test_a_blocked_prompt_is_refused_with_the_usage_it_names(pack: Any, end: End):
    got = failed(make(), pack(wire.blocked("PROHIBITED_CONTENT", wire.usage(33))), end)
    assert (got.kind, got.code, got.certainty) == (Kind.REFUSED, Code.INVALID_ARGUMENT, Certainty.EXACT)
    assert (figures(got.usage), got.provider_code) == ((33, None, None, None, None), "PROHIBITED_CONTENT")
    silent = failed(make(), pack(wire.blocked()), end)
    assert (silent.kind, silent.certainty, silent.usage) == (Kind.REFUSED, Certainty.NONE, None)


@PACKS
def test_the_name_of_no_block_reason_is_no_proof_that_nothing_was_generated(pack: Any):
    got = failed(make(), pack(wire.blocked("BLOCKED_REASON_UNSPECIFIED")))
    assert got.kind is not Kind.REFUSED
    assert (got.certainty, got.may_have_generated) == (Certainty.UNKNOWN, True)
    assert failed(make(), pack(wire.blocked("OF_TOMORROW"))).kind is Kind.REFUSED


def test_a_block_after_text_is_no_refusal_of_the_prompt():
    got = failed(make(), wire.sse(TOLD, wire.blocked()))
    assert (got.kind, got.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


@PACKS
def test_an_error_before_generation_goes_by_its_code(pack: Any):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
    got = failed(make(), pack(wire.error(429, "RESOURCE_EXHAUSTED", details=[info])))
    assert (got.kind, got.retry_after, got.provider_code) == (Kind.RATE_LIMITED, 34.4, "RESOURCE_EXHAUSTED")
    assert failed(make(), pack(wire.error(503, "UNAVAILABLE"))).kind is Kind.UNAVAILABLE
    assert failed(make(), pack(wire.error(400, "INVALID_ARGUMENT"))).code is Code.INVALID_ARGUMENT


@PACKS
def test_a_wrong_key_is_our_own_affair(pack: Any):
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    got = failed(make(), pack(wire.error(400, "INVALID_ARGUMENT", details=[info])))
    assert (got.kind, got.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)


@PACKS
def test_an_error_after_text_keeps_the_figures_and_wins_over_a_finish(pack: Any):
    error = wire.error(503, "UNAVAILABLE")
    got = failed(make(), pack(TOLD, error))
    assert (got.kind, got.certainty, got.provider_code) == (
        Kind.INTERRUPTED,
        Certainty.AT_LEAST,
        "UNAVAILABLE",
    )
    assert failed(make(), pack(HELLO, error)).kind is Kind.UNACCOUNTED
    assert failed(make(), pack(LAST, error)).certainty is Certainty.EXACT


def test_an_error_written_past_the_events_is_read():
    got = failed(make(), wire.sse(TOLD) + body(wire.error(500, "INTERNAL")) + b"\r\n\r\n")
    assert (got.kind, got.provider_code) == (Kind.INTERRUPTED, "INTERNAL")


@pytest.mark.parametrize("reason", ["SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER", "UNEXPECTED_TOOL_CALL"])
def test_a_safety_stop_is_metered_not_free(reason: str):
    got = failed(make(), wire.stream(wire.call("look", {"a": 1}), finish=reason))
    assert (got.kind, got.certainty, got.provider_code) == (Kind.UNUSABLE, Certainty.EXACT, reason)


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "CONTINUATION"])
def test_truncation_is_a_typed_fact(reason: str):
    got = answer(make(), wire.stream(wire.text("part one"), finish=reason))
    assert (got.truncated, got.text, got.stop_reason) == (True, "part one", reason)


def test_an_empty_answer_is_one_only_when_length_cut_it():
    assert answer(make(), wire.stream(wire.thought("hm"), finish="MAX_TOKENS")).text == ""
    assert failed(make(), wire.stream(wire.thought("hm"))).kind is Kind.UNUSABLE


# One body


def test_a_body_is_the_same_answer_and_the_same_bill_as_a_stream():
    parts = [wire.thought("hm"), wire.text("Hello"), wire.call("look", {"a": 1}, signature="c2ln", id="c1")]
    whole = body(wire.chunk(*parts, finish="STOP", told=wire.USAGE))
    assert answer(make(), whole) == answer(make(), wire.stream(*parts)) == answer(make(), b"[" + whole + b"]")


def test_a_body_without_a_finish_is_interrupted_or_unaccounted():
    assert failed(make(), body(TOLD)).kind is Kind.INTERRUPTED
    assert failed(make(), body(HELLO)).kind is Kind.UNACCOUNTED


@pytest.mark.parametrize("data", [b"{}", b"[]", b"[{}]", b'{"modelVersion":"m-1"}', b"[1, 2]"])
def test_json_that_is_no_answer_is_unusable(data: bytes):
    assert failed(make(), data).kind is Kind.UNUSABLE


def test_a_cut_body_tells_the_figures_that_came_whole():
    data = body(LAST)
    told = data.index(b'"modelVersion"')
    assert failed(make(), data[:told], End.RESET).certainty is Certainty.EXACT
    assert failed(make(), data[: data.index(b'"usageMetadata"') + 20], End.RESET).kind is Kind.UNACCOUNTED


def test_an_array_gives_its_chunks_as_they_come_and_ends_with_its_bracket():
    accumulator = make(deltas=True)
    data = wire.array(TOLD, LAST)
    accumulator.feed(data[: data.index(b",\r\n")])
    assert accumulator.snapshot().text == "Hello"
    assert figures(accumulator.snapshot().usage) == (12, 5, None, None, None)
    for end in (End.CLEAN, End.RESET):
        got = failed(make(), data.rstrip()[:-1], end)
        assert (got.kind, got.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert failed(make(), data, End.RESET).kind is Kind.INTERRUPTED
    assert answer(make(), data).text == "Hello!"


def test_an_array_cut_inside_an_element_tells_what_stood_whole_in_it():
    data = wire.array(HELLO, LAST)
    cut = data[: data.rindex(b'"modelVersion"')]
    got = failed(make(), cut, End.RESET)
    assert (got.kind, got.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert failed(make(), b"[", End.RESET).kind is Kind.UNACCOUNTED


# Limits


@PACKS
def test_a_chunk_over_the_limit_is_a_dead_connection_and_the_chunks_before_it_count(pack: Any):
    accumulator = make(event_limit=300)
    with pytest.raises(EventTooLarge):
        accumulator.feed(pack(TOLD, wire.chunk(wire.text("x" * 400))))
    got = accumulator.finish(ending(End.CUT, cause=Cause.LIMIT))
    assert (got.cause, figures(got.usage)) == (Cause.LIMIT, (12, 5, None, None, None))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "pack", [wire.sse, wire.array, lambda chunk: body(chunk)], ids=["events", "array", "body"]
)
def test_an_answer_of_too_many_parts_is_never_passed_on_in_part(pack: Any):
    parts = [{"x": 1} for _ in range(MAX_PARTS + 1)]
    got = read(make(), pack(wire.chunk(*parts, wire.text("a"), finish="STOP", told=wire.USAGE)))
    assert got.certainty is Certainty.EXACT
    assert got.kind is Kind.INTERRUPTED  # type: ignore[union-attr]
    assert str(MAX_PARTS) in got.message  # type: ignore[union-attr]


def test_any_number_of_chunks_of_text_is_one_part():
    chunks = [wire.chunk(wire.text("a"), wire.thought("b")) for _ in range(3)]
    many = [wire.chunk(wire.text("a"))] * (MAX_PARTS + 5)
    assert answer(make(expectation=FREE_TEXT), wire.sse(*chunks, *many, LAST)).text.endswith("aa!")


def test_a_member_nested_too_deeply_costs_neither_the_finish_nor_the_usage():
    deep = b"[" * 100_000 + b"]" * 100_000
    head = b'{"candidates": [{"finishReason": "MAX_TOKENS"}], "usageMetadata": '
    last = b"data: " + head + body(wire.USAGE) + b', "error": null, "z": ' + deep + b"}\r\n\r\n"
    outcome = answer(make(expectation=FREE_TEXT), wire.sse(HELLO) + last)
    assert (outcome.text, outcome.truncated, outcome.certainty) == ("Hello", True, Certainty.EXACT)
