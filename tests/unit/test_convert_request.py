"""A request keeps what it says on its way from the wire, and every mistake of the wire form is named."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter_server.core.journal import Effect, OnLandedError
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import (
    CallCeiling,
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Message,
    ReasoningEffort,
    Role,
    SchemaMode,
    Sensitivity,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.core.retry_policy import RetryAsk
from modelmeter_server.rpc import words
from modelmeter_server.rpc.convert_request import Violations, completion_request, flush_interval
from tests.support.domain_values import MODEL

CALL_ID = "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c"

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
continuations = st.builds(Continuation, texts, texts)
media = st.one_of(
    st.builds(
        MediaPart, kind=st.sampled_from(MediaKind), media_type=texts, data=st.binary(max_size=9), name=texts
    ),
    st.builds(MediaPart, kind=st.sampled_from(MediaKind), media_type=texts, url=texts, name=texts),
)
parts = st.one_of(
    st.builds(TextPart, texts),
    media,
    st.builds(ToolCallPart, id=texts, name=texts, arguments_json=names, free_text=st.booleans()),
    st.builds(ToolResultPart, call_id=texts, output=texts, failed=st.booleans()),
    continuations,
)
messages = st.builds(Message, st.sampled_from(Role), st.lists(parts, max_size=3).map(tuple))
tools = st.builds(Tool, name=texts, description=texts, parameters_json=texts, strict=st.booleans())
prompts = st.one_of(
    st.fixed_dictionaries({"text": texts}),
    st.fixed_dictionaries({"messages": st.lists(messages, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"native_json": texts}),
)
int32 = st.integers(-(2**31), 2**31 - 1)
requests = st.builds(
    lambda prompt, **fields: CompletionRequest(call_id=CALL_ID, **prompt, **fields),
    prompts,
    model=texts,
    system=texts,
    tools=st.lists(tools, max_size=3).map(tuple),
    tool_choice=st.none()
    | st.builds(ToolChoice, mode=st.sampled_from(ToolMode), name=texts, disable_parallel_calls=st.booleans()),
    output_schema_json=texts,
    schema_mode=st.none() | st.sampled_from(SchemaMode),
    max_output_tokens=st.none() | int32,
    temperature=st.none() | st.floats(allow_nan=False),
    top_p=st.none() | st.floats(allow_nan=False),
    top_k=st.none() | int32,
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop_sequences=st.lists(texts, max_size=3).map(tuple),
    reasoning_effort=st.none() | st.sampled_from(ReasoningEffort),
    provider_options_json=texts,
    continuation=st.none() | continuations,
    labels=st.dictionaries(texts, texts, max_size=3),
)


def to_wire(request: CompletionRequest) -> model_service_pb2.CompleteRequest:
    """Say the request in the proto's terms, field by field."""
    names = "model call_id text native_json system output_schema_json max_output_tokens temperature top_p top_k seed"
    plain = f"{names} provider_options_json stop_sequences labels".split()
    message = model_service_pb2.CompleteRequest(**{name: getattr(request, name) for name in plain})
    if request.messages is not None:
        message.messages.SetInParent()
        message.messages.messages.extend(map(_turn, request.messages))
    message.tools.extend(
        message_pb2.Tool(**{name: getattr(tool, name) for name in tool.__struct_fields__})
        for tool in request.tools
    )
    if request.tool_choice is not None:
        message.tool_choice.SetInParent()
        message.tool_choice.mode = words.TOOL_MODES[request.tool_choice.mode]
        message.tool_choice.name = request.tool_choice.name
        message.tool_choice.disable_parallel_calls = request.tool_choice.disable_parallel_calls
    if request.schema_mode is not None:
        message.schema_mode = words.SCHEMA_MODES[request.schema_mode]
    if request.reasoning_effort is not None:
        message.reasoning_effort = words.REASONING_EFFORTS[request.reasoning_effort]
    if request.continuation is not None:
        message.continuation.CopyFrom(_continuation(request.continuation))
    return message


def _continuation(part: Continuation) -> message_pb2.Continuation:
    return message_pb2.Continuation(provider=part.provider, state_json=part.state_json)


def _turn(message: Message) -> message_pb2.Message:
    return message_pb2.Message(role=words.ROLES[message.role], parts=map(_part, message.parts))


def _part(part: Any) -> message_pb2.Part:
    if isinstance(part, TextPart):
        return message_pb2.Part(text=part.text)
    if isinstance(part, MediaPart):
        medium: Any = {"data": part.data} if part.url is None else {"url": part.url}
        medium |= {"media_type": part.media_type, "name": part.name}
        return message_pb2.Part(**{part.kind.value: medium})
    if isinstance(part, Continuation):
        return message_pb2.Part(continuation=_continuation(part))
    # A mark stands on the proto's part, and these parts have none.
    fields = {name: getattr(part, name) for name in part.__struct_fields__ if name != "cache_breakpoint"}
    if isinstance(part, ToolCallPart):
        return message_pb2.Part(tool_call=message_pb2.ToolCall(**fields))
    return message_pb2.Part(tool_result=message_pb2.ToolResult(**fields))


def mistakes(message: model_service_pb2.CompleteRequest) -> dict[str, str]:
    found = Violations()
    completion_request(message, found)
    return {each.field: each.description for each in found}


@given(requests)
def test_a_request_survives_the_wire(request):
    found = Violations()
    sent = model_service_pb2.CompleteRequest.FromString(to_wire(request).SerializeToString())
    assert completion_request(sent, found) == request
    assert found == []


def test_an_empty_request_asks_for_nothing_and_has_a_new_call_id():
    found = Violations()
    request = completion_request(model_service_pb2.CompleteRequest(), found)
    assert found == []
    assert (request.text, request.messages, request.native_json) == (None, None, None)
    assert (request.max_output_tokens, request.temperature, request.seed) == (None, None, None)
    assert request.sensitivity is Sensitivity.PUBLIC
    assert uuid.UUID(request.call_id).version == 4


def test_a_call_id_in_capitals_is_the_same_call():
    message = model_service_pb2.CompleteRequest(call_id=CALL_ID.upper())
    assert completion_request(message, Violations()).call_id == CALL_ID


@pytest.mark.parametrize("call_id", ["7", CALL_ID + "0", CALL_ID.replace("-", ""), "{" + CALL_ID + "}", " "])
def test_a_call_id_that_is_no_uuid_is_named(call_id):
    assert list(mistakes(model_service_pb2.CompleteRequest(call_id=call_id))) == ["call_id"]


def test_a_retry_policy_is_taken_over_and_an_absent_one_is_none():
    policy = model_service_pb2.RetryPolicy(max_attempts=4, ambiguous=True)
    request = completion_request(model_service_pb2.CompleteRequest(retry_policy=policy), Violations())
    assert request.retry_policy == RetryAsk(max_attempts=4, ambiguous=True)
    assert completion_request(model_service_pb2.CompleteRequest(), Violations()).retry_policy is None


def test_what_is_the_ledgers_business_is_taken_over():
    effect = model_service_pb2.Effect(
        run_id="r", key="k", on_landed_error=model_service_pb2.Effect.ON_LANDED_ERROR_RETRY
    )
    ceiling = model_service_pb2.CallCeiling(tokens=0, nano_units=5, currency="USD")
    message = model_service_pb2.CompleteRequest(effect=effect, ceiling=ceiling, replay_only=True)
    request = completion_request(message, Violations())
    assert request.effect == Effect(run_id="r", key="k", on_landed_error=OnLandedError.RETRY)
    assert request.ceiling == CallCeiling(tokens=0, nano_units=5, currency="USD")
    assert request.replay_only


def test_what_a_ceiling_does_not_bound_is_none():
    message = model_service_pb2.CompleteRequest(ceiling=model_service_pb2.CallCeiling())
    assert completion_request(message, Violations()).ceiling == CallCeiling()


@pytest.mark.parametrize("level", Sensitivity)
def test_a_prompt_that_does_not_say_is_as_confidential_as_its_tenants_prompts_are(level):
    silent = model_service_pb2.CompleteRequest()
    loud = model_service_pb2.CompleteRequest(sensitivity=message_pb2.SENSITIVITY_INTERNAL)
    assert completion_request(silent, Violations(), level).sensitivity is level
    assert completion_request(loud, Violations(), level).sensitivity is Sensitivity.INTERNAL


def test_untrusted_instructions_are_refused_and_trusted_ones_are_not():
    untrusted = model_service_pb2.CompleteRequest(system_trust=message_pb2.TRUST_UNTRUSTED)
    assert "untrusted instructions" in mistakes(untrusted)["system_trust"]
    assert mistakes(model_service_pb2.CompleteRequest(system_trust=message_pb2.TRUST_TRUSTED)) == {}


def test_unknown_enum_numbers_are_named_by_their_fields():
    numbers: Any = {"schema_mode": 91, "reasoning_effort": 92, "sensitivity": 93, "system_trust": 94}
    message = model_service_pb2.CompleteRequest(**numbers)
    unnamed: Any = {"mode": 95}, {"role": 96}
    message.tool_choice.MergeFrom(message_pb2.ToolChoice(**unnamed[0]))
    message.messages.messages.append(message_pb2.Message(**unnamed[1]))
    fields = ["schema_mode", "reasoning_effort", "sensitivity", "system_trust", "tool_choice.mode"]
    found = mistakes(message)
    assert set(found) == {*fields, "messages.messages[0].role"}
    assert "91" in found["schema_mode"]


def test_empty_parts_and_media_are_named_by_their_place_and_leave_the_others_theirs():
    message = model_service_pb2.CompleteRequest()
    turn = message.messages.messages.add(role=message_pb2.ROLE_USER)
    turn.parts.add()
    turn.parts.add(image=message_pb2.Media(media_type="image/png"))
    turn.parts.add(text="last")
    message.messages.messages.add().parts.add(text="who says this?")
    found = Violations()
    request = completion_request(message, found)
    assert [each.field for each in found] == [
        "messages.messages[0].parts[0]",
        "messages.messages[0].parts[1].image",
        "messages.messages[1].role",
    ]
    assert request.messages is not None
    assert request.messages[0].parts[2] == TextPart("last")
    check_request(request, MODEL)  # can look at the rest, and does not stumble


def test_paths_begin_where_the_request_stands_in_the_callers_message():
    found = Violations("request.")
    completion_request(model_service_pb2.CompleteRequest(call_id="7"), found)
    assert [each.field for each in found] == ["request.call_id"]


@pytest.mark.parametrize(
    ("seconds", "nanos", "interval"),
    [
        (0, 0, 0.0),
        (0, 20_000_000, 0.02),
        (1, 0, 1.0),
        (1, 1, None),
        (-1, 0, None),
        (1, -500_000_000, None),
        (0, 10**9, None),
        (0, -1, None),
    ],
)
def test_a_flush_interval_is_between_nothing_and_a_second(seconds, nanos, interval):
    message = model_service_pb2.StreamCompleteRequest()
    message.flush_interval.seconds = seconds
    message.flush_interval.nanos = nanos
    found = Violations("request.")
    assert flush_interval(message, 0.5, found) == (0.5 if interval is None else interval)
    assert [each.field for each in found] == ([] if interval is not None else ["flush_interval"])


def test_without_a_flush_interval_the_default_holds():
    assert flush_interval(model_service_pb2.StreamCompleteRequest(), 0.02, Violations()) == 0.02
