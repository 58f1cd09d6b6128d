"""From messages of the proto to the values that callers read."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from . import _wire, events, results, sessions
from .messages import Continuation, ToolCall
from .v1 import error_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .v1 import (
        completion_pb2,
        embedding_pb2,
        message_pb2,
        model_service_pb2,
        session_pb2,
        token_count_pb2,
        usage_pb2,
    )

_COUNTERS = tuple(name for name in results.Usage.__dataclass_fields__ if name != "hosted_tool_requests")


def usage_from(proto: usage_pb2.Usage) -> results.Usage:
    """Return a usage; a counter that is absent is None."""
    counters = {name: getattr(proto, name) for name in _COUNTERS if proto.HasField(name)}  # type: ignore[arg-type]
    return results.Usage(**counters, hosted_tool_requests=dict(proto.hosted_tool_requests))


def additional_usage_from(protos: Iterable[usage_pb2.AdditionalUsage]) -> tuple[results.AdditionalUsage, ...]:
    """Return what was billed beside the usage."""
    return tuple(
        results.AdditionalUsage(kind=each.kind, model=each.model, usage=usage_from(each.usage))
        for each in protos
    )


def cost_from(proto: usage_pb2.Cost) -> results.Cost:
    """Return a cost."""
    return results.Cost(
        nano_units=proto.nano_units,
        currency=proto.currency,
        source=_wire.COST_SOURCE.member(proto.source),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        minor_units=proto.minor_units,
    )


def attempts_from(protos: Iterable[error_pb2.Attempt]) -> tuple[results.Attempt, ...]:
    """Return the provider requests of a call."""
    return tuple(_attempt(each) for each in protos)


def passed_over_from(protos: Iterable[error_pb2.PassedOver]) -> tuple[results.PassedOver, ...]:
    """Return the targets that a call was not sent to."""
    return tuple(
        results.PassedOver(
            target=each.target, reason=_wire.PASS_REASON.member(each.reason), detail=each.detail
        )
        for each in protos
    )


def _attempt(proto: error_pb2.Attempt) -> results.Attempt:
    return results.Attempt(
        number=proto.number,
        target=proto.target,
        kind=_wire.ERROR_KIND.member(proto.kind),
        cause=_wire.CAUSE.member(proto.cause),
        stage=_wire.STAGE.member(proto.stage),
        usage=usage_from(proto.usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        http_status=proto.http_status if proto.HasField("http_status") else None,
        provider_code=proto.provider_code,
        provider_request_id=proto.provider_request_id,
        elapsed=_wire.seconds(proto.elapsed) if proto.HasField("elapsed") else None,
        wait=_wire.seconds(proto.wait) if proto.HasField("wait") else 0.0,
        cost=cost_from(proto.cost) if proto.HasField("cost") else None,
    )


def standings_from(protos: Iterable[error_pb2.CeilingStanding]) -> tuple[results.Standing, ...]:
    """Return where subjects stand against their ceilings."""
    return tuple(
        results.Standing(
            scope=each.scope,
            name=each.name,
            currency=each.currency,
            allowed=each.allowed,
            settled=each.settled,
            held=each.held,
            unsettled=each.unsettled,
            asked=each.asked,
            room_at=_wire.time(each.room_time) if each.HasField("room_time") else None,
            ceiling_id=each.ceiling_id,
        )
        for each in protos
    )


def has_outcome(
    proto: completion_pb2.Completion | embedding_pb2.Embeddings | error_pb2.ModelError,
) -> bool:
    """Say whether an answer or a failure says how sure its bill is, or at least what failed.

    The service always does. What another peer sends under our names, such as the request itself, is read as a
    message of empty fields, and those would say that nothing was bought. A word newer than this client counts.
    """
    return proto.certainty != 0 or (isinstance(proto, error_pb2.ModelError) and proto.kind != 0)


def _hosted_tool(proto: completion_pb2.HostedTool) -> results.HostedTool:
    return results.HostedTool(
        type=proto.type,
        id=proto.id,
        status=proto.status,
        name=proto.name,
        server=proto.server,
        arguments_json=proto.arguments_json,
        result_json=proto.result_json,
        error=proto.error,
        omitted=proto.omitted,
    )


def completion_from(proto: completion_pb2.Completion) -> results.Completion:
    """Return an answer."""
    return results.Completion(
        text=proto.text,
        tool_calls=tuple(_tool_call(each) for each in proto.tool_calls),
        usage=usage_from(proto.usage),
        additional_usage=additional_usage_from(proto.additional_usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        cost=cost_from(proto.cost) if proto.HasField("cost") else None,
        stop_reason=proto.stop_reason,
        finish=_wire.FINISH.member(proto.finish),
        truncated=proto.truncated,
        structured_json=proto.structured_json if proto.HasField("structured_json") else None,
        model_asked=proto.model_asked,
        model_served=proto.model_served,
        target=proto.target,
        provider_response_id=proto.provider_response_id,
        provider_request_id=proto.provider_request_id,
        hosted_tools=tuple(_hosted_tool(each) for each in proto.hosted_tools),
        continuation=_continuation(proto.continuation) if proto.HasField("continuation") else None,
        attempts=attempts_from(proto.attempts),
        attempts_total=proto.attempts_total,
        trust=_wire.TRUST.member(proto.trust),
        sensitivity=_wire.SENSITIVITY.member(proto.sensitivity),
        call_id=proto.call_id,
        replayed=proto.replayed,
        settled=proto.settled,
        timings=timings_from(proto.timings),
        service_tier=proto.service_tier,
        estimated_output_tokens=(
            proto.estimated_output_tokens if proto.HasField("estimated_output_tokens") else None
        ),
        passed_over=passed_over_from(proto.passed_over),
        proto=proto,
    )


def _tool_call(proto: message_pb2.ToolCall) -> ToolCall:
    return ToolCall(
        id=proto.id, name=proto.name, arguments_json=proto.arguments_json, free_text=proto.free_text
    )


def _continuation(proto: message_pb2.Continuation) -> Continuation:
    return Continuation(provider=proto.provider, state_json=proto.state_json, target=proto.target)


def timings_from(proto: completion_pb2.Timings) -> results.Timings:
    """Return where the time went."""
    return results.Timings(
        queue=_wire.seconds(proto.queue) if proto.HasField("queue") else None,
        first_token=_wire.seconds(proto.first_token) if proto.HasField("first_token") else None,
        total=_wire.seconds(proto.total) if proto.HasField("total") else None,
    )


def event_from(proto: model_service_pb2.StreamCompleteResponse) -> events.StreamEvent | None:
    """Return an event of a stream; None for a failure, and for an event that is newer than this client."""
    match proto.WhichOneof("event"):
        case "started":
            started = proto.started
            return events.Started(started.call_id, started.model_asked, started.target)
        case "text":
            return events.TextDelta(proto.text.text, proto.sequence)
        case "reasoning":
            return events.ReasoningDelta(proto.reasoning.text, proto.sequence)
        case "tool_call":
            call = proto.tool_call
            return events.ToolCallDelta(call.index, call.id, call.name, call.arguments_json, proto.sequence)
        case "usage":
            return _snapshot(proto.usage)
        case "completion":
            return completion_from(proto.completion)
        case _:
            return None


def _snapshot(proto: completion_pb2.UsageSnapshot) -> events.UsageSnapshot:
    return events.UsageSnapshot(
        usage=usage_from(proto.usage),
        additional_usage=additional_usage_from(proto.additional_usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
    )


def model_from(proto: model_service_pb2.Model) -> results.Model:
    """Return a model."""
    return results.Model(
        name=proto.name,
        provider=proto.provider,
        provider_kind=proto.provider_kind,
        provider_model=proto.provider_model,
        capabilities=_capabilities(proto.capabilities),
        max_output_tokens=proto.max_output_tokens,
        default_schema_mode=_wire.SCHEMA_MODE.member(proto.default_schema_mode),
        max_sensitivity=_wire.SENSITIVITY.member(proto.max_sensitivity),
        price=_price(proto.price) if proto.HasField("price") else None,
        task=_wire.MODEL_TASK.member(proto.task),
        targets=tuple(_target(each) for each in proto.targets),
        strategy=_wire.TARGET_STRATEGY.member(proto.strategy),
        retry_policy=_retry_policy(proto.retry_policy) if proto.HasField("retry_policy") else None,
        proto=proto,
    )


def _retry_policy(proto: model_service_pb2.RetryPolicy) -> results.RetryPolicy:
    return results.RetryPolicy(
        max_attempts=proto.max_attempts, ambiguous=proto.ambiguous, landed=proto.landed
    )


def _target(proto: model_service_pb2.ModelTarget) -> results.ModelTarget:
    return results.ModelTarget(
        name=proto.name,
        provider=proto.provider,
        provider_kind=proto.provider_kind,
        provider_model=proto.provider_model,
        weight=proto.weight,
        max_sensitivity=_wire.SENSITIVITY.member(proto.max_sensitivity),
        price=_price(proto.price) if proto.HasField("price") else None,
    )


def _capabilities(proto: model_service_pb2.ModelCapabilities) -> results.ModelCapabilities:
    return results.ModelCapabilities(
        schema_modes=tuple(_wire.SCHEMA_MODE.member(each) for each in proto.schema_modes),
        tools=proto.tools,
        tools_with_schema=proto.tools_with_schema,
        media=tuple(proto.media),
        reasoning_efforts=tuple(_wire.REASONING_EFFORT.member(each) for each in proto.reasoning_efforts),
        sampling=tuple(proto.sampling),
    )


def _price(proto: model_service_pb2.Price) -> results.Price:
    return results.Price(
        currency=proto.currency,
        tiers=tuple(_price_tier(each) for each in proto.tiers),
        hosted_tool_requests=dict(proto.hosted_tool_requests),
        source=proto.source,
        source_version=proto.source_version,
        source_entry=proto.source_entry,
        partial=proto.partial,
    )


def _price_tier(proto: model_service_pb2.PriceTier) -> results.PriceTier:
    return results.PriceTier(
        input=proto.input,
        output=proto.output,
        cache_read=proto.cache_read,
        cache_write=proto.cache_write,
        cache_write_1h=proto.cache_write_1h,
        above_input_tokens=proto.above_input_tokens,
        service_tier=proto.service_tier,
        input_audio=proto.input_audio,
        output_audio=proto.output_audio,
    )


def token_count_from(proto: token_count_pb2.TokenCount) -> results.TokenCount:
    """Return a count."""
    return results.TokenCount(
        input_tokens=proto.input_tokens,
        is_estimate=proto.is_estimate,
        upper_bound=proto.upper_bound if proto.HasField("upper_bound") else None,
        uncounted_media=tuple(proto.uncounted_media),
        model_asked=proto.model_asked,
        target=proto.target,
        call_id=proto.call_id,
        provider_request_id=proto.provider_request_id,
        proto=proto,
    )


def embeddings_from(proto: embedding_pb2.Embeddings) -> results.Embeddings:
    """Return vectors."""
    return results.Embeddings(
        vectors=tuple(array("f", vector.values) for vector in proto.vectors),
        dimensions=proto.dimensions,
        revision=proto.revision,
        usage=usage_from(proto.usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        cost=cost_from(proto.cost) if proto.HasField("cost") else None,
        model_asked=proto.model_asked,
        model_served=proto.model_served,
        target=proto.target,
        provider_response_id=proto.provider_response_id,
        provider_request_id=proto.provider_request_id,
        attempts=attempts_from(proto.attempts),
        attempts_total=proto.attempts_total,
        sensitivity=_wire.SENSITIVITY.member(proto.sensitivity),
        call_id=proto.call_id,
        replayed=proto.replayed,
        settled=proto.settled,
        timings=timings_from(proto.timings),
        passed_over=passed_over_from(proto.passed_over),
        proto=proto,
    )


def totals_from(proto: session_pb2.SessionTotals) -> sessions.SessionTotals:
    """Return what the turns of a session came to."""
    return sessions.SessionTotals(
        turns=proto.turns,
        turns_completed=proto.turns_completed,
        usage=usage_from(proto.usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        cost_nano_units=dict(proto.cost_nano_units),
        cost_certainty=_wire.CERTAINTY.member(proto.cost_certainty),
    )


def turn_end_from(proto: session_pb2.SessionTurnEnd) -> sessions.TurnEnd:
    """Return how a turn ended, beside its outcome."""
    previous, following = proto.previous_response_id, proto.next_previous_response_id
    return sessions.TurnEnd(
        turn=proto.turn,
        status=proto.status,
        previous_response_id=previous if proto.HasField("previous_response_id") else None,
        connection=proto.connection,
        next_previous_response_id=following if proto.HasField("next_previous_response_id") else None,
        totals=totals_from(proto.totals),
    )
