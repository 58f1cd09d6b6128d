"""Every kind of failure arrives as its own class, with its whole bill."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

import modelmeter
from modelmeter import (
    Certainty,
    Disposition,
    EffectOutcome,
    ErrorKind,
    FieldViolation,
    ModelmeterError,
    Stage,
)
from modelmeter._error_table import ERROR_ROWS
from modelmeter.v1 import error_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import StreamCompleteResponse
from modelmeter_server.core import outcomes
from modelmeter_server.core.errors import TABLE, effect_outcome
from modelmeter_server.core.outcomes import Kind
from tests.support.scripted_service import failing, model_error, status_of, streaming


def _number(kind: Kind) -> int:
    return error_pb2.ErrorKind.Value(f"ERROR_KIND_{kind.name}")


async def _caught(client, **options) -> ModelmeterError:
    with pytest.raises(ModelmeterError) as caught:
        await client.complete("model", "hi", **options)
    return caught.value


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
async def test_each_kind_arrives_as_its_class_and_code(client, service, kind):
    service.script("Complete", failing(model_error(_number(kind))))
    error = await _caught(client)
    assert type(error).__name__ == TABLE[kind].client_class
    assert type(error) is getattr(modelmeter, TABLE[kind].client_class)
    assert error.kind == kind.name
    assert error.code is grpc.StatusCode[TABLE[kind].code.name]
    assert isinstance(error.__cause__, grpc.RpcError)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
@pytest.mark.parametrize("told", [True, False], ids=["spend told", "nothing told"])
async def test_the_effect_outcome_is_the_one_the_server_books(service, address, kind, told):
    bill: dict[str, Any] = {} if told else {"usage": None, "additional_usage": []}
    service.script("Complete", failing(model_error(_number(kind), **bill)))
    async with modelmeter.AsyncClient(address) as client:
        error = await _caught(client)
    assert error.effect_outcome == effect_outcome(
        kind, outcomes.Disposition[error.disposition.name], spend_told=told
    )


async def test_work_billed_beside_the_usage_is_spend_too(client, service):
    beside = [usage_pb2.AdditionalUsage(kind="compaction", usage=usage_pb2.Usage(output_tokens=1))]
    error = model_error(error_pb2.ERROR_KIND_UNACCOUNTED, usage=None, additional_usage=beside)
    service.script("Complete", failing(error))
    assert (await _caught(client)).effect_outcome is EffectOutcome.METERED


async def test_a_usage_of_zeros_is_no_spend(client, service):
    zeros = usage_pb2.Usage(input_tokens=0, output_tokens=0)
    error = model_error(error_pb2.ERROR_KIND_REFUSED, usage=zeros, additional_usage=[])
    service.script("Complete", failing(error))
    assert (await _caught(client)).effect_outcome is EffectOutcome.REJECTED


async def test_an_error_carries_every_field_of_the_bill(client, service):
    service.script("Complete", failing(model_error(error_pb2.ERROR_KIND_INTERRUPTED)))
    error = await _caught(client)
    assert (error.usage.input_tokens, error.usage.output_tokens) == (11, 0)
    assert error.usage.reasoning_tokens is None
    assert error.usage.hosted_tool_requests == {"web_search": 2}
    assert [(each.kind, each.usage.input_tokens) for each in error.additional_usage] == [("compaction", 5)]
    assert error.certainty is Certainty.AT_LEAST
    assert error.cost is not None
    assert (error.cost.nano_units, error.cost.currency) == (12, "EUR")
    assert error.estimated_output_tokens == 7
    assert error.disposition is Disposition.LANDED
    assert error.effect_outcome is EffectOutcome.METERED
    assert (error.retryable, error.may_have_generated, error.retry_after) == (True, True, 2.5)


async def test_an_error_carries_what_happened_and_where(client, service):
    service.script("Complete", failing(model_error(error_pb2.ERROR_KIND_INTERRUPTED)))
    error = await _caught(client)
    assert str(error) == error.message == "a sentence"
    assert (error.cause, error.stage) == ("IDLE_TIMEOUT", Stage.BODY)
    assert (error.model_asked, error.model_served, error.target) == ("asked", "served", "target")
    assert error.service_tier == "batch"
    assert (error.http_status, error.provider_code) == (529, "overloaded_error")
    assert (error.provider_request_id, error.provider_response_id) == ("req-1", "resp-1")
    assert [(each.number, each.http_status, each.stage) for each in error.attempts] == [(1, 529, Stage.BODY)]
    assert (error.attempts_total, error.call_id) == (3, "call-1")
    assert error.proto == model_error(error_pb2.ERROR_KIND_INTERRUPTED)
    assert error.raw_status == status_of(model_error(error_pb2.ERROR_KIND_INTERRUPTED)).SerializeToString()


async def test_what_an_error_does_not_say_is_none_and_not_zero(client, service):
    service.script("Complete", failing(error_pb2.ModelError(kind=error_pb2.ERROR_KIND_UNACCOUNTED)))
    error = await _caught(client, call_id="0b5a8a3e-6f0a-4b59-9a4e-0a4c3ad5d0f1")
    assert not error.usage.told
    assert error.usage.output_tokens is None
    assert (error.cost, error.http_status, error.retry_after, error.estimated_output_tokens) == (None,) * 4
    assert error.effect_outcome is EffectOutcome.PERFORMED
    assert (error.model_asked, error.message) == ("model", "it failed")
    assert error.call_id == "0b5a8a3e-6f0a-4b59-9a4e-0a4c3ad5d0f1"


async def test_every_mistake_of_a_bad_request_arrives(client, service):
    mistakes = error_details_pb2.BadRequest(
        field_violations=[
            {"field": "model", "description": "is empty"},
            {"field": "messages[2].parts[0]", "description": "is nothing"},
        ]
    )
    service.script("Complete", failing(model_error(error_pb2.ERROR_KIND_REFUSED), mistakes))
    error = await _caught(client)
    assert error.violations == (
        FieldViolation("model", "is empty"),
        FieldViolation("messages[2].parts[0]", "is nothing"),
    )


async def test_the_wait_is_read_from_retry_info_when_the_error_names_none(client, service):
    wait = error_details_pb2.RetryInfo(retry_delay={"seconds": 4})
    error = model_error(error_pb2.ERROR_KIND_OVERLOADED, retry_after=None)
    service.script("Complete", failing(error, wait))
    assert (await _caught(client)).retry_after == 4


async def test_details_are_believed_when_the_code_on_the_wire_is_another(client, service):
    script = failing(model_error(error_pb2.ERROR_KIND_INTERRUPTED), code=grpc.StatusCode.UNAVAILABLE)
    service.script("Complete", script)
    error = await _caught(client)
    assert type(error) is modelmeter.CallInterruptedError
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert error.certainty is Certainty.AT_LEAST


@pytest.mark.parametrize(
    ("disposition", "outcome"),
    [
        (error_pb2.DISPOSITION_DID_NOT_HAPPEN, EffectOutcome.REJECTED),
        (error_pb2.DISPOSITION_LANDED, EffectOutcome.PERFORMED),
        (error_pb2.DISPOSITION_IN_DOUBT, EffectOutcome.INTERRUPTED),
    ],
)
async def test_a_kind_newer_than_the_client_is_the_root_class_with_its_bill(
    client, service, disposition, outcome
):
    newer = model_error(4711, disposition=disposition, usage=None, additional_usage=[])
    service.script("Complete", failing(newer))
    error = await _caught(client)
    assert type(error) is ModelmeterError
    assert error.kind is ErrorKind.UNSPECIFIED
    assert error.proto is not None
    assert error.proto.kind == 4711
    assert (error.effect_outcome, error.estimated_output_tokens, error.retryable) == (outcome, 7, True)


async def test_a_failed_stream_raises_what_the_unary_call_raises(client, service):
    error = model_error(error_pb2.ERROR_KIND_UNACCOUNTED, usage=None, additional_usage=[])
    service.script("Complete", failing(error))
    service.script("StreamComplete", streaming(StreamCompleteResponse(failed=error), then=failing(error)))
    unary = await _caught(client)
    with pytest.raises(modelmeter.UnaccountedError) as streamed:
        await client.events("model", "hi")
    assert vars(streamed.value) == vars(unary)


def test_every_kind_of_the_table_is_a_row_and_every_class_has_one_kind():
    assert [row.name for row in ERROR_ROWS] == [kind.name for kind in TABLE]
    classes = [row.error for row in ERROR_ROWS.values()]
    assert len(set(classes)) == len(classes)
    assert all(issubclass(each, ModelmeterError) for each in classes)


def test_the_tree_in_the_errors_module_names_every_class():
    classes = {
        value.__name__
        for value in vars(modelmeter.errors).values()
        if isinstance(value, type) and issubclass(value, ModelmeterError)
    }
    tree = modelmeter.errors.__doc__ or ""
    assert {name for name in classes if name not in tree} == set()
    assert classes <= set(modelmeter.__all__)
