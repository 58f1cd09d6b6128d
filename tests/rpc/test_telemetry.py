"""What calls leave behind for operators: events, spans and counts, for every way that a call can end."""

from __future__ import annotations

import asyncio

import grpc
import msgspec
import pytest
from opentelemetry.trace import StatusCode

from modelmeter.v1 import ledger_service_pb2, model_service_pb2, usage_pb2
from modelmeter_server.core.errors import TABLE, failure
from modelmeter_server.core.events import kind_of
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.core.usage import Usage
from modelmeter_server.telemetry import conventions as names
from tests.rpc.test_ledger_service import stub_of
from tests.support.running_server import MODEL, asking, serving
from tests.support.scripted_driver import Explode, Hold, ScriptedDriver, Verdict, Written, answering, opening
from tests.support.watching import Observed

PRICE = PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
PRICED = msgspec.structs.replace(MODEL, price=PRICE)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
COMPLETE = "modelmeter.v1.ModelService/Complete"


async def observed(driver: ScriptedDriver, **options) -> tuple[Observed, str]:
    """Make one call and return what it left, and the name of its status."""
    seen = Observed()
    fields = options.pop("fields", {})
    async with serving(driver, models=[PRICED], telemetry=seen.telemetry, **options) as running:
        try:
            await running.ask(**fields)
        except grpc.aio.AioRpcError as error:
            return seen, error.code().name
    return seen, "OK"


async def test_an_answer_is_told_from_its_start_to_its_bill():
    seen, _ = await observed(ScriptedDriver(answering()), fields={"labels": {"conversation_id": "chat-1"}})
    assert seen.kinds() == ["prompt.started", "attempt", "prompt.completed"]
    started, attempt, completed = seen.events()
    assert [event.tick for event in seen.events()] == [1, 2, 3]
    assert started.call_id == attempt.call_id == completed.call_id
    assert {event.conversation_id for event in seen.events()} == {"chat-1"}
    assert (started.messages, started.streamed) == (1, False)
    assert completed.usage == Usage(input_tokens=25, output_tokens=9)
    assert completed.cost.nano_units == 25 * 5_000 + 9 * 25_000
    assert (completed.certainty, completed.finish.value) == (Certainty.EXACT, "STOP")
    assert completed.provider_response_id == "msg_1"
    assert attempt.error_kind is None


async def test_an_answer_is_counted_with_tokens_money_and_times():
    seen, _ = await observed(ScriptedDriver(answering()))
    counted = seen.metrics()
    genai = {names.OPERATION: "chat", names.PROVIDER: "scripted", names.REQUEST_MODEL: "claude"}
    assert counted[names.INFERENCE_USAGE + "input_tokens"] == [(genai, 25)]
    assert counted[names.INFERENCE_USAGE + "output_tokens"] == [(genai, 9)]
    for name in (names.INFERENCE_DURATION, names.INFERENCE_FIRST_CHUNK, names.SERVER_DURATION):
        assert counted[name] == [(genai, 1)]
    assert counted[names.COST] == [
        ({names.REQUEST_MODEL: "claude", names.CURRENCY: "USD"}, 25 * 5_000 + 9 * 25_000)
    ]
    assert counted[names.CALLS] == [
        (
            {
                names.REQUEST_MODEL: "claude",
                names.OUTCOME: "OK",
                names.DISPOSITION: "LANDED",
                names.CERTAINTY: "EXACT",
            },
            1,
        )
    ]
    assert counted[names.RPC_SERVER_DURATION] == [
        ({names.RPC_SYSTEM: "grpc", names.RPC_METHOD: COMPLETE, names.RPC_STATUS: "OK"}, 1)
    ]


async def test_an_answer_has_a_span_of_its_rpc_and_one_of_its_attempt_below_it():
    seen, _ = await observed(ScriptedDriver(answering()), fields={"max_output_tokens": 77})
    (rpc,), (attempt,) = seen.rpc_spans, seen.attempt_spans
    assert (rpc.name, attempt.name) == (COMPLETE, "chat scripted-1")
    assert attempt.parent.span_id == rpc.context.span_id
    told = dict(attempt.attributes)
    assert told[names.INPUT_TOKENS] == 25
    assert told[names.OUTPUT_TOKENS] == 9
    assert told[names.REQUEST_MAX_TOKENS] == 77
    assert told[names.RESPONSE_MODEL] == "scripted-1"
    assert told[names.FINISH_REASONS] == ("end_turn",)
    assert told[names.CALL_ID] == seen.events()[0].call_id == rpc.attributes[names.CALL_ID]
    assert names.ERROR_TYPE not in told
    assert names.OLD_SYSTEM not in told
    assert attempt.status.status_code is StatusCode.UNSET
    assert attempt.end_time - attempt.start_time == 1_000_000


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
async def test_every_kind_of_failure_is_told_with_its_bill(kind):
    certainty = TABLE[kind].certainties[0]
    told = certainty in (Certainty.EXACT, Certainty.AT_LEAST)
    failed = failure(
        kind,
        "it went wrong",
        cause=Cause.PROVIDER,
        stage=Stage.OUTPUT,
        certainty=certainty,
        usage=Usage(input_tokens=3, output_tokens=2) if told else None,
        provider_code="odd_code",
        provider_response_id="msg_9",
    )
    seen, code = await observed(ScriptedDriver([Written(), Verdict(failed)]))
    event = seen.event("prompt.failed")
    assert (event.error_kind, event.certainty, event.cause) == (kind, certainty, Cause.PROVIDER)
    assert (event.usage is not None, event.cost is not None) == (told, told)
    assert (event.provider_code, event.provider_response_id) == ("odd_code", "msg_9")
    assert event.message == TABLE[kind].meaning  # a provider's words may echo a prompt
    (rpc,), (attempt,) = seen.rpc_spans, seen.attempt_spans
    assert (rpc.attributes[names.RPC_STATUS], rpc.attributes[names.ERROR_TYPE]) == (code, code)
    assert attempt.attributes[names.ERROR_TYPE] == kind.value
    assert attempt.status.status_code is StatusCode.ERROR
    ((attributes, calls),) = seen.metrics()[names.CALLS]
    assert (attributes[names.OUTCOME], calls) == (kind.value, 1)
    ((attributes, _),) = seen.metrics()[names.INFERENCE_DURATION]
    assert attributes[names.ERROR_TYPE] == kind.value


async def test_a_retry_is_told_and_each_attempt_has_its_span_and_its_count():
    throttled = failure(Kind.RATE_LIMITED, "wait", cause=Cause.PROVIDER, stage=Stage.HEADERS)
    again = msgspec.structs.replace(PRICED, retry=RetryPolicy(max_attempts=2, initial_wait=0.001))
    seen = Observed()
    driver = ScriptedDriver([Written(), Verdict(throttled)], answering())
    async with serving(driver, models=[again], telemetry=seen.telemetry) as running:
        await running.ask()
    assert seen.kinds() == ["prompt.started", "attempt", "retry", "attempt", "prompt.completed"]
    first, second = [event for event in seen.events() if kind_of(event) == "attempt"]
    assert (first.number, first.error_kind) == (1, Kind.RATE_LIMITED)
    assert (second.number, second.error_kind) == (2, None)
    assert seen.event("retry").number == 2
    assert seen.event("prompt.completed").attempts_total == 2
    (rpc,), spans = seen.rpc_spans, seen.attempt_spans
    assert [span.parent.span_id for span in spans] == [rpc.context.span_id] * 2
    assert [span.attributes[names.ATTEMPT] for span in spans] == [1, 2]
    assert [span.attributes.get(names.ERROR_TYPE) for span in spans] == ["RATE_LIMITED", None]
    assert [span.attributes.get(names.OUTPUT_TOKENS) for span in spans] == [None, 9]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.UNSET]
    counted = seen.metrics()
    assert counted[names.RETRIES] == [({names.TARGET: "scripted"}, 1)]
    errors = {each[0].get(names.ERROR_TYPE): each[1] for each in counted[names.INFERENCE_DURATION]}
    assert errors == {"RATE_LIMITED": 1, None: 1}
    assert sum(calls for _, calls in counted[names.CALLS]) == 1


async def test_a_caller_who_leaves_is_told_as_cancelled_with_what_was_consumed():
    hold, seen = Hold(), Observed()
    driver = ScriptedDriver([Written(), opening(), hold])
    async with serving(driver, telemetry=seen.telemetry) as running:
        call = running.stub.Complete(asking())
        await hold.reached.wait()
        call.cancel()
        await driver.calls[0].closed.wait()
        await running.engine.drain(5)
    event = seen.event("prompt.failed")
    assert (event.error_kind, event.cause) == (Kind.INTERRUPTED, Cause.CALLER)
    assert event.usage.input_tokens == 25
    (attempt,) = seen.attempt_spans
    assert attempt.attributes[names.CAUSE] == "CALLER"
    (rpc,) = seen.rpc_spans
    assert rpc.attributes[names.RPC_STATUS] == "CANCELLED"


async def test_a_deadline_is_told_as_one():
    hold, seen = Hold(), Observed()
    async with serving(ScriptedDriver([Written(), opening(), hold]), telemetry=seen.telemetry) as running:
        await running.error(timeout=0.3)
        await running.engine.drain(5)
    assert seen.event("prompt.failed").cause is Cause.DEADLINE
    assert seen.rpc_spans[0].attributes[names.RPC_STATUS] == "DEADLINE_EXCEEDED"


async def test_a_bug_is_an_error_and_nothing_of_it_shows():
    seen, code = await observed(ScriptedDriver([Written(), Explode(RuntimeError("the key is hunter2"))]))
    assert code == "INTERNAL"
    assert seen.event("prompt.failed").severity.name == "ERROR"
    assert "hunter2" not in seen.everything()


async def test_a_call_takes_its_place_in_the_trace_of_its_caller():
    seen = Observed()
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        header = (("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "a=b"))
        await running.stub.Complete(asking(), metadata=header)
    (rpc,), (attempt,) = seen.rpc_spans, seen.attempt_spans
    assert f"{rpc.context.trace_id:032x}" == f"{attempt.context.trace_id:032x}" == TRACE
    assert f"{rpc.parent.span_id:016x}" == PARENT
    assert rpc.context.trace_state.get("a") == "b"
    assert {(event.trace_id, event.span_id) for event in seen.events()} == {
        (TRACE, f"{rpc.context.span_id:016x}")
    }


async def test_without_an_exporter_of_traces_events_still_name_the_callers_trace():
    seen = Observed()
    seen.telemetry.spans = None
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        await running.stub.Complete(asking(), metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
        await running.stub.Complete(asking(), metadata=(("traceparent", "nonsense"),))
    assert [event.trace_id for event in seen.events()] == [TRACE] * 3 + [""] * 3


async def test_the_names_of_before_stand_beside_the_new_ones_where_asked_for():
    seen = Observed(old_names=True)
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        await running.ask()
    counted = seen.metrics()
    assert {names.OLD_DURATION, names.OLD_FIRST_CHUNK, names.OLD_TOKENS, names.INFERENCE_DURATION} <= {
        *counted
    }
    assert [each[0][names.OLD_TOKEN_TYPE] for each in counted[names.OLD_TOKENS]] == ["input", "output"]
    assert seen.attempt_spans[0].attributes[names.OLD_SYSTEM] == "scripted"


async def test_a_model_that_nobody_knows_makes_no_series_of_its_own():
    seen = Observed()
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        for number in range(5):
            await running.error(model=f"made-up-{number}")
    (found,) = seen.metrics()[names.CALLS]
    assert (found[0][names.REQUEST_MODEL], found[1]) == ("_OTHER", 5)


async def test_no_call_fails_because_somebody_looks_at_it(monkeypatch):
    seen = Observed()
    for part, name in (
        (seen.telemetry.instruments, "call_ended"),
        (seen.telemetry.happenings, "call_started"),
    ):
        monkeypatch.setattr(part, name, None)
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        assert (await running.ask()).completion.text == "Hello."


async def test_rpcs_that_call_no_model_are_watched_as_well():
    seen = Observed()
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry) as running:
        await running.stub.ListModels(model_service_pb2.ListModelsRequest())
    assert seen.rpc_spans[0].name == "modelmeter.v1.ModelService/ListModels"
    assert seen.events() == []


# With a ledger


async def test_a_replayed_call_is_told_as_one_and_consumes_nothing(ledger):
    seen, call_id = Observed(), "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    async with serving(
        ScriptedDriver(answering()), telemetry=seen.telemetry, ledger=ledger, content_seconds=60
    ) as running:
        for _ in range(2):
            await running.ask(call_id=call_id)
    assert seen.kinds() == [
        *("prompt.started", "attempt", "prompt.completed"),
        *("prompt.started", "prompt.completed", "replay"),
    ]
    assert seen.events()[2].settled
    counted = seen.metrics()
    assert counted[names.INFERENCE_USAGE + "input_tokens"][0][1] == 25
    assert counted[names.REPLAYS] == [({names.REQUEST_MODEL: "claude", names.OUTCOME: "OK"}, 1)]
    landed = {
        each[0][names.DISPOSITION]: (each[0][names.CERTAINTY], each[1]) for each in counted[names.CALLS]
    }
    assert landed == {"LANDED": ("EXACT", 1), "DID_NOT_HAPPEN": ("NONE", 1)}
    assert len(seen.attempt_spans) == 1


async def test_a_ceiling_without_room_is_told_with_where_it_stands(ledger):
    seen = Observed()
    async with serving(ScriptedDriver(answering()), telemetry=seen.telemetry, ledger=ledger) as running:
        subject = ledger_service_pb2.Subject(scope=ledger_service_pb2.Subject.SCOPE_TENANT)
        ceiling = ledger_service_pb2.Ceiling(subject=subject, tokens=5)
        await stub_of(running).SetCeiling(ledger_service_pb2.SetCeilingRequest(ceiling=ceiling))
        await running.error()
    event = seen.event("ceiling")
    assert (event.scope, event.allowed, event.booked) == ("TENANT", 5, 0)
    assert event.asked > 5
    assert seen.kinds()[-1] == "prompt.failed"


async def test_halts_and_reconciliations_are_told(ledger):
    seen, hold = Observed(), Hold()
    driver = ScriptedDriver([Written(), opening(), hold])
    async with serving(driver, telemetry=seen.telemetry, ledger=ledger) as running:
        stub, pb = stub_of(running), ledger_service_pb2
        call = asyncio.ensure_future(running.error())
        await hold.reached.wait()
        subject = pb.Subject(scope=pb.Subject.SCOPE_TENANT)
        await stub.SetHalt(pb.SetHaltRequest(halt=pb.Halt(subject=subject, mode=pb.HALT_MODE_CUT)))
        await call
        await stub.ClearHalt(pb.ClearHaltRequest(subject=subject))
        figure = pb.OperatorFigure(certainty=usage_pb2.CERTAINTY_EXACT, reason="the invoice says so")
        figure.usage.input_tokens, figure.usage.output_tokens = 25, 4
        call_id = seen.event("prompt.failed").call_id
        await stub.ReconcileCall(pb.ReconcileCallRequest(call_id=call_id, figure=figure))
    halted, cleared = [event for event in seen.events() if type(event).__name__ == "HaltChanged"]
    assert (halted.scope, halted.mode, halted.calls_cut, cleared.cleared) == ("TENANT", "CUT", 1, True)
    truer = seen.event("reconcile")
    assert (truer.by, truer.raised, truer.certainty) == ("operator", True, Certainty.EXACT)
    assert truer.call_id == call_id
