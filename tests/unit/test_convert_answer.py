"""Answers and their pieces survive the way to the wire, whatever text a provider sends."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelmeter.v1 import completion_pb2, error_pb2, message_pb2, model_service_pb2, usage_pb2
from modelmeter_server.core.answers import ReasoningDelta, TextDelta, ToolCallDelta
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.text import well_formed
from modelmeter_server.engine.stream import Started, UsageTold
from modelmeter_server.rpc import words
from modelmeter_server.rpc.convert_answer import event_from, fill_completion
from modelmeter_server.rpc.convert_usage import COUNTERS, fill_duration, fill_usage
from tests.support.domain_values import answers, outcomes, texts, usages

HOSTILE = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=60
)


@HOSTILE
@given(outcomes(answers))
def test_every_answer_can_be_written_and_keeps_what_it_says(outcome):
    message = completion_pb2.Completion()
    fill_completion(message, outcome, outcome.result)
    read = completion_pb2.Completion.FromString(message.SerializeToString())
    answer = outcome.result
    assert read.text == well_formed(answer.text)
    assert read.HasField("structured_json") == (answer.structured_json is not None)
    assert read.HasField("usage") == (answer.usage is not None)
    assert read.HasField("cost") == (answer.cost is not None)
    assert read.HasField("continuation") == (answer.continuation is not None)
    assert read.HasField("estimated_output_tokens") == (answer.estimated_output_tokens is not None)
    assert [call.arguments_json for call in read.tool_calls] == [
        well_formed(call.arguments_json) for call in answer.tool_calls
    ]
    assert (read.truncated, read.settled, read.replayed) == (
        answer.truncated,
        outcome.settled,
        outcome.replayed,
    )
    assert completion_pb2.Finish.Name(read.finish) == f"FINISH_{answer.finish.name}"
    assert read.trust == message_pb2.TRUST_UNTRUSTED
    assert len(read.attempts) == len(outcome.attempts)


@HOSTILE
@given(usages)
def test_usage_keeps_the_difference_between_zero_and_untold(usage):
    message = usage_pb2.Usage()
    fill_usage(message, usage)
    read: Any = usage_pb2.Usage.FromString(message.SerializeToString())
    assert {name: getattr(read, name) if read.HasField(name) else None for name in COUNTERS} == {
        name: getattr(usage, name) for name in COUNTERS
    }


def test_the_counters_of_both_worlds_are_the_same():
    fields = {field.name for field in usage_pb2.Usage.DESCRIPTOR.fields}
    assert fields == {*COUNTERS, "hosted_tool_requests"}


@HOSTILE
@given(texts, texts, texts, st.integers(0, 100))
def test_every_delta_can_be_written(text, name, arguments, index):
    assert event_from(TextDelta(text)).text.text == well_formed(text)
    assert event_from(ReasoningDelta(text)).reasoning.text == well_formed(text)
    call = event_from(ToolCallDelta(index=index, id=text, name=name, arguments_json=arguments))
    assert call.WhichOneof("event") == "tool_call"
    assert call.tool_call.arguments_json == well_formed(arguments)


@HOSTILE
@given(usages, st.sampled_from(Certainty))
def test_a_usage_snapshot_says_what_it_knows(usage, certainty):
    event = event_from(UsageTold(usage=usage, certainty=certainty))
    assert event.WhichOneof("event") == "usage"
    assert event.usage.HasField("usage")
    assert usage_pb2.Certainty.Name(event.usage.certainty) == f"CERTAINTY_{certainty.name}"


def test_the_start_of_a_stream_names_call_model_and_target():
    event = event_from(Started("c", "claude", "anthropic")).started
    assert (event.call_id, event.model_asked, event.target) == ("c", "claude", "anthropic")


@given(st.floats())
def test_every_time_becomes_a_valid_duration(seconds):
    message = Duration()
    fill_duration(message, seconds)
    message.ToJsonString()  # raises outside of the bounds
    if 0 <= seconds < 1e9:
        assert math.isclose(message.seconds + message.nanos / 1e9, seconds, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("seconds", "whole", "nanos"),
    [(1500.5, 1500, 500_000_000), (1.5005, 1, 500_500_000), (0.9999999999, 1, 0), (2e-9, 0, 2)],
)
def test_a_time_is_rounded_to_the_nearest_nanosecond(seconds, whole, nanos):
    message = Duration()
    fill_duration(message, seconds)
    assert (message.seconds, message.nanos) == (whole, nanos)


@pytest.mark.parametrize(
    ("members", "proto"),
    [
        (words.KINDS, error_pb2.ErrorKind),
        (words.CAUSES, error_pb2.Cause),
        (words.STAGES, error_pb2.Stage),
        (words.DISPOSITIONS, error_pb2.Disposition),
        (words.CERTAINTIES, usage_pb2.Certainty),
        (words.COST_SOURCES, usage_pb2.CostSource),
        (words.FINISHES, completion_pb2.Finish),
        (words.SENSITIVITIES, message_pb2.Sensitivity),
        (words.ROLES, message_pb2.Role),
        (words.TOOL_MODES, message_pb2.ToolChoice.Mode),
        (words.SCHEMA_MODES, model_service_pb2.SchemaMode),
        (words.REASONING_EFFORTS, model_service_pb2.ReasoningEffort),
    ],
)
def test_the_words_of_both_worlds_are_the_same(members, proto):
    assert set(members.values()) == set(proto.values()) - {0}
