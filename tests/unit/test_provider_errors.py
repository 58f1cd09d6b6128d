"""R-E1, R-E2, R-H1 to R-H3: what a provider's error means, by status, code and type; never by its prose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.provider_errors import (
    ProviderError,
    failure_from_http,
    kind_by_status,
    read_error,
    read_error_event,
)
from tests.support.accumulator_laws import check_bill
from tests.support.json_damage import JUNK, paths, replaced, spelled

KEY = "sk-test-0123456789abcdef"


def http(status: int, body: object = b"", headers: dict[str, str] | None = None) -> Failure:
    """Return what an HTTP answer comes to."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_from_http(
        status,
        (headers or {}).get,
        data,
        scrub=lambda text: text.replace(KEY, "[redacted]"),
        request_id="req_1",
    )


# By status


STATUSES = {
    **dict.fromkeys((429, 498, 529), Kind.RATE_LIMITED),
    **dict.fromkeys((408, 424, 425, 499, *range(500, 529), *range(530, 600)), Kind.UNAVAILABLE),
    **dict.fromkeys(range(300, 400), Kind.REFUSED),
    **dict.fromkeys(set(range(400, 500)) - {408, 424, 425, 429, 498, 499}, Kind.REFUSED),
}
BODIES: list[object] = [
    b"",
    b"<html>502</html>",
    b"{",
    {"error": {"type": "x", "message": "m"}},
    [1],
    None,
    5,
]


@pytest.mark.parametrize("body", BODIES)
def test_the_status_decides_whatever_the_body_is(body: object):
    for status, kind in STATUSES.items():
        outcome = http(status, body)
        assert (outcome.kind, outcome.http_status, outcome.cause) == (kind, status, Cause.PROVIDER)
        assert outcome.disposition is Disposition.DID_NOT_HAPPEN
        check_bill(outcome)


def test_every_status_has_exactly_one_kind():
    for status in range(100, 600):
        check_bill(http(status))
        assert kind_by_status(status, None) is STATUSES.get(status, Kind.UNAVAILABLE)


def test_a_client_error_did_not_generate():
    for status in (400, 401, 403, 404, 422):
        outcome = http(status)
        assert (outcome.kind, outcome.certainty, outcome.usage) == (Kind.REFUSED, Certainty.NONE, None)
        assert outcome.may_have_generated is False


def test_the_transient_4xx_are_not_judgements():
    for status in (408, 425):
        assert (http(status).kind, http(status).retryable) == (Kind.UNAVAILABLE, True)


def test_a_server_error_says_it_does_not_know():
    outcome = http(500)
    assert (outcome.kind, outcome.certainty, outcome.may_have_generated) == (
        Kind.UNAVAILABLE,
        Certainty.UNKNOWN,
        True,
    )


def test_rate_limiting_is_told_apart_from_refusal():
    for status in (429, 529):
        outcome = http(status)
        assert (outcome.kind, outcome.code) == (Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED)


CODES = {
    **dict.fromkeys((400, 413, 422), Code.INVALID_ARGUMENT),
    **dict.fromkeys((301, 307, 401, 402, 403, 407, 409, 451, 418), Code.FAILED_PRECONDITION),
    404: Code.NOT_FOUND,
}


@pytest.mark.parametrize(("status", "code"), CODES.items())
def test_the_cause_of_a_refusal_chooses_its_code(status: int, code: Code):
    assert http(status).code is code


def test_a_redirect_is_refused_with_the_reason():
    assert "never followed" in http(307, headers={"location": "https://example.com"}).message


# Billing and credentials


BILLING = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_error",
    "billing_hard_limit_reached",
    "enforced_spend_limit_reached",
    "BILLING_DISABLED",
    "quota_exceeded",
    "ServiceQuotaExceededException",
    "ramp_limit_exceeded",
    "exceeded_current_quota_error",
    "insufficient_balance",
    "insufficient_credits",
    "insufficient_funds",
    "credit_limit",
    "payment_required",
    "budget_exceeded",
    "Arrearage",
]


@pytest.mark.parametrize("word", BILLING)
def test_a_billing_code_makes_a_429_a_refusal(word: str):
    bodies: list[dict[str, Any]] = [
        {"error": {"code": word}},
        {"error": {"type": word}},
        {"error": {"type": "rate_limit_error", "details": {"error_code": word}}},
        {"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"reason": word}]}},
    ]
    for body in bodies:
        for status in (400, 429):
            outcome = http(status, body)
            assert (outcome.kind, outcome.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)
        error = read_error(body)
        assert error is not None
        assert error.http_status() == 402


def test_prose_is_never_read():
    prose = {"error": {"type": "rate_limit_error", "message": "You exceeded insufficient_quota billing"}}
    assert http(429, prose).kind is Kind.RATE_LIMITED
    detailed = {"error": {"type": "x", "details": {"hint": "see your billing page"}}}
    assert http(429, detailed).kind is Kind.RATE_LIMITED


@pytest.mark.parametrize("details", [[{"url": "https://console.example/billing"}], {"help": "/billing"}])
def test_a_link_to_the_billing_page_is_no_code(details: object):
    body = {"error": {"type": "rate_limit_error", "details": details}}
    assert http(429, body).kind is Kind.RATE_LIMITED


def test_a_429_about_the_key_is_refused_and_one_about_its_rate_is_not():
    refused = http(429, {"error": {"type": "x", "code": "invalid_api_key"}})
    assert (refused.kind, refused.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)
    for word in ("api_key_rate_limit", "RATE_LIMIT_QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED"):
        assert http(429, {"error": {"type": word}}).kind is Kind.RATE_LIMITED


def test_a_billing_code_does_not_mend_a_server_error():
    assert http(500, {"error": {"code": "insufficient_quota"}}).kind is Kind.UNAVAILABLE


def test_a_400_about_the_key_speaks_of_the_deployment():
    body = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}
    assert http(400, body).code is Code.FAILED_PRECONDITION


# By type, where an error stands inside a 200

BY_TYPE = [
    ("rate_limit_error", 429),
    ("ThrottlingException", 429),
    ("RESOURCE_EXHAUSTED", 429),
    ("too_many_requests", 429),
    ("overloaded_error", 529),
    ("ModelNotReadyException", 529),
    ("timeout_error", 504),
    ("DEADLINE_EXCEEDED", 504),
    ("service_unavailable", 503),
    ("api_error", 500),
    ("InternalServerException", 500),
    ("authentication_error", 401),
    ("invalid_api_key", 401),
    ("permission_error", 403),
    ("AccessDeniedException", 403),
    ("not_found_error", 404),
    ("request_too_large", 413),
    ("conflict_error", 409),
    ("invalid_prompt", 400),
    ("ValidationException", 400),
    ("BadRequest", 400),
    ("a_word_of_next_year", 500),
    ("", 500),
]


@pytest.mark.parametrize(("type", "status"), BY_TYPE)
def test_a_type_stands_for_the_status_it_would_have_come_with(type: str, status: int):
    for error in ({"type": type}, {"code": type}, {"status": type}):
        found = read_error({"error": error})
        assert found is not None
        assert found.http_status() == status


@pytest.mark.parametrize("number", [429, "429"])
def test_a_number_decides_before_the_type(number: object):
    for document in (
        {"error": {"code": number, "type": "invalid_request_error"}},
        {"error": {"status": number, "type": "invalid_request_error"}},
        {"status": number, "error": {"type": "invalid_request_error"}},
        {"status_code": number, "error": {"type": "invalid_request_error"}},
        {"code": number, "error": {"type": "invalid_request_error"}},
        {"code": number, "error": "text"},
        {"error_code": number, "error_type": "invalid_request_error"},
        {"error_code": number, "error_message": "text"},
        {"error": {"error": {"type": "invalid_request_error"}}, "statusCode": number},
        [{"error": {"code": number, "type": "invalid_request_error"}}],
    ):
        error = read_error(document)
        assert error is not None
        assert (error.status, error.http_status()) == (429, 429)


@pytest.mark.parametrize("number", [True, 0, 200, 302, 600, -429, 429.5, "200", "²²²", "4290", None, [429]])
def test_a_number_that_is_no_error_status_decides_nothing(number: object):
    error = read_error({"error": {"code": number, "type": "overloaded_error"}})
    assert error is not None
    assert (error.status, error.http_status()) == (None, 529)


TELLING = [
    ("server_error", "rate_limit_exceeded", Kind.RATE_LIMITED),
    ("invalid_request_error", "rate_limit_exceeded", Kind.RATE_LIMITED),
    ("api_error", "overloaded", Kind.RATE_LIMITED),
    ("invalid_request_error", "invalid_api_key", Kind.REFUSED),
    ("server_error", "invalid_api_key", Kind.REFUSED),
    ("rate_limit_error", "invalid_request", Kind.RATE_LIMITED),
    ("invalid_request_error", "model_not_found", Kind.REFUSED),
    ("server_error", "vector_store_timeout", Kind.UNAVAILABLE),
]


@pytest.mark.parametrize(("type", "code", "kind"), TELLING)
def test_a_throttle_or_a_key_is_seen_in_whichever_word_names_it(type: str, code: str, kind: Kind):
    error = read_error({"error": {"type": type, "code": code}})
    assert error is not None
    assert kind_by_status(error.http_status(), error) is kind


def test_a_key_that_an_error_inside_an_answer_names_hides_its_message_as_401_does():
    error = read_error(
        {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "sk"}}
    )
    assert error is not None
    assert error.http_status() == 401


@pytest.mark.parametrize("shape", ["flat", "wrapped", "wrapped with a status"])
def test_a_previous_response_that_is_unknown_is_one_refusal_in_every_shape_of_frame(shape: str):
    code = "previous_response_not_found"
    frames: dict[str, dict[str, Any]] = {
        "flat": {"type": "error", "code": code},
        "wrapped": {"type": "error", "error": {"code": code}},
        "wrapped with a status": {"type": "error", "status": 400, "error": {"code": code}},
    }
    error = read_error(frames[shape])
    assert error is not None
    assert (error.http_status(), error.own_code) == (400, code)


# Shapes


SHAPES: list[tuple[object, str, str]] = [
    ({"type": "error", "error": {"type": "api_error", "message": "m"}}, "api_error", "m"),
    ({"error": {"message": "m", "type": "t", "param": None, "code": None}}, "t", "m"),
    ({"error": {"message": "m", "type": "t", "code": "c"}}, "c", "m"),
    ({"error": "m"}, "error", "m"),
    ({"error": "m", "code": "c"}, "c", "m"),
    ({"type": "error", "code": "c", "message": "m"}, "c", "m"),
    ({"object": "error", "message": "m", "type": "t", "code": 1}, "t", "m"),
    ({"error_type": "t", "error_message": "m"}, "t", "m"),
    ({"error_message": "m"}, "error", "m"),
    ({"error": "m", "error_type": "t"}, "t", "m"),
    ({"error": "m", "error_type": "t", "code": "c"}, "c", "m"),
    ({"error": "m", "type": "overloaded_error"}, "overloaded_error", "m"),
    ({"error": "m", "type": "error"}, "error", "m"),
    ({"error": {"message": "m"}, "type": "response.failed"}, "error", "m"),
    ({"error": {"message": "m"}, "code": "c"}, "c", "m"),
    ({"error": {"message": "m", "type": "t"}, "code": "c"}, "t", "m"),
    ({"error": {"message": "m"}, "error_code": "c"}, "c", "m"),
    ({"error": {"type": "error", "error": {"type": "t", "message": "m"}}}, "t", "m"),
    ([{"error": {"type": "t", "message": "m"}}], "t", "m"),
    ([{"error": "m"}, 5], "error", "m"),
    ({"error": {}}, "error", ""),
    ({"error": {"message": ["a"], "type": 5, "code": {}}}, "error", ""),
]


@pytest.mark.parametrize(("document", "code", "message"), SHAPES)
def test_shapes_of_errors(document: object, code: str, message: str):
    error = read_error(document)
    assert error is not None
    assert (error.own_code, error.message) == (code, message)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [[]],
        [5],
        [{"a": 1}],
        "error",
        5,
        {},
        {"error": None},
        {"error": ""},
        {"error": []},
        {"type": "x"},
    ],
)
def test_what_is_no_error(document: object):
    assert read_error(document) is None


def test_the_data_of_an_event_named_error_is_one_in_any_shape():
    assert read_error_event({"type": "overloaded_error", "message": "m"}).http_status() == 529
    assert read_error_event({"code": "rate_limit_exceeded"}).http_status() == 429
    assert read_error_event({"error": {"type": "api_error"}}) == read_error({"error": {"type": "api_error"}})
    assert read_error_event("sorry") == ProviderError(message="sorry")
    nothings: list[object] = [None, [], {}, 5.5]
    for nothing in nothings:
        assert read_error_event(nothing) == ProviderError()


def test_a_body_of_nothing_but_a_message_is_an_error_by_its_status():
    assert http(400, {"message": "no such model"}).message.endswith(": no such model")
    assert "quota" in (http(429, [{"error": {"status": "quota"}}]).provider_code or "")


DOCUMENT = {
    "type": "error",
    "status": 429,
    "error": {"type": "t", "code": "c", "message": "m", "details": [{"reason": "r", "retryDelay": "5s"}]},
}


@given(st.sampled_from(list(paths(DOCUMENT))), JUNK, st.integers(100, 599))
def test_no_error_document_makes_it_raise(path: Any, junk: Any, status: int):
    outcome = http(status, spelled(replaced(DOCUMENT, path, junk)))
    check_bill(outcome)
    outcome.message.encode()


# What the caller may read


def test_the_message_of_the_provider_is_shown_for_four_statuses_only():
    body = {"error": {"type": "t", "message": "the prompt in full"}}
    for status in range(300, 600):
        assert ("the prompt" in http(status, body).message) == (status in (400, 404, 413, 422))


def test_the_providers_message_is_cut_on_a_character():
    shown = http(400, {"error": {"type": "t", "message": "é" * 500}}).message
    assert shown.count("é") == 100
    odd = http(400, {"error": {"type": "t", "message": "a" + "é" * 500}}).message
    assert (odd.count("é"), odd[-1]) == (99, "é")


def test_a_long_error_body_is_trimmed():
    body = {"error": {"type": "t" * 5000, "message": "m" * 5000}}
    outcome = http(400, body)
    assert len(outcome.message.encode()) < 400
    assert len(outcome.provider_code or "") == 64
    assert outcome.provider_body == json.dumps(body).encode()


def test_keys_are_scrubbed_before_anything_is_cut():
    body = {"error": {"type": "x" * 50 + KEY, "message": "y" * 190 + KEY}}
    outcome = http(400, body)
    for shown in (outcome.message, outcome.provider_code or ""):
        assert KEY[:6] not in shown


def test_the_stage_says_how_far_the_answer_came():
    assert (http(500).stage, http(500, b"x").stage) == (Stage.HEADERS, Stage.BODY)


# Retry delay


def test_a_named_rate_limit_window_survives_classification():
    assert http(429, headers={"retry-after": "42"}).retry_after == 42.0
    assert http(503, headers={"retry-after-ms": "1500"}).retry_after == 1.5


def test_an_unnamed_window_is_absent_rather_than_invented():
    for told in ("", "soon", "-1", "inf"):
        assert http(429, headers={"retry-after": told}).retry_after is None
    assert http(429).retry_after is None


def test_the_body_names_a_delay_too():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    assert http(429, {"error": {"code": 429, "details": [info]}}).retry_after == 7.0


# Amazon


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("ValidationException", "ValidationException"),
        ("ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/", "ValidationException"),
        ("", "error"),
    ],
)
def test_amazons_header_names_the_error_up_to_its_colon(header: str, code: str):
    outcome = http(400, {"message": "Input is too long"}, {"x-amzn-errortype": header})
    assert (outcome.kind, outcome.code, outcome.provider_code) == (Kind.REFUSED, Code.INVALID_ARGUMENT, code)
    assert "Input is too long" in outcome.message


def test_amazons_header_is_there_though_the_body_is_cut():
    outcome = http(429, b'{"mess', {"x-amzn-errortype": "ThrottlingException"})
    assert (outcome.kind, outcome.provider_code) == (Kind.RATE_LIMITED, "ThrottlingException")


def test_amazon_spells_its_message_two_ways_and_may_name_the_error_in_the_body():
    outcome = http(404, {"Message": "no such model", "__type": "com.amazon#ResourceNotFoundException"})
    assert outcome.provider_code == "ResourceNotFoundException"
    assert "no such model" in outcome.message


@pytest.mark.parametrize(
    ("status", "type", "kind"),
    [
        (403, "ExpiredTokenException", Kind.REFUSED),
        (408, "ModelTimeoutException", Kind.UNAVAILABLE),
        (424, "ModelErrorException", Kind.UNAVAILABLE),
        (429, "ModelNotReadyException", Kind.RATE_LIMITED),
        (503, "ServiceUnavailableException", Kind.UNAVAILABLE),
    ],
)
def test_amazons_statuses_decide_before_its_types(status: int, type: str, kind: Kind):
    outcome = http(status, {"message": "m"}, {"x-amzn-errortype": type})
    assert (outcome.kind, outcome.provider_code) == (kind, type)
