"""Complete over a real channel: the answer with its bill, and every kind of failure with its status."""

from __future__ import annotations

import uuid

import grpc
import msgspec
import pytest

from modelmeter.v1 import completion_pb2, error_pb2, message_pb2, usage_pb2
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import TABLE, Failure, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.usage import Usage
from tests.support.running_server import MODEL, Details, serving
from tests.support.scripted_driver import Broken, ScriptedDriver, Verdict, Written, answering, opening, text

PRICE = PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
USED = Usage(input_tokens=25, output_tokens=9)


async def fail(driver: ScriptedDriver, **fields) -> tuple[grpc.aio.AioRpcError, Details]:
    """Call once and return how it failed."""
    async with serving(driver) as running:
        error = await running.error(**fields)
    return error, Details(error)


async def test_an_answer_arrives_whole_with_its_bill_and_its_origin():
    async with serving(ScriptedDriver(answering("Hel", "lo."))) as running:
        call_id = str(uuid.uuid4())
        answer = (await running.ask(call_id=call_id)).completion
    assert answer.text == "Hello."
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (25, 9)
    assert answer.certainty == usage_pb2.CERTAINTY_EXACT
    assert answer.finish == completion_pb2.FINISH_STOP
    assert answer.trust == message_pb2.TRUST_UNTRUSTED
    assert (answer.call_id, answer.model_asked, answer.target) == (call_id, "claude", "scripted")
    assert (answer.model_served, answer.provider_response_id) == ("scripted-1", "msg_1")
    assert answer.attempts_total == len(answer.attempts) == 1
    assert answer.timings.HasField("first_token")
    assert not answer.HasField("cost")
    assert not answer.settled


async def test_a_call_without_an_id_gets_one_and_every_call_another():
    async with serving(ScriptedDriver(answering())) as running:
        ids = [(await running.ask()).completion.call_id for _ in range(2)]
    assert len(set(map(uuid.UUID, ids))) == 2


async def test_the_price_table_puts_a_cost_on_answers_and_on_failures():
    driver = ScriptedDriver(answering(), [Written(), opening(), text("He"), Broken()])
    async with serving(driver, models=[msgspec.structs.replace(MODEL, price=PRICE)]) as running:
        answer = (await running.ask()).completion
        error = await running.error()
    assert (answer.cost.nano_units, answer.cost.currency) == (25 * 5_000 + 9 * 25_000, "USD")
    assert answer.cost.source == usage_pb2.COST_SOURCE_PRICE_TABLE
    broken = Details(error).model_error
    assert broken.cost.nano_units == 25 * 5_000 + 1 * 25_000
    assert broken.cost.certainty == usage_pb2.CERTAINTY_AT_LEAST


async def test_a_broken_answer_is_aborted_with_the_figures_so_far():
    error, details = await fail(ScriptedDriver([Written(), opening(), text("He"), Broken()]))
    assert error.code() is grpc.StatusCode.ABORTED
    assert details.info.reason == "INTERRUPTED"
    told = details.model_error
    assert told.kind == error_pb2.ERROR_KIND_INTERRUPTED
    assert (told.cause, told.stage) == (error_pb2.CAUSE_NETWORK, error_pb2.STAGE_OUTPUT)
    assert (told.disposition, told.certainty) == (error_pb2.DISPOSITION_LANDED, usage_pb2.CERTAINTY_AT_LEAST)
    assert (told.usage.input_tokens, told.usage.output_tokens) == (25, 1)
    assert told.may_have_generated
    assert not told.retryable
    assert error.details() == (
        "the connection broke before the answer was whole (model claude: 25 input + 1 output tokens, AT_LEAST)"
    )


def outcome_of(kind: Kind) -> Failure:
    """Return a failure of this kind with all that its row allows."""
    row = TABLE[kind]
    certainty = row.certainties[0]
    told = certainty in (Certainty.EXACT, Certainty.AT_LEAST)
    stage = Stage.OUTPUT if told else Stage.NOT_WRITTEN
    return failure(kind, f"it was {kind.name}", stage=stage, usage=USED if told else None, retry_after=2.5)


@pytest.mark.parametrize("kind", Kind)
async def test_every_kind_travels_with_the_code_and_the_facts_of_its_row(kind):
    failed = outcome_of(kind)
    error, details = await fail(ScriptedDriver([Verdict(failed)]))
    assert error.code().value[0] == failed.code == TABLE[kind].code
    assert (details.info.reason, details.info.domain) == (kind.name, "modelmeter")
    told = details.model_error
    assert error_pb2.ErrorKind.Name(told.kind) == f"ERROR_KIND_{kind.name}"
    assert error_pb2.Disposition.Name(told.disposition) == f"DISPOSITION_{failed.disposition.name}"
    assert usage_pb2.Certainty.Name(told.certainty) == f"CERTAINTY_{failed.certainty.name}"
    assert told.retryable == failed.retryable
    assert told.HasField("usage") == (failed.usage is not None)
    assert details.retry.retry_delay.ToMilliseconds() == told.retry_after.ToMilliseconds() == 2500
    assert details.status.code == error.code().value[0]
    assert details.status.message == error.details()
    assert (details.quota is not None) == (kind is Kind.CEILING)


@pytest.mark.parametrize(
    ("kind", "pushback"),
    [
        (Kind.OVERLOADED, "2500"),
        (Kind.DRAINING, "2500"),
        (Kind.CEILING, "-1"),
        (Kind.HALTED, "-1"),
        (Kind.DIVERGED, "-1"),
        (Kind.UNREACHABLE, None),
        (Kind.INTERRUPTED, None),
    ],
)
async def test_pushback_goes_only_where_nothing_was_dispatched(kind, pushback):
    _, details = await fail(ScriptedDriver([Verdict(outcome_of(kind))]))
    assert details.metadata.get("grpc-retry-pushback-ms") == pushback


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (Cause.DEADLINE, grpc.StatusCode.DEADLINE_EXCEEDED),
        (Cause.CALLER, grpc.StatusCode.CANCELLED),
        (Cause.DRAIN, grpc.StatusCode.ABORTED),
    ],
)
async def test_a_deadline_and_a_leaving_caller_decide_the_code_whatever_the_kind(cause, code):
    error, details = await fail(ScriptedDriver([Written(), opening(), Broken(cause)]))
    assert error.code() is code
    assert details.info.reason == "INTERRUPTED"


async def test_a_settled_bill_is_told_as_settled_and_a_failed_booking_is_not():
    driver = ScriptedDriver(answering())
    async with serving(driver) as running:
        running.memory.settles = True
        assert (await running.ask()).completion.settled
        running.memory.error = OSError("the disk is full")
        answer = (await running.ask()).completion
    assert answer.text == "Hello."
    assert not answer.settled


async def test_labels_reach_the_record_and_not_the_provider():
    driver = ScriptedDriver(answering())
    async with serving(driver) as running:
        await running.ask(labels={"team": "red"})
    assert running.memory.outcomes[0].labels == {"team": "red"}


async def test_an_answer_above_four_mebibytes_arrives_where_the_client_takes_it():
    whole = Answer(text="x" * (5 << 20), usage=USED, certainty=Certainty.EXACT)
    options = [("grpc.max_receive_message_length", -1)]
    async with serving(ScriptedDriver([Written(), Verdict(whole)]), channel_options=options) as running:
        assert len((await running.ask()).completion.text) == 5 << 20


async def test_an_answer_that_the_client_does_not_take_is_recorded_with_its_bill():
    whole = Answer(text="x" * (5 << 20), usage=USED, certainty=Certainty.EXACT)
    async with serving(ScriptedDriver([Written(), Verdict(whole)])) as running:
        error = await running.error()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert running.memory.outcomes[0].result.usage == USED
