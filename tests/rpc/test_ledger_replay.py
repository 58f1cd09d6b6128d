"""What was bought once is never bought again: replays, conflicts, and what the journal can no longer tell."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from modelmeter.v1 import error_pb2, model_service_pb2
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import failure
from modelmeter_server.core.journal import Effect
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.ledger.commands import Erase
from tests.support.ledgers import rows_of
from tests.support.running_server import Details, read_all, serving, streaming
from tests.support.scripted_driver import (
    Broken,
    ScriptedDriver,
    Step,
    Verdict,
    Written,
    answering,
    opening,
    text,
)

RETRY = model_service_pb2.Effect.ON_LANDED_ERROR_RETRY
LIMITED: list[Step] = [Written(), Verdict(failure(Kind.RATE_LIMITED, "wait"))]
BROKEN: list[Step] = [Written(), opening(), text("Hel"), Broken()]


UNKNOWN_WORD: dict[str, Any] = {"on_landed_error": 7}


def effect(key: str = "k", **fields: Any) -> model_service_pb2.Effect:
    return model_service_pb2.Effect(run_id="run", key=key, **fields)


def told(completion: Any) -> Any:
    """Return a completion without what may differ between a purchase and its replay."""
    bare = type(completion).FromString(completion.SerializeToString())
    for field in ("replayed", "timings", "call_id"):
        bare.ClearField(field)
    for attempt in bare.attempts:
        attempt.ClearField("elapsed")
    return bare


async def test_an_answer_is_replayed_under_its_call_id_and_equals_the_first(ledger):
    driver, call_id = ScriptedDriver(answering("Hel", "lo.")), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        first = (await running.ask(call_id=call_id)).completion
        again = (await running.ask(call_id=call_id)).completion
    assert (first.replayed, again.replayed) == (False, True)
    assert first.settled
    assert again.settled
    assert again.call_id == call_id
    assert told(first) == told(again)
    assert len(driver.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_effect_is_answered_from_the_call_that_had_it_first(ledger, stream: bool):
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=ledger) as running:
        first = (await running.ask(effect=effect(), call_id=str(uuid.uuid4()))).completion
        again = (await running.ask(stream=stream, effect=effect(), call_id=str(uuid.uuid4()))).completion
    assert again.replayed
    assert again.call_id == first.call_id
    assert len(driver.calls) == 1


async def test_a_replayed_stream_is_one_delta_and_the_completion(ledger):
    call_id = str(uuid.uuid4())
    async with serving(ScriptedDriver(answering("Hel", "lo.")), ledger=ledger) as running:
        await running.ask(call_id=call_id)
        events, error = await read_all(running.stub.StreamComplete(streaming(call_id=call_id)))
        late = streaming(call_id=call_id)
        late.from_sequence = 1
        rest, _ = await read_all(running.stub.StreamComplete(late))
    assert error is None
    assert [(event.WhichOneof("event"), event.sequence) for event in events] == [
        ("text", 1),
        ("completion", 0),
    ]
    assert events[0].text.text == "Hello."
    assert [event.WhichOneof("event") for event in rest] == ["completion"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_that_landed_is_replayed_with_its_bill(ledger, stream: bool):
    driver, call_id = ScriptedDriver(BROKEN), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        errors = [Details(await running.error(call_id=call_id, stream=stream)).model_error for _ in range(2)]
    assert [error.kind for error in errors] == [error_pb2.ERROR_KIND_INTERRUPTED] * 2
    assert errors[0] == errors[1]
    assert len(driver.calls) == 1


async def test_retry_buys_an_error_that_landed_again_and_both_are_billed(ledger):
    driver = ScriptedDriver(BROKEN, answering())
    async with serving(driver, ledger=ledger) as running:
        await running.error(effect=effect())
        answer = (await running.ask(effect=effect(on_landed_error=RETRY))).completion
        again = (await running.ask(effect=effect(on_landed_error=RETRY))).completion
    assert (answer.replayed, again.replayed) == (False, True)
    rows = await rows_of(ledger)
    assert sorted((row.generation, row.kind) for row in rows) == [(1, "INTERRUPTED"), (2, "")]
    assert all(row.booking.settled_tokens for row in rows)


async def test_what_did_not_happen_is_dispatched_again_under_its_id(ledger):
    driver, call_id = ScriptedDriver(LIMITED, answering()), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        error = await running.error(call_id=call_id)
        answer = (await running.ask(call_id=call_id)).completion
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not answer.replayed
    assert len(driver.calls) == 2
    (row,) = await rows_of(ledger)
    assert (row.generation, row.dispatch) == (1, 2)


async def test_another_request_under_a_call_id_conflicts_and_says_where(ledger):
    driver, call_id = ScriptedDriver(answering()), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        await running.ask(call_id=call_id, max_output_tokens=5)
        error = await running.error(call_id=call_id, max_output_tokens=6)
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert Details(error).model_error.differing_field == "max_output_tokens"
    assert "max_output_tokens" in (error.details() or "")
    assert len(driver.calls) == 1


async def test_another_request_under_an_effect_key_has_diverged(ledger):
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=ledger) as running:
        await running.ask(effect=effect())
        error = await running.error(text="Other", effect=effect())
    details = Details(error)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert details.model_error.kind == error_pb2.ERROR_KIND_DIVERGED
    assert details.model_error.differing_field == "text"
    assert details.metadata["grpc-retry-pushback-ms"] == "-1"


async def test_labels_and_the_deadline_do_not_make_another_request(ledger):
    driver, call_id = ScriptedDriver(answering()), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        await running.ask(call_id=call_id, labels={"team": "a"}, timeout=5)
        again = (await running.ask(call_id=call_id, labels={"team": "b"}, timeout=9)).completion
    assert again.replayed


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_erased_is_gone_and_not_bought_again(ledger, stream: bool):
    driver, call_id = ScriptedDriver(answering()), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        await running.ask(call_id=call_id)
        await ledger.order(Erase(tenant="default", call_id=call_id))
        error = await running.error(call_id=call_id, stream=stream)
    assert Details(error).info.reason == "OUTCOME_GONE"
    assert "34 tokens" in (error.details() or "")
    assert len(driver.calls) == 1


async def test_replay_only_buys_nothing(ledger):
    driver, call_id = ScriptedDriver(answering()), str(uuid.uuid4())
    async with serving(driver, ledger=ledger) as running:
        missed = await running.error(call_id=call_id, replay_only=True)
        await running.ask(call_id=call_id)
        hit = (await running.ask(call_id=call_id, replay_only=True)).completion
    assert (missed.code(), Details(missed).info.reason) == (grpc.StatusCode.NOT_FOUND, "REPLAY_MISS")
    assert hit.replayed
    assert len(driver.calls) == 1


async def test_a_deployment_can_be_for_replays_alone(ledger):
    driver = ScriptedDriver(answering())
    async with serving(driver, ledger=ledger, replay_only=True) as running:
        error = await running.error()
    assert Details(error).info.reason == "REPLAY_MISS"
    assert driver.calls == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"effect": effect()}, "effect"),
        ({"ceiling": model_service_pb2.CallCeiling(tokens=1)}, "ceiling"),
        ({"replay_only": True}, "replay_only"),
    ],
)
async def test_without_a_ledger_its_fields_are_refused(fields, field):
    driver = ScriptedDriver(answering())
    async with serving(driver) as running:
        error = await running.error(**fields)
    (violation,) = Details(error).bad_request.field_violations
    assert violation.field == field
    assert "needs a ledger" in violation.description
    assert driver.calls == []


async def test_without_a_ledger_a_stream_cannot_go_on_from_a_number():
    request = streaming()
    request.from_sequence = 3
    async with serving(ScriptedDriver(answering())) as running:
        _, error = await read_all(running.stub.StreamComplete(request, timeout=5))
    assert error is not None
    assert [each.field for each in Details(error).bad_request.field_violations] == ["from_sequence"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"effect": model_service_pb2.Effect(key="k")}, "effect.run_id"),
        ({"effect": model_service_pb2.Effect(run_id="r" * 129, key="k")}, "effect.run_id"),
        ({"effect": model_service_pb2.Effect(run_id="r", key="a\0b")}, "effect.key"),
        (
            {"effect": model_service_pb2.Effect(run_id="r", key="k", **UNKNOWN_WORD)},
            "effect.on_landed_error",
        ),
        ({"ceiling": model_service_pb2.CallCeiling(tokens=-1)}, "ceiling.tokens"),
        ({"ceiling": model_service_pb2.CallCeiling(nano_units=1)}, "ceiling.currency"),
        ({"labels": {"a": "b\0"}}, "labels"),
    ],
)
async def test_what_the_ledger_cannot_take_is_refused_with_its_field(ledger, wrong, field):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        error = await running.error(**wrong)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in [each.field for each in Details(error).bad_request.field_violations]


async def test_another_tenants_call_id_and_effect_are_as_good_as_new(ledger):
    call_id, driver = str(uuid.uuid4()), ScriptedDriver(answering(), answering())
    async with serving(driver, ledger=ledger) as running:
        await running.ask(call_id=call_id, effect=effect())
        asked = CompletionRequest(
            model="claude", call_id=call_id, text="Other words", effect=Effect(run_id="run", key="k")
        )
        outcome = await running.engine.start(asked, tenant="other").outcome()
        again = await running.engine.start(asked, tenant="other").outcome()
    assert isinstance(outcome.result, Answer), "no conflict tells that somebody else has such a call"
    assert (outcome.replayed, again.replayed) == (False, True)
    assert len(driver.calls) == 2
