"""A failure's status fits every receiver, and its figures survive whatever else is cut."""

from __future__ import annotations

import grpc
import msgspec
import pytest
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings

from modelmeter.v1 import error_pb2, usage_pb2
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.counters import saturating_add
from modelmeter_server.core.errors import Failure, FieldViolation, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind, Stage
from modelmeter_server.core.usage import AdditionalUsage, Usage, total_spend_tokens
from modelmeter_server.rpc.convert_usage import COUNTERS
from modelmeter_server.rpc.status import DETAILS_KEY, MESSAGE_BYTES, STATUS_BYTES, Trailer, sentence, trailer
from tests.support.domain_values import attempts, failures, outcomes

TRAILER_BYTES = 6 * 1024
HOSTILE = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=60
)


def encoded_size(sent: Trailer) -> int:
    """Return the bytes that the trailers take: percent-encoded text, base64, and HTTP/2's 32 for each entry."""
    message = sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in sent.message.encode())
    size = len("grpc-message") + message + 32 + len("grpc-status") + 2 + 32
    for name, value in sent.metadata:
        size += len(name) + 32 + (-(-len(value) * 4 // 3) if isinstance(value, bytes) else len(value))
    return size


def status_of(sent: Trailer) -> Status:
    data = dict(sent.metadata)[DETAILS_KEY]
    assert isinstance(data, bytes)
    return Status.FromString(data)


def detail(status: Status, kind):
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            return message
    return None


def outcome(result: Failure, **fields) -> CallOutcome:
    return CallOutcome(call_id="c", model_asked=fields.pop("model_asked", "claude"), result=result, **fields)


def broken(**fields) -> Failure:
    told = {"certainty": Certainty.AT_LEAST, "usage": Usage(input_tokens=25, output_tokens=9)}
    return failure(Kind.INTERRUPTED, "the connection broke", stage=Stage.OUTPUT, **{**told, **fields})


@HOSTILE
@given(outcomes(failures()))
def test_every_failure_fits_what_receivers_take(drawn):
    sent = trailer(drawn, drawn.result)
    status = status_of(sent)
    assert len(dict(sent.metadata)[DETAILS_KEY]) <= STATUS_BYTES
    assert len(sent.message.encode()) <= MESSAGE_BYTES
    assert encoded_size(sent) <= TRAILER_BYTES
    assert status.message == sent.message
    assert status.code == sent.code.value[0] == drawn.result.code
    assert len({packed.type_url for packed in status.details}) == len(status.details)


@HOSTILE
@given(outcomes(failures()))
def test_the_figures_are_never_cut(drawn):
    failed = drawn.result
    told = detail(status_of(trailer(drawn, failed)), error_pb2.ModelError)
    assert told.HasField("usage") == (failed.usage is not None)
    for name in COUNTERS if failed.usage is not None else ():
        value = getattr(failed.usage, name)
        assert (getattr(told.usage, name) if told.usage.HasField(name) else None) == value
    assert told.HasField("cost") == (failed.cost is not None)
    assert told.cost.nano_units == (failed.cost.nano_units if failed.cost else 0)
    assert usage_pb2.Certainty.Name(told.certainty) == f"CERTAINTY_{failed.certainty.name}"
    spend = [extra.usage for extra in told.additional_usage]
    sums = (saturating_add(usage.input_tokens, usage.output_tokens) for usage in spend)
    assert saturating_add(*sums) == total_spend_tokens(None, failed.additional_usage)


@HOSTILE
@given(outcomes(failures()))
def test_hosted_tool_requests_keep_their_sum(drawn):
    failed = drawn.result
    told = detail(status_of(trailer(drawn, failed)), error_pb2.ModelError)
    asked = failed.usage.hosted_tool_requests.values() if failed.usage is not None else ()
    assert saturating_add(*told.usage.hosted_tool_requests.values()) == saturating_add(*asked)


@HOSTILE
@given(outcomes(failures()))
def test_the_sentence_ends_with_tokens_and_certainty_whatever_stands_before(drawn):
    failed = drawn.result
    said = sentence(drawn.model_asked, failed)
    assert said.endswith(f", {failed.certainty.name})")
    if failed.usage is not None and failed.usage.output_tokens is not None:
        assert f"{failed.usage.output_tokens} output tokens" in said


def test_the_sentence_tells_the_bill_in_words():
    assert sentence("claude", broken()) == (
        "the connection broke (model claude: 25 input + 9 output tokens, AT_LEAST)"
    )
    silent = failure(Kind.UNAVAILABLE, "silence", stage=Stage.WRITTEN)
    assert sentence("claude", silent) == "silence (model claude: tokens unknown, UNKNOWN)"
    guessed = failure(Kind.UNACCOUNTED, "it broke", stage=Stage.OUTPUT, estimated_output_tokens=12)
    assert sentence("claude", guessed) == "it broke (model claude: tokens unknown, about 12 arrived, UNKNOWN)"
    assert sentence("", failure(Kind.REFUSED, "no")) == "no (model -: no tokens, NONE)"


def test_every_fact_of_the_sentence_stands_in_the_error_info():
    info = detail(status_of(trailer(outcome(broken()), broken())), error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("INTERRUPTED", "modelmeter")
    facts = {"model": "claude", "input_tokens": "25", "output_tokens": "9", "certainty": "AT_LEAST"}
    assert facts.items() <= dict(info.metadata).items()


def test_mistakes_are_listed_in_order_until_the_room_is_used_and_the_rest_is_counted():
    mistakes = tuple(FieldViolation(f"tools[{index}].name", "must not be empty") for index in range(1000))
    refused = failure(Kind.REFUSED, "bad request", violations=mistakes)
    status = status_of(trailer(outcome(refused), refused))
    listed = detail(status, error_details_pb2.BadRequest).field_violations
    shown = len(listed) - 1
    assert [each.field for each in listed[:-1]] == [each.field for each in mistakes[:shown]]
    assert listed[-1].description == f"{1000 - shown} more mistakes are not listed here"
    assert shown > 30, "the room is used"


def test_the_worst_that_can_be_told_fits_with_its_figures_and_its_mistakes():
    long, most = "\N{GRINNING FACE}" * 500, 2**63 - 1
    usage = Usage(
        **dict.fromkeys(COUNTERS, most),
        hosted_tool_requests={f"{index}{long}": most for index in range(30)},
    )
    bills = tuple(AdditionalUsage(kind=f"{index}{long}", model=long, usage=usage) for index in range(30))
    texts = ["model_served", "service_tier", "provider_code", "provider_request_id", "provider_response_id"]
    mistakes = (FieldViolation(long, long),) * 1000
    failed = broken(
        usage=usage,
        additional_usage=bills,
        violations=mistakes,
        retry_after=1e300,
        resource=long,
        **dict.fromkeys(texts, long),
    )
    status = status_of(trailer(outcome(failed, model_asked=long), failed))
    assert status.ByteSize() <= STATUS_BYTES
    assert detail(status, error_pb2.ModelError).usage.input_tokens == most
    listed = detail(status, error_details_pb2.BadRequest).field_violations
    assert listed[0].field
    assert "more mistakes" in listed[-1].description


def test_a_few_mistakes_are_all_listed():
    mistakes = tuple(FieldViolation(f"field_{index}", "is wrong in some way: mend it") for index in range(20))
    refused = failure(Kind.REFUSED, "bad request", violations=mistakes)
    listed = detail(
        status_of(trailer(outcome(refused), refused)), error_details_pb2.BadRequest
    ).field_violations
    assert [(each.field, each.description) for each in listed] == [
        (each.field, each.description) for each in mistakes
    ]


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=30
)
@given(attempts)
def test_the_last_attempts_are_the_last_to_go(attempt):
    last = msgspec.structs.replace(attempt, number=8, usage=None)
    made = (*(msgspec.structs.replace(attempt, number=number) for number in range(1, 8)), last)
    told = detail(
        status_of(trailer(outcome(broken(), attempts=made, attempts_total=8), broken())), error_pb2.ModelError
    )
    numbers = [each.number for each in told.attempts]
    assert numbers == list(range(1, 9))[8 - len(numbers) :]
    assert told.attempts_total == 8


def test_additional_usages_of_one_kind_and_model_are_joined():
    extra = AdditionalUsage(kind="compaction", usage=Usage(input_tokens=3, output_tokens=2))
    failed = broken(additional_usage=(extra, extra))
    told = detail(status_of(trailer(outcome(failed), failed)), error_pb2.ModelError)
    (joined,) = told.additional_usage
    assert (joined.kind, joined.usage.input_tokens, joined.usage.output_tokens) == ("compaction", 6, 4)
    assert not joined.usage.HasField("cache_read_tokens"), "what nobody told stays untold"


@pytest.mark.parametrize("code", Code)
def test_every_code_of_the_core_is_a_grpc_code(code):
    assert grpc.StatusCode[code.name].value[0] == code


def test_a_shed_call_always_names_a_wait():
    for kind in (Kind.OVERLOADED, Kind.DRAINING):
        failed = failure(kind, "full", cause=Cause.LIMIT)
        sent = trailer(outcome(failed), failed)
        assert detail(status_of(sent), error_details_pb2.RetryInfo).retry_delay.ToSeconds() == 1
        assert dict(sent.metadata)["grpc-retry-pushback-ms"] == "1000"


def test_a_provider_that_asks_for_ten_thousand_years_gets_a_valid_duration():
    failed = failure(Kind.RATE_LIMITED, "slow down", retry_after=1e300)
    told = detail(status_of(trailer(outcome(failed), failed)), error_pb2.ModelError)
    assert told.retry_after.seconds == 315_576_000_000
