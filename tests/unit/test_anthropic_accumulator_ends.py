"""How an Anthropic stream can end: cut, with an error inside, or as something that is no stream at all."""

from __future__ import annotations

import pytest

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, End, Ending, Kind, Stage
from modelmeter_server.core.sse import EventTooLarge
from tests.support import anthropic_events as wire
from tests.support.wire_bytes import answer, ending, failed, frame, read, sse

BOTH = pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
TEXT = wire.text_block(0, "Hello")
WHOLE = wire.message(TEXT)


def cut(*events: object, end: End | Ending = End.CLEAN) -> Failure:
    return failed(AnthropicAccumulator(), sse(*events), end)


@BOTH
def test_without_a_start_nothing_is_known_to_have_happened(end: End):
    outcome = cut(wire.PING, wire.PING, end=end)
    assert (outcome.kind, outcome.certainty) == (Kind.UNAVAILABLE, Certainty.UNKNOWN)
    assert (outcome.disposition, outcome.may_have_generated) == (Disposition.DID_NOT_HAPPEN, True)


@BOTH
def test_after_the_start_it_is_interrupted_with_the_figures_so_far(end: End):
    outcome = cut(wire.start(), end=end)
    assert (outcome.kind, outcome.certainty, outcome.stage) == (
        Kind.INTERRUPTED,
        Certainty.AT_LEAST,
        Stage.OUTPUT,
    )
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (12, 1)
    assert outcome.code is Code.ABORTED


@BOTH
def test_after_a_start_without_figures_it_is_unaccounted(end: End):
    outcome = cut(wire.start(None), *TEXT, end=end)
    assert (outcome.kind, outcome.certainty, outcome.usage) == (Kind.UNACCOUNTED, Certainty.UNKNOWN, None)
    assert (outcome.estimated_output_tokens, outcome.partial_text) == (2, "Hello")


@BOTH
def test_the_stop_reason_alone_makes_no_answer(end: End):
    outcome = cut(*WHOLE[:-1], end=end)
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert outcome.estimated_output_tokens is None


def test_who_cut_it_decides_the_code_and_never_the_bill():
    for cause, code in ((Cause.DEADLINE, Code.DEADLINE_EXCEEDED), (Cause.CALLER, Code.CANCELLED)):
        outcome = cut(wire.start(), end=ending(End.CUT, cause=cause))
        assert (outcome.kind, outcome.cause, outcome.code) == (Kind.INTERRUPTED, cause, code)
        assert outcome.retryable is False


def test_nothing_written_is_unreachable_and_certainly_free():
    outcome = AnthropicAccumulator().finish(ending(End.RESET, stage=Stage.WRITING))
    assert (outcome.certainty, outcome.usage) == (Certainty.NONE, None)
    assert isinstance(outcome, Failure)
    assert outcome.kind is Kind.UNREACHABLE


def test_an_end_marker_without_its_blank_line_counts_at_a_clean_end_only():
    data = sse(*WHOLE).removesuffix(b"\n\n")
    assert answer(AnthropicAccumulator(), data).text == "Hello"
    assert failed(AnthropicAccumulator(), data, End.RESET).certainty is Certainty.EXACT
    assert failed(AnthropicAccumulator(), data[:-1]).kind is Kind.INTERRUPTED


def test_broken_data_makes_no_answer_whatever_its_name():
    data = sse(*WHOLE[:-1]) + frame(b'{"type":"message_st', "message_stop")
    assert failed(AnthropicAccumulator(), data).kind is Kind.INTERRUPTED


@pytest.mark.parametrize(
    "name", ["message_start", "content_block_start", "content_block_delta", "message_delta"]
)
def test_broken_data_is_still_evidence_by_its_name(name: str):
    assert cut(wire.PING).kind is Kind.UNAVAILABLE
    assert failed(AnthropicAccumulator(), frame(b"{", name)).kind is Kind.UNACCOUNTED


ERRORS = [
    ("overloaded_error", Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
    ("rate_limit_error", Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
    ("api_error", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("timeout_error", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("some_new_error", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("invalid_request_error", Kind.REFUSED, Code.INVALID_ARGUMENT),
    ("request_too_large", Kind.REFUSED, Code.INVALID_ARGUMENT),
    ("authentication_error", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("permission_error", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("billing_error", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("not_found_error", Kind.REFUSED, Code.NOT_FOUND),
]


@BOTH
@pytest.mark.parametrize(("type", "kind", "code"), ERRORS)
def test_an_error_before_the_start_goes_by_its_type(type: str, kind: Kind, code: Code, end: End):
    for data in (sse(wire.PING, wire.error(type)), frame(wire.error(type), "")):
        outcome = failed(AnthropicAccumulator(), data, end)
        assert (outcome.kind, outcome.code, outcome.provider_code) == (kind, code, type)
        assert outcome.cause is Cause.PROVIDER
        assert outcome.certainty is (Certainty.UNKNOWN if kind is Kind.UNAVAILABLE else Certainty.NONE)


@pytest.mark.parametrize("type", [type for type, _, _ in ERRORS])
def test_an_error_after_the_start_is_a_landed_call_whatever_its_type(type: str):
    with_figures = cut(wire.start(), wire.error(type))
    assert (with_figures.kind, with_figures.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)
    assert (with_figures.provider_code, with_figures.disposition) == (type, Disposition.LANDED)
    assert cut(wire.start(None), wire.error(type)).kind is Kind.UNACCOUNTED


def test_an_error_before_the_end_marker_wins_over_the_finish_and_keeps_the_bill():
    outcome = cut(*WHOLE[:-1], wire.error("overloaded_error"), wire.STOP)
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert outcome.usage is not None
    assert outcome.usage.output_tokens == 20


def test_the_first_of_two_errors_is_the_one():
    outcome = cut(wire.error("rate_limit_error"), wire.error("api_error"))
    assert (outcome.kind, outcome.provider_code) == (Kind.RATE_LIMITED, "rate_limit_error")


def test_after_an_error_only_a_tail_is_awaited():
    accumulator = AnthropicAccumulator()
    accumulator.feed(sse(wire.start()))
    assert not accumulator.awaits_tail
    accumulator.feed(sse(wire.error("api_error")))
    assert (accumulator.awaits_tail, accumulator.done) == (True, False)


NAMELESS = [
    {"error": {"type": "rate_limit_error", "message": "slow"}},
    {"type": "rate_limit_error", "message": "slow"},
    {"message": "slow", "code": "rate_limit_exceeded"},
    {"error_type": "rate_limit", "error_message": "slow"},
]


@pytest.mark.parametrize("document", NAMELESS)
def test_an_event_named_error_is_one_in_whatever_shape(document: dict[str, object]):
    outcome = failed(AnthropicAccumulator(), frame(document, "error"))
    assert outcome.kind is Kind.RATE_LIMITED


@pytest.mark.parametrize("data", [b"{", b"null", b'"overloaded"', b"[]", b"{}", b"oops"])
def test_an_error_without_a_type_is_kind_error_with_an_empty_message(data: bytes):
    accumulator = AnthropicAccumulator()
    outcome = failed(accumulator, frame(data, "error"))
    assert (outcome.kind, outcome.provider_code) == (Kind.UNAVAILABLE, "error")
    error = accumulator.snapshot().error
    assert error is not None
    assert error.message in ("", "overloaded")


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"type": "overloaded_error"}},
        {"error": "no room", "code": "overloaded"},
        {"error_type": "overloaded_error", "error_message": "no room"},
    ],
)
def test_an_event_without_name_and_type_is_an_error_if_it_holds_one(document: dict[str, object]):
    assert failed(AnthropicAccumulator(), frame(document, "")).kind is Kind.RATE_LIMITED
    assert answer(AnthropicAccumulator(), sse({"error": None}, *WHOLE)).text == "Hello"


def test_the_name_decides_what_an_event_is_and_the_type_only_without_one():
    renamed = [
        frame(event, "ping") if event is WHOLE[3] else frame({**event, "type": "ping"}, event["type"])
        for event in WHOLE
    ]
    assert (
        failed(AnthropicAccumulator(), b"".join(renamed)).kind is Kind.UNUSABLE
    )  # its text was called a ping
    unnamed = b"".join(frame(event, "") for event in WHOLE)
    default = b"".join(frame(event, "message") for event in WHOLE)
    for data in (unnamed, default):
        assert read(AnthropicAccumulator(), data) == read(AnthropicAccumulator(), sse(*WHOLE))


@pytest.mark.parametrize("prefix", [b"", b": connected\n\n"])
def test_an_error_outside_any_event_is_read_as_one(prefix: bytes):
    bare = b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}\n'
    for data in (bare, b"error: " + bare):
        assert failed(AnthropicAccumulator(), prefix + data).kind is Kind.RATE_LIMITED
    late = sse(wire.start()) + bare
    assert failed(AnthropicAccumulator(), late).kind is Kind.INTERRUPTED


def test_an_error_names_its_delay():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    event = wire.error("rate_limit_error", details=[info])
    assert failed(AnthropicAccumulator(), sse(event)).retry_after == 7.0


def test_a_document_that_was_cut_after_its_content_keeps_the_text_and_an_estimate():
    document = wire.document({"type": "text", "text": "eight ch"})
    cut_off = document[: document.index(b'"stop_reason"')]
    outcome = failed(AnthropicAccumulator(), cut_off, End.RESET)
    assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
    assert (outcome.partial_text, outcome.estimated_output_tokens) == ("eight ch", 2)


@pytest.mark.parametrize(
    "page", [b"<html>\n<body>502</body>\n", b"upstream error\r\nlater\r\n", b"dat:\n", b"\xff\xfe\n"]
)
def test_a_page_with_status_200_may_have_generated(page: bytes):
    for end in End:
        for pieces in ([page], [page[i : i + 1] for i in range(len(page))], [b"\r\n \n", page]):
            outcome = failed(AnthropicAccumulator(), pieces, end)
            assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n", b": hello\n\n", b": a\n: b"])
def test_an_empty_200_is_unavailable(data: bytes):
    for end in End:
        outcome = failed(AnthropicAccumulator(), data, end)
        assert (outcome.kind, outcome.certainty) == (Kind.UNAVAILABLE, Certainty.UNKNOWN)


@pytest.mark.parametrize("fragment", [b"event: mess", b"da", b": pi", b":", b" \r\nid", b"error: {"])
def test_a_fragment_that_may_begin_a_field_or_a_comment_says_nothing(fragment: bytes):
    assert failed(AnthropicAccumulator(), fragment, End.RESET).kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("fragment", [b"<htm", b"upstream", b"dates: x", b"errors", b'"half', b"\xff", b"4"])
def test_a_fragment_that_begins_no_field_was_an_answer(fragment: bytes):
    for end in (End.RESET, End.CUT):
        assert failed(AnthropicAccumulator(), fragment, end).kind is Kind.UNACCOUNTED


@pytest.mark.parametrize(
    "body", [b'"sorry"', b"null", b" 42", b"true\n", b"\xef\xbb\xbf-1.5", b'"data: x\\n"']
)
def test_a_json_text_or_number_is_no_answer(body: bytes):
    for pieces in ([body], [body[i : i + 1] for i in range(len(body))]):
        outcome = failed(AnthropicAccumulator(), pieces)
        assert (outcome.kind, outcome.cause) == (Kind.UNUSABLE, Cause.PROVIDER)


@pytest.mark.parametrize(
    "start",
    [
        b'{"type":"error","error":{"type":"overl',
        b'{"error":{"message":"upstr',
        b'{"type":"error","message":"x"',
        b'{"error":"half',
    ],
)
def test_an_error_object_that_was_cut_is_none(start: bytes):
    assert failed(AnthropicAccumulator(), start, End.RESET).kind is Kind.UNACCOUNTED


@pytest.mark.parametrize(
    "whole",
    [
        b'{"type":"error","error":{"type":"overloaded_error"}',
        b'{"error":{"type":"overloaded_error"},"requ',
        b'{"type":"error","code":"overloaded_error"}',
    ],
)
def test_an_error_that_came_whole_before_the_cut_is_one(whole: bytes):
    outcome = failed(AnthropicAccumulator(), whole, End.RESET)
    assert (outcome.kind, outcome.provider_code) == (Kind.RATE_LIMITED, "overloaded_error")


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "par"}]])
def test_an_error_beside_the_content_wins_and_keeps_the_bill(content: list):
    document = wire.document(*content, error={"type": "overloaded_error", "message": "over"})
    cut_off = document[: document.rindex(b"}")]
    for body, end in ((document, End.CLEAN), (document, End.RESET), (cut_off, End.RESET)):
        outcome = failed(AnthropicAccumulator(), body, end)
        assert (outcome.kind, outcome.provider_code) == (Kind.INTERRUPTED, "overloaded_error")
    empty = wire.document({"type": "text", "text": "Hi"}, error={})
    assert answer(AnthropicAccumulator(), empty).text == "Hi"


def test_a_document_that_ends_cleanly_and_is_no_json_is_the_providers_doing():
    outcome = failed(AnthropicAccumulator(), b'{"type":"message","id":', End.CLEAN)
    assert (outcome.kind, outcome.cause) == (Kind.UNACCOUNTED, Cause.PROVIDER)
    assert failed(AnthropicAccumulator(), b'{"type":"message","id":', End.RESET).cause is Cause.NETWORK


def test_an_event_over_the_limit_is_a_dead_connection_and_the_events_before_it_count():
    accumulator = AnthropicAccumulator(event_limit=400)
    with pytest.raises(EventTooLarge):
        accumulator.feed(sse(wire.start(), wire.text(0, "x" * 500)))
    outcome = accumulator.finish(ending(End.CUT, cause=Cause.LIMIT))
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.cause, outcome.certainty) == (
        Kind.INTERRUPTED,
        Cause.LIMIT,
        Certainty.AT_LEAST,
    )


def test_an_answer_of_endless_blocks_is_a_dead_connection():
    accumulator = AnthropicAccumulator()
    data = frame({"type": "content_block_start", "index": 0})
    accumulator.feed(sse(wire.start()))
    accumulator.feed(data * MAX_PARTS)
    assert not accumulator.done
    outcome = failed(accumulator, data)
    assert (outcome.kind, outcome.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
    assert str(MAX_PARTS) in outcome.message


def test_a_fault_of_our_own_keeps_the_bill_of_the_ladder():
    outcome = cut(wire.start(), end=ending(End.CUT, cause=Cause.BUG))
    assert (outcome.kind, outcome.certainty, outcome.code) == (Kind.BUG, Certainty.AT_LEAST, Code.INTERNAL)
    assert outcome.disposition is Disposition.LANDED
