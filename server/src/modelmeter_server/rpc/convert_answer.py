"""Answers and their pieces as protos. Pure.

Every text passes `well_formed`: protobuf refuses half characters, and an answer that was paid for must not die there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter_server.core.answers import Answer, ReasoningDelta, TextDelta, ToolCallDelta
from modelmeter_server.core.text import well_formed
from modelmeter_server.engine.stream import Started, UsageTold

from .convert_usage import (
    add_additional_usage,
    add_attempts,
    add_passed_over,
    fill_cost,
    fill_duration,
    fill_usage,
)
from .words import CERTAINTIES, FINISHES, SENSITIVITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter.v1 import completion_pb2, embedding_pb2
    from modelmeter_server.core.calls import CallOutcome, Timings

    Event = Started | TextDelta | ReasoningDelta | ToolCallDelta | UsageTold

INT32_MAX = 2**31 - 1

_HOSTED_TEXTS = ("type", "id", "status", "name", "server", "arguments_json", "result_json", "error")


def fill_completion(message: completion_pb2.Completion, outcome: CallOutcome, answer: Answer) -> None:
    """Write a whole answer with its bill; `answer` is the outcome's result."""
    message.text = well_formed(answer.text)
    message.certainty = CERTAINTIES[answer.certainty]
    message.stop_reason = well_formed(answer.stop_reason)
    message.finish = FINISHES[answer.finish]
    message.truncated = answer.truncated
    message.trust = message_pb2.TRUST_UNTRUSTED
    _fill_bill(message, answer)
    _fill_structure(message, answer)
    _fill_origin(message, answer)
    fill_call(message, outcome)
    if answer.continuation is not None and outcome.model is not None:
        message.continuation.target = well_formed(outcome.model.provider)


def _fill_bill(message: completion_pb2.Completion, answer: Answer) -> None:
    if answer.usage is not None:
        fill_usage(message.usage, answer.usage)
    if answer.additional_usage:
        add_additional_usage(message.additional_usage, answer.additional_usage)
    if answer.cost is not None:
        fill_cost(message.cost, answer.cost)
    if answer.estimated_output_tokens is not None:
        message.estimated_output_tokens = answer.estimated_output_tokens


def _fill_structure(message: completion_pb2.Completion, answer: Answer) -> None:
    for call in answer.tool_calls:
        message.tool_calls.add(
            id=well_formed(call.id),
            name=well_formed(call.name),
            arguments_json=well_formed(call.arguments_json),
            free_text=call.free_text,
        )
    if answer.structured_json is not None:
        message.structured_json = well_formed(answer.structured_json)
    if answer.continuation is not None:
        message.continuation.provider = well_formed(answer.continuation.provider)
        message.continuation.state_json = well_formed(answer.continuation.state_json)


def _fill_origin(message: completion_pb2.Completion, answer: Answer) -> None:
    message.model_served = well_formed(answer.model_served or "")
    message.provider_response_id = well_formed(answer.provider_response_id or "")
    message.provider_request_id = well_formed(answer.provider_request_id or "")
    message.service_tier = well_formed(answer.service_tier or "")
    for tool in answer.hosted_tools:
        message.hosted_tools.add(
            omitted=tool.omitted, **{name: well_formed(getattr(tool, name)) for name in _HOSTED_TEXTS}
        )


def fill_call(message: completion_pb2.Completion | embedding_pb2.Embeddings, outcome: CallOutcome) -> None:
    """Write what an answer says of its call, whatever was asked."""
    message.model_asked = well_formed(outcome.model_asked)
    message.call_id = outcome.call_id
    message.replayed = outcome.replayed
    message.settled = outcome.settled
    message.attempts_total = min(outcome.attempts_total, INT32_MAX)
    add_attempts(message.attempts, outcome.attempts)
    add_passed_over(message.passed_over, outcome.passed_over)
    fill_timings(message.timings, outcome.timings)
    if outcome.sensitivity is not None:
        message.sensitivity = SENSITIVITIES[outcome.sensitivity]
    if outcome.model is not None:
        message.target = well_formed(outcome.model.target_name)


def fill_timings(message: completion_pb2.Timings, timings: Timings) -> None:
    """Write where the time went."""
    fill_duration(message.queue, timings.queue)
    fill_duration(message.total, timings.total)
    if timings.first_token is not None:
        fill_duration(message.first_token, timings.first_token)


def event_from(event: Event, sequence: int = 0) -> model_service_pb2.StreamCompleteResponse:
    """Return one event of a stream, other than its end; `sequence` is the number of a delta."""
    response = model_service_pb2.StreamCompleteResponse(sequence=sequence)
    _EVENTS[type(event)](response, event)
    return response


def _started(response: model_service_pb2.StreamCompleteResponse, event: Started) -> None:
    response.started.call_id = event.call_id
    response.started.model_asked = well_formed(event.model_asked)
    response.started.target = well_formed(event.target)


def _text(response: model_service_pb2.StreamCompleteResponse, event: TextDelta) -> None:
    response.text.text = well_formed(event.text)


def _reasoning(response: model_service_pb2.StreamCompleteResponse, event: ReasoningDelta) -> None:
    response.reasoning.text = well_formed(event.text)


def _tool_call(response: model_service_pb2.StreamCompleteResponse, event: ToolCallDelta) -> None:
    response.tool_call.SetInParent()
    response.tool_call.index = event.index
    response.tool_call.id = well_formed(event.id)
    response.tool_call.name = well_formed(event.name)
    response.tool_call.arguments_json = well_formed(event.arguments_json)


def _usage(response: model_service_pb2.StreamCompleteResponse, event: UsageTold) -> None:
    fill_usage(response.usage.usage, event.usage)
    add_additional_usage(response.usage.additional_usage, event.additional_usage)
    response.usage.certainty = CERTAINTIES[event.certainty]


_EVENTS: dict[type, Callable[..., None]] = {
    Started: _started,
    TextDelta: _text,
    ReasoningDelta: _reasoning,
    ToolCallDelta: _tool_call,
    UsageTold: _usage,
}
