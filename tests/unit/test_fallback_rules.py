"""When a failed call may go to another target, and what its end says about the one that it was sent to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import TABLE, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.provider_errors import failure_from_http
from modelmeter_server.core.routing import Verdict, judged, may_fall_back, rest_of
from modelmeter_server.core.usage import Usage

GOOD, BAD, NEUTRAL = Verdict.GOOD, Verdict.BAD, Verdict.NEUTRAL


def http(status, body=b"", headers=None):
    return failure_from_http(status, (headers or {}).get, body, scrub=str)


def quota(status):
    return http(status, b'{"error": {"code": "insufficient_quota", "message": "pay"}}')


SILENCE = failure(Kind.UNAVAILABLE, "m", cause=Cause.IDLE_TIMEOUT, stage=Stage.WRITTEN, retryable=False)

CASES = {
    "an answer": (Answer(text="x"), False, GOOD),
    "nobody listens": (failure(Kind.UNREACHABLE, "m", cause=Cause.NETWORK), True, BAD),
    "a bad certificate": (failure(Kind.UNREACHABLE, "m", cause=Cause.NETWORK, retryable=False), True, BAD),
    "too slow to take it": (failure(Kind.UNREACHABLE, "m", cause=Cause.TOTAL_TIMEOUT), True, BAD),
    "late while writing": (failure(Kind.UNREACHABLE, "m", cause=Cause.DEADLINE), False, NEUTRAL),
    "HTTP 429": (http(429), True, BAD),
    "HTTP 429 with a wait": (http(429, headers={"retry-after": "3"}), True, NEUTRAL),
    "HTTP 529": (http(529), True, BAD),
    "HTTP 503": (http(503), True, BAD),
    "HTTP 500": (http(500), True, BAD),
    "silence": (SILENCE, False, BAD),
    "a leaving caller": (failure(Kind.UNAVAILABLE, "m", cause=Cause.CALLER), False, NEUTRAL),
    "a deadline": (failure(Kind.UNAVAILABLE, "m", cause=Cause.DEADLINE), False, NEUTRAL),
    "a drain": (failure(Kind.UNAVAILABLE, "m", cause=Cause.DRAIN), False, NEUTRAL),
    "HTTP 400": (http(400), False, NEUTRAL),
    "HTTP 413": (http(413), False, NEUTRAL),
    "HTTP 422": (http(422), False, NEUTRAL),
    "HTTP 401": (http(401), True, BAD),
    "HTTP 402": (http(402), True, BAD),
    "HTTP 403": (http(403), True, NEUTRAL),
    "HTTP 404": (http(404), True, BAD),
    "HTTP 451": (http(451), True, NEUTRAL),
    "HTTP 301": (http(301), True, BAD),
    "a quota, as 429": (quota(429), True, BAD),
    "a quota, as 400": (quota(400), True, BAD),
    "our own refusal": (failure(Kind.REFUSED, "m", cause=Cause.LIMIT, code=Code.NOT_FOUND), False, NEUTRAL),
    "no connection is free": (failure(Kind.OVERLOADED, "m", cause=Cause.LIMIT), True, NEUTRAL),
    "the ledger is down": (failure(Kind.LEDGER_DOWN, "m", cause=Cause.LIMIT), False, NEUTRAL),
    "cut in the answer": (failure(Kind.INTERRUPTED, "m", cause=Cause.NETWORK, usage=Usage()), False, BAD),
    "cut, cost untold": (failure(Kind.UNACCOUNTED, "m", cause=Cause.IDLE_TIMEOUT), False, BAD),
    "too long an answer": (failure(Kind.UNACCOUNTED, "m", cause=Cause.TOTAL_TIMEOUT), False, NEUTRAL),
    "an answer without use": (failure(Kind.UNUSABLE, "m"), False, GOOD),
    "a fault of ours": (failure(Kind.BUG, "m", cause=Cause.BUG), False, NEUTRAL),
}


@pytest.mark.parametrize("case", CASES)
def test_each_end_of_a_call_goes_elsewhere_or_not_and_says_this_of_its_target(case):
    result, goes_elsewhere, verdict = CASES[case]
    assert judged(result) is verdict
    if not isinstance(result, Answer):
        assert may_fall_back(result) is goes_elsewhere


def test_silence_goes_elsewhere_only_where_two_bills_are_accepted():
    assert not may_fall_back(SILENCE)
    assert may_fall_back(SILENCE, ambiguous=True)


def test_a_refusal_that_names_usage_is_spend_and_goes_nowhere():
    billed = failure(
        Kind.REFUSED,
        "m",
        code=Code.FAILED_PRECONDITION,
        certainty=Certainty.EXACT,
        usage=Usage(input_tokens=3),
    )
    assert not may_fall_back(billed)


def test_only_a_named_wait_after_a_rate_limit_is_a_rest():
    assert rest_of(http(429, headers={"retry-after": "3"})) == 3
    assert rest_of(http(429)) == 0
    assert rest_of(http(503, headers={"retry-after": "3"})) == 0
    assert rest_of(Answer(text="x")) == 0


FAILURES = st.builds(
    lambda kind, cause, code, retryable: failure(kind, "m", cause=cause, code=code, retryable=retryable),
    st.sampled_from(Kind),
    st.sampled_from(Cause),
    st.sampled_from(Code),
    st.booleans(),
)


@given(failed=FAILURES, ambiguous=st.booleans())
def test_nothing_that_may_have_been_bought_is_ever_sent_elsewhere_unasked(failed, ambiguous):
    if may_fall_back(failed, ambiguous=ambiguous):
        assert failed.disposition is Disposition.DID_NOT_HAPPEN
        assert failed.kind in (
            Kind.UNREACHABLE,
            Kind.RATE_LIMITED,
            Kind.UNAVAILABLE,
            Kind.REFUSED,
            Kind.OVERLOADED,
        )
        assert failed.kind is not Kind.UNAVAILABLE or failed.retryable or ambiguous
        assert failed.cause not in (Cause.CALLER, Cause.DEADLINE, Cause.DRAIN, Cause.BUG)


@given(failed=FAILURES)
def test_what_the_caller_or_this_server_did_never_counts_against_a_target(failed):
    if failed.cause in (Cause.CALLER, Cause.DEADLINE, Cause.DRAIN, Cause.LIMIT, Cause.BUG):
        assert judged(failed) is NEUTRAL
    if failed.kind is Kind.REFUSED and failed.code is Code.INVALID_ARGUMENT:
        assert judged(failed) is NEUTRAL


@pytest.mark.parametrize("kind", [kind for kind in Kind if TABLE[kind].disposition is Disposition.LANDED])
def test_a_landed_call_goes_nowhere_whatever_is_accepted(kind):
    assert not may_fall_back(failure(kind, "m", retryable=True), ambiguous=True)
