"""What the server says is what the caller reads, and absent is not zero."""

from __future__ import annotations

from dataclasses import fields

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from modelmeter import _wire, enums, events, messages, results
from modelmeter import errors as client_errors
from modelmeter._results import completion_from, model_from, usage_from
from modelmeter.v1 import (
    admin_service_pb2,
    completion_pb2,
    embedding_pb2,
    error_pb2,
    event_pb2,
    ledger_service_pb2,
    message_pb2,
    model_service_pb2,
    session_pb2,
    usage_pb2,
)

COUNTERS = [name for name in usage_pb2.Usage.DESCRIPTOR.fields_by_name if name != "hosted_tool_requests"]
MIRRORS = [
    (results.Usage, usage_pb2.Usage),
    (results.AdditionalUsage, usage_pb2.AdditionalUsage),
    (results.Cost, usage_pb2.Cost),
    (results.Attempt, error_pb2.Attempt),
    (results.Completion, completion_pb2.Completion),
    (results.HostedTool, completion_pb2.HostedTool),
    (results.Timings, completion_pb2.Timings),
    (results.Model, model_service_pb2.Model),
    (results.ModelCapabilities, model_service_pb2.ModelCapabilities),
    (results.Price, model_service_pb2.Price),
    (results.PriceTier, model_service_pb2.PriceTier),
    (events.Started, completion_pb2.CompletionStarted),
    (events.TextDelta, completion_pb2.TextDelta),
    (events.ReasoningDelta, completion_pb2.ReasoningDelta),
    (events.ToolCallDelta, completion_pb2.ToolCallDelta),
    (events.UsageSnapshot, completion_pb2.UsageSnapshot),
    (messages.ToolCall, message_pb2.ToolCall),
    (messages.ToolResult, message_pb2.ToolResult),
    (messages.Continuation, message_pb2.Continuation),
    (client_errors.ModelmeterError, error_pb2.ModelError),
]
ENUMS = [
    (enums.EventSeverity, _wire.EVENT_SEVERITY, event_pb2.EventSeverity.DESCRIPTOR),
    (enums.BusyPolicy, _wire.BUSY_POLICY, session_pb2.BusyPolicy.DESCRIPTOR),
    (enums.SessionTransport, _wire.SESSION_TRANSPORT, session_pb2.SessionTransport.DESCRIPTOR),
    (enums.SessionEndReason, _wire.SESSION_END_REASON, session_pb2.SessionEndReason.DESCRIPTOR),
    (enums.Certainty, _wire.CERTAINTY, usage_pb2.Certainty.DESCRIPTOR),
    (enums.CostSource, _wire.COST_SOURCE, usage_pb2.CostSource.DESCRIPTOR),
    (enums.ErrorKind, _wire.ERROR_KIND, error_pb2.ErrorKind.DESCRIPTOR),
    (enums.Cause, _wire.CAUSE, error_pb2.Cause.DESCRIPTOR),
    (enums.Stage, _wire.STAGE, error_pb2.Stage.DESCRIPTOR),
    (enums.Disposition, _wire.DISPOSITION, error_pb2.Disposition.DESCRIPTOR),
    (enums.Finish, _wire.FINISH, completion_pb2.Finish.DESCRIPTOR),
    (enums.Role, _wire.ROLE, message_pb2.Role.DESCRIPTOR),
    (enums.Sensitivity, _wire.SENSITIVITY, message_pb2.Sensitivity.DESCRIPTOR),
    (enums.Trust, _wire.TRUST, message_pb2.Trust.DESCRIPTOR),
    (enums.TargetStrategy, _wire.TARGET_STRATEGY, model_service_pb2.TargetStrategy.DESCRIPTOR),
    (enums.PassReason, _wire.PASS_REASON, error_pb2.PassReason.DESCRIPTOR),
    (enums.ModelTask, _wire.MODEL_TASK, model_service_pb2.ModelTask.DESCRIPTOR),
    (
        enums.EmbeddingInputType,
        _wire.EMBEDDING_INPUT_TYPE,
        embedding_pb2.EmbeddingInputType.DESCRIPTOR,
    ),
    (enums.TokenState, _wire.TOKEN_STATE, admin_service_pb2.TokenState.DESCRIPTOR),
    (enums.ToolMode, _wire.TOOL_MODE, message_pb2.ToolChoice.Mode.DESCRIPTOR),
    (enums.SchemaMode, _wire.SCHEMA_MODE, model_service_pb2.SchemaMode.DESCRIPTOR),
    (enums.ReasoningEffort, _wire.REASONING_EFFORT, model_service_pb2.ReasoningEffort.DESCRIPTOR),
    (enums.OnLandedError, _wire.ON_LANDED_ERROR, model_service_pb2.Effect.OnLandedError.DESCRIPTOR),
    (enums.CallState, _wire.CALL_STATE, ledger_service_pb2.CallState.DESCRIPTOR),
    (enums.Operation, _wire.OPERATION, ledger_service_pb2.Operation.DESCRIPTOR),
    (enums.Landing, _wire.LANDING, ledger_service_pb2.Landing.DESCRIPTOR),
    (enums.Reconciler, _wire.RECONCILER, ledger_service_pb2.Reconciler.DESCRIPTOR),
    (enums.ContentState, _wire.CONTENT_STATE, ledger_service_pb2.ContentState.DESCRIPTOR),
    (enums.Scope, _wire.SCOPE, ledger_service_pb2.Subject.Scope.DESCRIPTOR),
    (enums.WindowKind, _wire.WINDOW_KIND, ledger_service_pb2.Window.Kind.DESCRIPTOR),
    (enums.HaltMode, _wire.HALT_MODE, ledger_service_pb2.HaltMode.DESCRIPTOR),
    (enums.GroupBy, _wire.GROUP_BY, ledger_service_pb2.GetSpendRequest.GroupBy.DESCRIPTOR),
    (enums.Period, _wire.PERIOD, ledger_service_pb2.GetSpendRequest.Period.DESCRIPTOR),
]
OF_THE_CLIENT = {
    "proto",
    "code",
    "effect_outcome",
    "violations",
    "raw_status",
    "reason",
    "recorded",
    "sequence",
}


@pytest.mark.parametrize(("value", "proto"), MIRRORS, ids=[value.__name__ for value, _ in MIRRORS])
def test_a_value_has_the_fields_of_its_message(value, proto):
    assert {each.name for each in fields(value)} - OF_THE_CLIENT == set(proto.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("members", "mapped", "descriptor"), ENUMS, ids=[members.__name__ for members, _, _ in ENUMS]
)
def test_every_word_has_its_number_and_its_name_on_the_wire(members, mapped, descriptor):
    for value in descriptor.values:
        member = mapped.member(value.number)
        assert value.name.endswith(f"_{member.name}")
        assert mapped.number(member) == value.number
    assert len(members) == len(descriptor.values)
    assert mapped.member(4711) is members["UNSPECIFIED"]


def test_every_enum_of_the_client_but_its_own_mirrors_one_of_the_proto():
    enums_of_client = {
        name
        for name, value in vars(enums).items()
        if isinstance(value, type) and value.__module__ == enums.__name__ and not name.startswith("_")
    }
    assert enums_of_client - {members.__name__ for members, _, _ in ENUMS} == {"EffectOutcome"}


@pytest.mark.parametrize("name", COUNTERS)
@given(value=st.integers(0, 2**63 - 1))
def test_a_told_counter_arrives_also_when_it_is_zero_and_no_other_does(name, value):
    usage = usage_from(usage_pb2.Usage(**{name: value}))
    assert getattr(usage, name) == value
    assert [other for other in COUNTERS if getattr(usage, other) is not None] == [name]
    assert (usage.told, usage.seen) == (True, value > 0)


def test_a_usage_nobody_told_is_falsy_in_every_way():
    usage = usage_from(usage_pb2.Usage())
    assert usage == results.Usage()
    assert (usage.told, usage.seen, repr(usage)) == (False, False, "Usage()")


def test_hosted_tool_requests_count_as_told_and_seen():
    usage = usage_from(usage_pb2.Usage(hosted_tool_requests={"web_search": 1}))
    assert (usage.told, usage.seen) == (True, True)
    assert repr(usage) == "Usage(hosted_tool_requests={'web_search': 1})"


def test_an_empty_completion_says_that_nothing_was_told():
    answer = completion_from(completion_pb2.Completion())
    assert answer.usage == results.Usage()
    assert (answer.certainty, answer.finish) == ("UNSPECIFIED", "UNSPECIFIED")
    nothing = (answer.cost, answer.structured_json, answer.structured, answer.continuation)
    assert nothing == (None,) * 4
    assert answer.estimated_output_tokens is None
    assert answer.timings == results.Timings(None, None, None)


def test_a_completion_reads_as_it_was_said():
    proto = completion_pb2.Completion(
        text="hello",
        tool_calls=[message_pb2.ToolCall(id="i", name="look", arguments_json='{"a": 1}')],
        certainty=usage_pb2.CERTAINTY_EXACT,
        cost=usage_pb2.Cost(nano_units=5, currency="USD", source=usage_pb2.COST_SOURCE_PROVIDER),
        finish=completion_pb2.FINISH_TOOL_CALLS,
        structured_json='{"b": [1]}',
        trust=message_pb2.TRUST_UNTRUSTED,
        timings=completion_pb2.Timings(queue=Duration(nanos=250_000_000), total=Duration(seconds=3)),
        hosted_tools=[completion_pb2.HostedTool(type="web_search", id="h")],
        attempts=[error_pb2.Attempt(number=1, elapsed=Duration(seconds=2))],
    )
    answer = completion_from(proto)
    assert answer.tool_calls[0].arguments == {"a": 1}
    assert (answer.certainty, answer.finish, answer.trust) == ("EXACT", "TOOL_CALLS", "UNTRUSTED")
    assert answer.cost is not None
    assert (answer.cost.nano_units, answer.cost.source) == (5, "PROVIDER")
    assert answer.structured == {"b": [1]}
    assert answer.timings == results.Timings(queue=0.25, first_token=None, total=3.0)
    assert answer.hosted_tools == (results.HostedTool("web_search", "h", ""),)
    assert (answer.attempts[0].elapsed, answer.attempts[0].http_status) == (2.0, None)
    assert answer.proto is proto


def test_a_json_null_is_an_answer_and_an_absent_one_is_not():
    assert completion_from(completion_pb2.Completion(structured_json="null")).structured_json == "null"


def test_the_next_prompt_takes_the_answer_as_a_turn():
    call = message_pb2.ToolCall(id="i", name="look")
    answer = completion_from(completion_pb2.Completion(text="hm", tool_calls=[call]))
    assert answer.message == messages.Message.assistant("hm", messages.ToolCall("i", "look"))
    without_text = completion_from(completion_pb2.Completion(tool_calls=[call]))
    assert without_text.message.parts == (messages.ToolCall("i", "look"),)


def test_state_of_the_provider_stands_for_the_whole_turn():
    state = message_pb2.Continuation(provider="anthropic", state_json="[1]")
    answer = completion_from(completion_pb2.Completion(text="hm", continuation=state))
    assert answer.message == messages.Message.assistant(messages.Continuation("anthropic", "[1]"))


def test_arguments_are_parsed_unless_they_are_free_text():
    assert messages.ToolCall("i", "n", '{"a": [1]}').arguments == {"a": [1]}
    assert messages.ToolCall("i", "n").arguments == {}
    assert messages.ToolCall("i", "n", "not {json", free_text=True).arguments == "not {json"


def test_a_model_reads_as_it_was_said():
    proto = model_service_pb2.Model(
        name="claude",
        capabilities=model_service_pb2.ModelCapabilities(
            schema_modes=[model_service_pb2.SCHEMA_MODE_NATIVE],
            media=["image"],
            reasoning_efforts=[model_service_pb2.REASONING_EFFORT_LOW, 99],  # type: ignore[list-item]
        ),
        max_output_tokens=16_384,
        max_sensitivity=message_pb2.SENSITIVITY_PUBLIC,
        price=model_service_pb2.Price(
            currency="USD",
            tiers=[
                model_service_pb2.PriceTier(
                    input="5", output="25", above_input_tokens=200_000, input_audio="40", output_audio="80"
                )
            ],
            hosted_tool_requests={"web_search": "0.01"},
        ),
    )
    model = model_from(proto)
    assert model.capabilities.schema_modes == ("NATIVE",)
    assert model.capabilities.reasoning_efforts == ("LOW", "UNSPECIFIED")
    assert (model.name, model.max_output_tokens, model.max_sensitivity) == ("claude", 16_384, "PUBLIC")
    assert model.price is not None
    assert (model.price.tiers[0].output, model.price.tiers[0].above_input_tokens) == ("25", 200_000)
    assert (model.price.tiers[0].input_audio, model.price.tiers[0].output_audio) == ("40", "80")
    assert model.price.hosted_tool_requests == {"web_search": "0.01"}
    unsaid = model_from(model_service_pb2.Model())
    assert (unsaid.price, unsaid.retry_policy) == (None, None)


def test_stages_have_an_order_and_a_name():
    assert enums.Stage.WRITTEN < enums.Stage.BODY
    assert f"{enums.Stage.BODY}" == "BODY"
