"""How an answer of Bedrock can end: cut, with an exception inside, damaged, or as no stream at all."""

from __future__ import annotations

import pytest

from modelmeter_server.core.accumulators import BedrockAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, End, Kind, Stage
from modelmeter_server.core.sse import EventTooLarge
from tests.support import bedrock_events as wire
from tests.support.accumulator_laws import check_bill
from tests.support.wire_bytes import Json, answer, body, ending, failed, read

BOTH = pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
TEXT = wire.text_block(0, "Hello")
WHOLE = wire.message(TEXT)
GENERATED = wire.frames(wire.START, *TEXT)


def cut(data: bytes, end: End = End.CLEAN) -> Failure:
    outcome = failed(BedrockAccumulator(), data, end)
    check_bill(outcome)
    return outcome


@BOTH
def test_the_start_of_a_message_proves_nothing(end: End):
    outcome = cut(wire.frames(wire.START), end)
    assert (outcome.kind, outcome.disposition) == (Kind.UNAVAILABLE, Disposition.DID_NOT_HAPPEN)


@BOTH
@pytest.mark.parametrize(
    "event",
    [
        wire.opened(0),
        wire.text(0, "a"),
        wire.text(0, ""),
        wire.reasoning(0, text="hm"),
        wire.closed(0),
        wire.stopped(),
    ],
    ids=["start", "text", "empty text", "reasoning", "stop", "message stop"],
)
def test_any_block_or_stop_proves_generation(event: Json, end: End):
    outcome = cut(wire.frames(wire.START, event), end)
    assert (outcome.kind, outcome.certainty, outcome.usage) == (Kind.UNACCOUNTED, Certainty.UNKNOWN, None)


@BOTH
def test_the_stop_without_the_metadata_is_no_answer_and_not_paid_for_yet(end: End):
    outcome = cut(wire.frames(*WHOLE[:-1]), end)
    assert (outcome.kind, outcome.certainty, outcome.estimated_output_tokens) == (
        Kind.UNACCOUNTED,
        Certainty.UNKNOWN,
        2,
    )


def test_the_wait_for_the_metadata_is_no_short_tail():
    accumulator = BedrockAccumulator()
    accumulator.feed(wire.frames(*WHOLE[:-1]))
    assert not accumulator.awaits_tail


@BOTH
def test_metadata_without_a_stop_is_interrupted_with_a_lower_bound(end: End):
    outcome = cut(wire.frames(wire.START, *TEXT, wire.metadata()), end)
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_reading_ends_with_the_metadata_whatever_follows():
    accumulator = BedrockAccumulator()
    accumulator.feed(wire.frames(*WHOLE) + wire.exception("throttlingException"))
    assert accumulator.done
    assert answer(accumulator, b"", End.RESET).text == "Hello"


# Exceptions


@pytest.mark.parametrize(
    ("type", "kind", "code"),
    [
        ("throttlingException", Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
        ("validationException", Kind.REFUSED, Code.INVALID_ARGUMENT),
        ("internalServerException", Kind.UNAVAILABLE, Code.UNAVAILABLE),
        ("modelStreamErrorException", Kind.UNAVAILABLE, Code.UNAVAILABLE),
        ("serviceUnavailableException", Kind.UNAVAILABLE, Code.UNAVAILABLE),
        ("accessDeniedException", Kind.REFUSED, Code.FAILED_PRECONDITION),
        ("ofTomorrowException", Kind.UNAVAILABLE, Code.UNAVAILABLE),
        ("", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ],
)
def test_an_exception_before_generation_goes_by_its_type(type: str, kind: Kind, code: Code):
    for start in (b"", wire.frames(wire.START)):
        outcome = cut(start + wire.exception(type))
        assert (outcome.kind, outcome.code, outcome.provider_code) == (kind, code, type or "error")


@BOTH
@pytest.mark.parametrize("type", ["throttlingException", "validationException", "modelStreamErrorException"])
def test_an_exception_after_generation_goes_by_the_ladder_whatever_its_type(type: str, end: End):
    outcome = cut(GENERATED + wire.exception(type, originalStatusCode=400), end)
    assert (outcome.kind, outcome.provider_code, outcome.cause) == (Kind.UNACCOUNTED, type, Cause.PROVIDER)
    told = cut(wire.frames(wire.START, *TEXT, wire.metadata()) + wire.exception(type), end)
    assert (told.kind, told.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_an_exception_after_the_stop_wins_over_it():
    assert cut(wire.frames(*WHOLE[:-1]) + wire.exception("internalServerException")).kind is Kind.UNACCOUNTED


def test_the_message_of_a_validation_exception_is_told_and_no_others():
    assert "too long" in cut(wire.exception("validationException", "Input is too long")).message
    assert "secret" not in cut(wire.exception("throttlingException", "secret")).message


def test_an_exception_whose_payload_is_broken_is_one_by_its_headers():
    headers = {":message-type": "exception", ":exception-type": "throttlingException"}
    assert cut(wire.raw_frame(headers, b"{broken")).kind is Kind.RATE_LIMITED


def test_an_error_frame_is_an_error_by_its_code():
    outcome = cut(wire.error("ThrottlingError"))
    assert (outcome.kind, outcome.provider_code) == (Kind.RATE_LIMITED, "ThrottlingError")
    assert cut(GENERATED + wire.error("InternalError")).kind is Kind.UNACCOUNTED


# Damage


def test_a_bad_checksum_is_a_dead_connection():
    stream = wire.frames(*WHOLE)
    for where, kind in ((20, Kind.UNAVAILABLE), (len(GENERATED) + 20, Kind.UNACCOUNTED)):
        damaged = bytearray(stream)
        damaged[where] ^= 1
        accumulator = BedrockAccumulator()
        accumulator.feed(bytes(damaged))
        assert accumulator.done
        outcome = failed(accumulator, b"", End.CLEAN)
        check_bill(outcome)
        assert (outcome.kind, outcome.cause, outcome.retryable) == (kind, Cause.NETWORK, False)
        assert "checksum" in outcome.message


def test_frames_with_a_broken_payload_are_skipped_and_counted():
    events = [wire.frame(event) for event in WHOLE]
    accumulator = BedrockAccumulator()
    data = events[0] + wire.named("contentBlockDelta", b"{broken") + b"".join(events[1:])
    assert answer(accumulator, data).text == "Hello"
    assert accumulator.skipped_events == 1
    assert cut(wire.frames(wire.START) + wire.named("contentBlockDelta", b"{broken")).kind is Kind.UNACCOUNTED


@pytest.mark.parametrize("name", ["messageStop", "metadata"])
def test_broken_data_makes_no_answer_whatever_its_name(name: str):
    events = {next(iter(event)): wire.frame(event) for event in WHOLE}
    events[name] = wire.named(name, b"{broken")
    assert cut(b"".join(events.values())).kind in (Kind.UNACCOUNTED, Kind.INTERRUPTED)


def test_a_frame_over_the_limit_is_told_after_the_frames_before_it():
    accumulator = BedrockAccumulator(event_limit=200)
    with pytest.raises(EventTooLarge, match="200"):
        accumulator.feed(GENERATED + wire.frames(wire.text(0, "x" * 200)))
    assert accumulator.snapshot().text == "Hello"


def test_more_blocks_than_an_answer_may_have_end_the_reading():
    accumulator = BedrockAccumulator()
    accumulator.feed(wire.frames(*(wire.opened(index) for index in range(MAX_PARTS + 1))))
    assert accumulator.done
    outcome = failed(accumulator, b"")
    assert (outcome.kind, outcome.cause) == (Kind.UNACCOUNTED, Cause.LIMIT)


def test_a_document_of_more_blocks_than_an_answer_may_have_is_none_and_keeps_its_bill():
    outcome = failed(BedrockAccumulator(), wire.document(*[{"text": "x"}] * (MAX_PARTS + 1)))
    assert (outcome.kind, outcome.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
    assert outcome.certainty is Certainty.EXACT


@pytest.mark.parametrize("piece", [{"citation": {"title": "t"}}, {"toolResult": [{"text": "x"}]}])
def test_more_pieces_than_an_answer_may_have_end_the_reading(piece: Json):
    accumulator = BedrockAccumulator()
    accumulator.feed(wire.frames(wire.START, *[wire.delta(0, **piece)] * (MAX_PARTS + 1)))
    assert accumulator.done
    assert failed(accumulator, b"").cause is Cause.LIMIT


def test_a_member_nested_too_deeply_costs_neither_the_stop_reason_nor_the_usage():
    deep = b"[" * 100_000 + b"]" * 100_000
    events = wire.frames(wire.START, *wire.text_block(0, "x"))
    stop = wire.named("messageStop", b'{"stopReason": "end_turn", "additional": ' + deep + b"}")
    told = wire.named("metadata", b'{"usage": ' + body(wire.USAGE) + b', "trace": ' + deep + b"}")
    assert answer(BedrockAccumulator(), events + stop + told).certainty is Certainty.EXACT


# Other shapes


@pytest.mark.parametrize(
    "text", [b"<html>busy</html>", b"event: x\ndata: {}\n\n", b"x"], ids=["page", "events", "x"]
)
@BOTH
def test_what_is_neither_frames_nor_json_was_accepted_by_someone(text: bytes, end: End):
    outcome = cut(text, end)
    assert (outcome.kind, outcome.stage) == (Kind.UNACCOUNTED, Stage.OUTPUT)


@BOTH
def test_nothing_at_all_is_unavailable(end: End):
    for data in (b"", b" \n", wire.frames(wire.START)[:7]):
        assert cut(data, end).kind is Kind.UNAVAILABLE


def test_a_blank_start_hides_no_document():
    for pieces in (
        [b" ", b"\r\n" * 20, wire.document({"text": "Hello"})],
        [b"\xef\xbb", b"\xbf" + wire.document({"text": "Hello"})],
    ):
        assert answer(BedrockAccumulator(), pieces).text == "Hello"


@pytest.mark.parametrize("name", ["message", "Message"])
def test_an_error_document_in_a_200_goes_by_its_type(name: str):
    document = {"__type": "com.amazon.coral.service#ThrottlingException", name: "slow down"}
    assert cut(body(document)).kind is Kind.RATE_LIMITED
    assert cut(body({name: "something"})).kind is Kind.UNAVAILABLE
    assert cut(body({"error": {"type": "validation", "message": "no"}})).kind is Kind.REFUSED


def test_a_document_that_is_no_answer_is_unusable_with_its_bill():
    told = failed(BedrockAccumulator(), body({"message": "?", "stopReason": "end_turn", "usage": wire.USAGE}))
    assert (told.kind, told.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert cut(body({"output": None})).kind is Kind.UNUSABLE


def test_a_cut_document_has_the_bill_that_came_whole():
    data = wire.document({"text": "Hello"})
    assert read(BedrockAccumulator(), data[:-1], End.RESET).certainty is Certainty.EXACT
    outcome = cut(data[: data.index(b'"usage"')], End.RESET)
    assert (outcome.kind, outcome.partial_text) == (Kind.UNACCOUNTED, "Hello")


def test_usage_before_the_stop_reason_of_a_cut_document_is_a_lower_bound():
    data = body({"usage": wire.USAGE, "stopReason": "end_turn", "x": 1})
    assert failed(BedrockAccumulator(), data[:-4], End.RESET).certainty is Certainty.AT_LEAST


def test_who_cut_it_decides_the_code_and_never_the_bill():
    for cause, code in ((Cause.DEADLINE, Code.DEADLINE_EXCEEDED), (Cause.CALLER, Code.CANCELLED)):
        outcome = failed(BedrockAccumulator(), GENERATED, ending(End.CUT, cause=cause))
        assert (outcome.kind, outcome.cause, outcome.code) == (Kind.UNACCOUNTED, cause, code)
