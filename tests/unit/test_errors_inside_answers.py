"""An error inside a 200 is one error in every format that speaks JSON, wherever in the body and in whatever shape."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.accumulators import (
    Accumulator,
    AnthropicAccumulator,
    ChatCompletionsAccumulator,
    GeminiAccumulator,
    OpenAIResponsesAccumulator,
)
from modelmeter_server.core.outcomes import Certainty, Code, End, Kind
from tests.support.accumulator_laws import check_bill
from tests.support.wire_bytes import failed, sse

FORMATS = [AnthropicAccumulator, ChatCompletionsAccumulator, GeminiAccumulator, OpenAIResponsesAccumulator]

SHAPES = [
    ({"error": {"message": "busy", "type": "overloaded_error"}}, Kind.RATE_LIMITED),
    ({"error": "busy", "error_type": "overloaded"}, Kind.RATE_LIMITED),
    ({"error": "bad", "error_type": "validation"}, Kind.REFUSED),
    ({"error": "busy", "code": 429}, Kind.RATE_LIMITED),
    ({"error": {"message": "busy"}, "status_code": 529}, Kind.RATE_LIMITED),
    ({"error": {"error": {"type": "rate_limit_error", "message": "busy"}}}, Kind.RATE_LIMITED),
    ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], Kind.RATE_LIMITED),
    ([{"error": {"code": 503, "status": "UNAVAILABLE"}}], Kind.UNAVAILABLE),
    ({"error": {"type": "exceeded_current_quota_error", "message": "pay"}}, Kind.REFUSED),
    ({"error": {"type": "server_error", "code": "rate_limit_exceeded"}}, Kind.RATE_LIMITED),
    ({"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}, Kind.REFUSED),
]


def bodies(document: object) -> list[bytes]:
    """Return the document as an event's data, as one bare line, pretty-printed, after a comment, and alone."""
    line, pretty = json.dumps(document).encode(), json.dumps(document, indent=1).encode()
    bare = [b": hello\n\n" + text + b"\n" for text in (line, pretty, pretty.replace(b"\n", b"\r\n"))]
    return [sse(document), b"event: error\n" + sse(document), *bare, line]


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize(("document", "kind"), SHAPES)
def test_an_error_is_classed_alike_wherever_it_stands(make: type[Accumulator], document: object, kind: Kind):
    for body in bodies(document):
        for pieces in ([body], [body[i : i + 1] for i in range(len(body))]):
            outcome = failed(make(), pieces)
            assert (outcome.kind, outcome.usage) == (kind, None), body
            check_bill(outcome)


@pytest.mark.parametrize("make", FORMATS)
def test_a_refused_key_inside_an_answer_says_what_http_401_says(make: type[Accumulator]):
    told = {"type": "invalid_request_error", "code": "invalid_api_key", "message": "Incorrect key sk-1"}
    outcome = failed(make(), sse({"error": told}))
    assert outcome.code is Code.FAILED_PRECONDITION
    assert "sk-1" not in outcome.message


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("body", [b"error: upstream connect error", b"error:upstream", b"error: ["])
def test_words_after_error_are_no_error_object_and_so_an_answer(make: type[Accumulator], body: bytes):
    for end in End:
        outcome = failed(make(), body, end)
        assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
