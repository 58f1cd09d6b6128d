"""How a response can end: cut, failed, with an error inside, or as something that is no response at all."""

from __future__ import annotations

import time

import pytest

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, End, Kind
from tests.support import responses_events as wire
from tests.support.wire_bytes import Json, answer, body, failed, frame, read, sse

BOTH = pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
TEXT = wire.text_events(0, "Hello")


def cut(*events: object, end: End = End.CLEAN) -> Failure:
    return failed(OpenAIResponsesAccumulator(), sse(*events), end)


@BOTH
def test_without_the_terminal_event_the_ladder_decides(end: End):
    assert cut(wire.created(), end=end).kind is Kind.UNAVAILABLE
    outcome = cut(wire.created(), *TEXT, end=end)
    assert (outcome.kind, outcome.certainty, outcome.usage) == (Kind.UNACCOUNTED, Certainty.UNKNOWN, None)
    assert (outcome.partial_text, outcome.provider_response_id) == ("Hello", "resp_1")


@pytest.mark.parametrize("name", ["completed", "incomplete", "failed", "done"])
@pytest.mark.parametrize("response", [None, [], "x", 5])
def test_a_terminal_event_without_its_response_leaves_it_to_the_ladder(name: str, response: object):
    accumulator = OpenAIResponsesAccumulator()
    outcome = failed(accumulator, sse(*TEXT, wire.event(name, response=response)))
    assert accumulator.done
    assert outcome.kind is Kind.UNACCOUNTED


@pytest.mark.parametrize("status", [None, "", 5, [], "in_progress", "queued"])
def test_the_name_of_a_terminal_event_says_what_its_object_does_not(status: object):
    for name, kind in (("completed", None), ("failed", Kind.UNUSABLE)):
        event = wire.event(
            name, response=wire.response(wire.message("Hello"), usage=wire.USAGE) | {"status": status}
        )
        outcome = read(OpenAIResponsesAccumulator(), sse(*TEXT, event))
        assert (getattr(outcome, "kind", None), outcome.certainty) == (kind, Certainty.EXACT)


def test_a_failed_event_is_no_answer_whatever_its_object_says():
    event = wire.event("failed", response=wire.response(wire.message("Hello"), usage=wire.USAGE))
    assert cut(*TEXT, event).kind is Kind.UNUSABLE


@pytest.mark.parametrize("status", ["completed", "in_progress", None, "", 5])
def test_an_incomplete_event_is_one_whatever_its_object_says(status: object):
    response = wire.response(
        wire.message("Hello"), status="completed", reason="max_output_tokens", usage=wire.USAGE
    )
    event = wire.event("incomplete", response={**response, "status": status})
    for frames in (sse(*TEXT, event), frame(event, "")):
        outcome = answer(OpenAIResponsesAccumulator(), frames)
        assert (outcome.stop_reason, outcome.truncated) == ("incomplete:max_output_tokens", True)


def test_a_completed_event_whose_object_was_cut_is_no_whole_answer():
    event = wire.event(
        "completed",
        response=wire.response(wire.message("Hello"), status="incomplete", reason="max_output_tokens"),
    )
    assert answer(OpenAIResponsesAccumulator(), sse(event)).truncated


ERRORS: list[Json] = [
    {"error": {"code": "server_error", "message": "m"}},
    {"error": {"type": "server_error"}},
    {"error_type": "server_error"},
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("status", ["completed", "incomplete", "from-next-year"])
def test_an_error_beside_an_output_wins_and_keeps_the_bill(error: Json, status: str):
    for usage, kind in ((wire.USAGE, Kind.INTERRUPTED), (None, Kind.UNACCOUNTED)):
        response = wire.response(wire.message("Hello"), status=status, usage=usage, **error)
        for data in (sse(*TEXT, wire.event("completed", response=response)), body(response)):
            outcome = failed(OpenAIResponsesAccumulator(), data)
            assert (outcome.kind, outcome.provider_code) == (kind, "server_error")


def test_an_error_beside_an_output_without_a_status_keeps_the_bill():
    document = {"output": [], "usage": wire.USAGE, "error": {"code": "server_error"}}
    outcome = failed(OpenAIResponsesAccumulator(), body(document))
    assert (outcome.kind, outcome.provider_code) == (Kind.INTERRUPTED, "server_error")
    assert outcome.certainty is Certainty.AT_LEAST


@pytest.mark.parametrize("error", [None, "", {}, 5, []])
def test_an_error_that_says_nothing_is_none(error: object):
    for data in (
        sse(wire.ended(wire.message("Hello"), error=error)),
        wire.document(wire.message("Hello"), error=error),
    ):
        assert answer(OpenAIResponsesAccumulator(), data).text == "Hello"


def test_done_is_a_repeat_of_the_terminal_event():
    done = wire.event("done", response=wire.response(wire.message("Hello"), usage=wire.USAGE))
    first = answer(OpenAIResponsesAccumulator(), sse(*TEXT, wire.ended(wire.message("Hello")), done))
    assert first == answer(OpenAIResponsesAccumulator(), sse(*TEXT, done))


def failing(code: str | None, usage: object = None, *output: Json) -> Json:
    return wire.ended(*output, status="failed", usage=usage, error={"code": code, "message": "synthetic"})


def test_failed_with_usage_is_unusable_with_it():
    outcome = cut(*TEXT, failing("server_error", wire.USAGE))
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert (outcome.provider_code, outcome.disposition) == ("server_error", Disposition.LANDED)


def test_failed_with_output_and_no_usage_is_unaccounted():
    for events in (
        [*TEXT, failing("rate_limit_exceeded")],
        [failing("server_error", None, wire.message("Hel"))],
    ):
        outcome = cut(*events)
        assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
    zeros = {"input_tokens": 0, "output_tokens": 0}
    assert cut(*TEXT, failing("server_error", zeros)).kind is Kind.UNACCOUNTED


CODES = [
    ("rate_limit_exceeded", Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
    ("server_is_overloaded", Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
    ("server_error", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("vector_store_timeout", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("some_new_code", Kind.UNAVAILABLE, Code.UNAVAILABLE),
    (None, Kind.UNAVAILABLE, Code.UNAVAILABLE),
    ("invalid_prompt", Kind.REFUSED, Code.INVALID_ARGUMENT),
    ("context_length_exceeded", Kind.REFUSED, Code.INVALID_ARGUMENT),
    ("model_not_found", Kind.REFUSED, Code.NOT_FOUND),
    ("invalid_api_key", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("insufficient_quota", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("credit_balance_exhausted", Kind.REFUSED, Code.FAILED_PRECONDITION),
    ("billing_hard_limit_reached", Kind.REFUSED, Code.FAILED_PRECONDITION),
]


@pytest.mark.parametrize(("code", "kind", "status"), CODES)
def test_an_error_before_any_output_goes_by_its_code(code: str | None, kind: Kind, status: Code):
    nested = {"type": "error", "error": {"type": None, "code": code, "message": "synthetic"}}
    for event in (failing(code), wire.error(code), nested):
        for end in (End.CLEAN, End.RESET):
            outcome = cut(wire.created(), event, end=end)
            assert (outcome.kind, outcome.code) == (kind, status)
            assert outcome.provider_code == (code or "error")


def test_an_error_after_output_is_landed_whatever_its_code():
    for code, _, _ in CODES:
        outcome = cut(wire.created(), *TEXT, wire.error(code))
        assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)


def test_an_error_before_the_end_wins_over_a_completion_and_keeps_the_bill():
    outcome = cut(*TEXT, wire.error("server_error"), wire.ended(wire.message("Hello")))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert outcome.provider_code == "server_error"


def test_an_error_followed_by_its_failed_response_is_one_error():
    outcome = cut(wire.created(), wire.error("insufficient_quota"), failing(None))
    assert (outcome.kind, outcome.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)
    told = cut(wire.created(), wire.error("server_error"), failing("insufficient_quota"))
    assert told.provider_code == "insufficient_quota"


def test_a_numeric_status_decides_before_the_type():
    slow = {"type": "error", "status": 429, "error": {"type": "invalid_request_error", "message": "m"}}
    assert cut(wire.created(), slow).kind is Kind.RATE_LIMITED
    fine = {"type": "error", "status": 200, "error": {"type": "rate_limit_error", "message": "m"}}
    assert cut(wire.created(), fine).kind is Kind.RATE_LIMITED


def test_cancelled_was_stopped_from_outside():
    for usage, kind in ((wire.USAGE, Kind.INTERRUPTED), (None, Kind.UNACCOUNTED)):
        for data in (
            sse(wire.event("completed", response=wire.response(status="cancelled", usage=usage))),
            wire.document(status="cancelled", usage=usage),
        ):
            outcome = failed(OpenAIResponsesAccumulator(), data)
            assert (outcome.kind, outcome.cause) == (kind, Cause.PROVIDER)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_body_that_is_not_done_was_accepted_and_will_run(status: str):
    outcome = failed(OpenAIResponsesAccumulator(), wire.document(status=status, usage=None))
    assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
    assert (outcome.provider_response_id, outcome.retryable) == ("resp_1", False)


@pytest.mark.parametrize("name", ["created", "queued", "in_progress"])
def test_an_event_of_progress_proves_nothing(name: str):
    event = wire.event(name, response=wire.response(status=name))
    assert cut(event, end=End.RESET).kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("data", [b"{}", b'{"id":"x"}', b'{"object":"response"}', b'{"output":[]}', b"[]"])
def test_a_document_that_is_no_response_is_unusable(data: bytes):
    outcome = failed(OpenAIResponsesAccumulator(), data)
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.UNKNOWN)


def test_an_error_document_with_status_200_goes_by_its_code():
    data = b'{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}'
    assert failed(OpenAIResponsesAccumulator(), data).kind is Kind.RATE_LIMITED
    billing = b'{"error":{"message":"m","type":"api_error","code":"insufficient_quota"}}'
    assert failed(OpenAIResponsesAccumulator(), billing).kind is Kind.REFUSED


def test_an_event_without_a_name_is_known_by_its_type():
    events = [wire.created(), *TEXT, wire.ended(wire.message("Hello"))]
    for name in ("", "message"):
        data = b"".join(frame(event, name) for event in events)
        assert read(OpenAIResponsesAccumulator(), data) == read(OpenAIResponsesAccumulator(), sse(*events))


def test_a_terminal_event_without_its_blank_line_counts_at_a_clean_end_only():
    data = wire.stream("Hello").removesuffix(b"\n\n")
    assert answer(OpenAIResponsesAccumulator(), data).text == "Hello"
    assert failed(OpenAIResponsesAccumulator(), data, End.RESET).kind is Kind.UNACCOUNTED
    assert failed(OpenAIResponsesAccumulator(), data[:-1]).kind is Kind.UNACCOUNTED


def test_a_document_that_was_cut_after_its_output_keeps_the_text_and_an_estimate():
    document = wire.document(wire.message("eight ch"))
    cut_off = document[: document.index(b'"usage"')]
    outcome = failed(OpenAIResponsesAccumulator(), cut_off, End.RESET)
    assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
    assert (outcome.partial_text, outcome.estimated_output_tokens) == ("eight ch", 2)


@pytest.mark.parametrize("event", [wire.text(0, "x"), wire.text(0, "x", part=1), wire.summary(0, "x")])
def test_an_answer_of_endless_parts_is_a_dead_connection(event: Json):
    accumulator = OpenAIResponsesAccumulator()
    key = next(name for name in ("content_index", "summary_index") if event.get(name) is not None)
    for number in range(MAX_PARTS + 2):
        accumulator.feed(frame({**event, key: number}))
    assert accumulator.done
    outcome = failed(accumulator, b"")
    assert (outcome.kind, outcome.cause) == (Kind.UNACCOUNTED, Cause.LIMIT)


def test_an_answer_of_endless_items_is_a_dead_connection():
    accumulator = OpenAIResponsesAccumulator()
    for number in range(MAX_PARTS + 2):
        accumulator.feed(frame(wire.added(number, {})))
    assert accumulator.done


MANY: list[Json] = [{}] * (MAX_PARTS + 1)


@pytest.mark.parametrize(
    "output", [MANY, [{"type": "message", "content": MANY}], [{"type": "reasoning", "summary": MANY}]]
)
def test_an_output_of_endless_parts_is_no_answer_and_keeps_its_bill(output: list[Json]):
    for data in (sse(*TEXT, wire.ended(*output)), wire.document(*output)):
        outcome = failed(OpenAIResponsesAccumulator(), data)
        assert (outcome.kind, outcome.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
        assert outcome.certainty is Certainty.EXACT


@pytest.mark.parametrize("name", ["content", "summary"])
def test_a_streamed_item_of_endless_parts_is_a_dead_connection(name: str):
    accumulator = OpenAIResponsesAccumulator()
    accumulator.feed(sse(wire.item_done(0, {"type": "message", name: MANY})))
    assert accumulator.done
    outcome = failed(accumulator, b"")
    assert (outcome.kind, outcome.cause) == (Kind.UNACCOUNTED, Cause.LIMIT)


def test_an_output_may_repeat_as_many_parts_as_were_streamed():
    streamed = [frame(wire.text(number, "x")) for number in range(MAX_PARTS // 2 - 1)]
    whole = [wire.message("x") for _ in streamed]
    data = b"".join([*streamed, sse(wire.ended(*whole))])
    assert answer(OpenAIResponsesAccumulator(), data).text == "x" * len(whole)


@pytest.mark.parametrize("output", [b"{}", b'{"type":"message","content":[' + b"{}," * 999_999 + b"{}]}"])
def test_the_end_of_a_large_body_is_judged_in_a_moment(output: bytes):
    items = output if len(output) > 2 else b"{}," * 1_000_000 + b"{}"
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    accumulator.feed(b'{"object":"response","status":"completed","output":[' + items + b"]}")
    start = time.process_time()
    assert failed(accumulator, b"").cause is Cause.LIMIT
    assert time.process_time() - start < 3  # of which reading the JSON is all
