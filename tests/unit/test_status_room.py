"""What gives way when a status is too large for its receivers, and what it never says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.rpc.status_pb2 import Status

from modelmeter.v1 import error_pb2
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Certainty, Kind, Stage
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.rpc.status import DETAILS_KEY, PUSHBACK_KEY, STATUS_BYTES, trailer

LONG = "w" * 400
BESIDE = tuple(
    AdditionalUsage(kind=f"{number}{LONG}", model=LONG, usage=Usage(input_tokens=number, output_tokens=1))
    for number in range(100)
)


def status_of(failed: Failure) -> bytes:
    sent = trailer(CallOutcome(call_id="c", model_asked=LONG, result=failed), failed)
    data = dict(sent.metadata)[DETAILS_KEY]
    assert isinstance(data, bytes)
    return data


def wordy(**fields: Any) -> Failure:
    return failure(
        Kind.INTERRUPTED,
        LONG * 10,
        stage=Stage.OUTPUT,
        certainty=Certainty.AT_LEAST,
        usage=Usage(input_tokens=25, output_tokens=9),
        model_served=LONG,
        service_tier=LONG,
        provider_code=LONG,
        provider_request_id=LONG,
        provider_response_id=LONG,
        **fields,
    )


def model_error(data: bytes) -> error_pb2.ModelError:
    message = error_pb2.ModelError()
    (packed,) = [each for each in Status.FromString(data).details if each.Is(message.DESCRIPTOR)]
    packed.Unpack(message)
    return message


@pytest.mark.parametrize("failed", [wordy(), wordy(additional_usage=BESIDE)], ids=["texts", "bills"])
def test_a_wordy_failure_fits_with_its_figures(failed: Failure):
    data = status_of(failed)
    told = model_error(data)
    assert len(data) <= STATUS_BYTES
    assert (told.usage.input_tokens, told.usage.output_tokens) == (25, 9)
    assert told.service_tier
    assert LONG.startswith(told.service_tier)
    beside = sum(each.usage.input_tokens or 0 for each in failed.additional_usage)
    assert sum(each.usage.input_tokens for each in told.additional_usage) == beside


@pytest.mark.parametrize(
    "kind", [Kind.CEILING, Kind.HALTED, Kind.DIVERGED, Kind.OVERLOADED, Kind.DRAINING], ids=str
)
def test_only_a_call_that_was_never_dispatched_tells_when_to_come_again(kind: Kind):
    never = failure(kind, "no", stage=Stage.NOT_WRITTEN)
    for stage in (Stage.WRITING, Stage.WRITTEN, Stage.BODY):
        dispatched = msgspec.structs.replace(never, stage=stage)
        sent = trailer(CallOutcome(call_id="c", model_asked="m", result=dispatched), dispatched)
        assert PUSHBACK_KEY not in dict(sent.metadata)
    sent = trailer(CallOutcome(call_id="c", model_asked="m", result=never), never)
    assert PUSHBACK_KEY in dict(sent.metadata)
