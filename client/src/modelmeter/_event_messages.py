"""Requests and answers of EventService, between Python and the proto."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration

from . import _wire, watched
from ._results import cost_from, usage_from
from .enums import ErrorKind, EventSeverity
from .v1 import event_pb2, event_service_pb2, usage_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

_WORDS: dict[str, _wire.EnumMap[Any]] = {
    words.descriptor.full_name: words
    for words in (
        _wire.ERROR_KIND,
        _wire.CAUSE,
        _wire.STAGE,
        _wire.DISPOSITION,
        _wire.CERTAINTY,
        _wire.FINISH,
    )
}


class EventOptions(TypedDict, total=False):
    """Which events are wanted. What is left out does not narrow; together they all must hold."""

    kinds: Sequence[str]
    """Kinds such as `prompt.failed`."""
    call_id: str
    conversation_id: str
    run_id: str
    session_id: str
    model: str
    """Events that name this model, as it was asked for."""
    min_severity: EventSeverity | str | None
    """Events of this severity or a higher one."""
    error_kinds: Sequence[ErrorKind | str]
    """Events that name one of these kinds of failure."""
    tool: str
    """Events about this tool of the provider's."""
    target: str
    """Events that name this target."""


def event_filter(
    *,
    kinds: Sequence[str] = (),
    call_id: str = "",
    conversation_id: str = "",
    run_id: str = "",
    session_id: str = "",
    model: str = "",
    min_severity: EventSeverity | str | None = None,
    error_kinds: Sequence[ErrorKind | str] = (),
    tool: str = "",
    target: str = "",
) -> event_service_pb2.EventFilter:
    """Return the filter. Raises TypeError for an unknown option, ValueError for an unknown word."""
    failures: Sequence[str] = [error_kinds] if isinstance(error_kinds, str) else error_kinds
    return event_service_pb2.EventFilter(
        kinds=[kinds] if isinstance(kinds, str) else kinds,
        call_id=call_id,
        conversation_id=conversation_id,
        run_id=run_id,
        session_id=session_id,
        model=model,
        min_severity=_wire.EVENT_SEVERITY.number(min_severity),
        error_kinds=[_wire.ERROR_KIND.number(each) for each in failures],
        tool=tool,
        target=target,
    )


def watch_request(**wanted: Unpack[EventOptions]) -> event_service_pb2.WatchEventsRequest:
    """Return the request that watches."""
    return event_service_pb2.WatchEventsRequest(filter=event_filter(**wanted))


def query_request(
    page_size: int, since: datetime | None, until: datetime | None, **wanted: Unpack[EventOptions]
) -> event_service_pb2.QueryEventsRequest:
    """Return the request for the first page of the latest events."""
    request = event_service_pb2.QueryEventsRequest(filter=event_filter(**wanted), page_size=page_size)
    if since is not None:
        _wire.set_time(request.start_time, since)
    if until is not None:
        _wire.set_time(request.end_time, until)
    return request


def insights_request(
    window: float | timedelta | None, model: str, conversation_id: str, run_id: str
) -> event_service_pb2.GetInsightsRequest:
    """Return the request for aggregates; `window` in seconds."""
    request = event_service_pb2.GetInsightsRequest(
        model=model, conversation_id=conversation_id, run_id=run_id
    )
    if window is not None:
        length = window if isinstance(window, timedelta) else timedelta(seconds=window)
        request.window.FromTimedelta(length)
    return request


def batch_from(proto: event_service_pb2.WatchEventsResponse, process: str) -> watched.EventBatch:
    """Return a batch of a server process, which the first message of the stream names."""
    return watched.EventBatch(tuple(map(event_from, proto.events)), proto.gap.lost, process)


def event_from(proto: event_pb2.Event) -> watched.Event:
    """Return an event."""
    name = proto.WhichOneof("fact")
    return watched.Event(
        kind=proto.kind,
        version=proto.version,
        occurred_at=_wire.time(proto.occur_time),
        tick=proto.tick,
        severity=_wire.EVENT_SEVERITY.member(proto.severity),
        call_id=proto.call_id,
        conversation_id=proto.conversation_id,
        run_id=proto.run_id,
        trace_id=proto.trace_id,
        span_id=proto.span_id,
        tenant=proto.tenant,
        fact={} if name is None else _fact(getattr(proto, name)),
        proto=proto,
    )


def _fact(message: Any) -> dict[str, Any]:
    found = {}
    for field in message.DESCRIPTOR.fields:
        if not field.has_presence or message.HasField(field.name):
            found[field.name] = _value(field, getattr(message, field.name))
    return found


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        return _WORDS[field.enum_type.full_name].member(value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if isinstance(value, Duration):
        return _wire.seconds(value)
    if isinstance(value, usage_pb2.Usage):
        return usage_from(value)
    if isinstance(value, usage_pb2.Cost):
        return cost_from(value)
    if isinstance(value, event_pb2.EventPayload):
        return {
            "text": value.text,
            "truncated": value.truncated,
            "original_bytes": value.original_bytes,
        }
    return value


def insights_from(proto: event_service_pb2.GetInsightsResponse) -> watched.Insights:
    """Return the aggregates."""
    found = proto.insights
    return watched.Insights(
        calls=found.calls,
        answered=found.answered,
        failed=found.failed,
        replayed=found.replayed,
        untold=found.untold,
        at_least=found.at_least,
        latency=_distribution(found.latency),
        first_token=_distribution(found.first_token),
        errors=dict(found.errors),
        total=tuple(map(_spend, found.total)),
        by_model=tuple(map(_spend, found.by_model)),
        by_conversation=tuple(map(_spend, found.by_conversation)),
        by_run=tuple(map(_spend, found.by_run)),
        since=_wire.time(found.since) if found.HasField("since") else None,
        most_calls=proto.most_calls,
        process=proto.process,
        older_calls_evicted=proto.older_calls_evicted,
        proto=found,
    )


def _distribution(proto: event_service_pb2.Distribution) -> watched.Distribution:
    return watched.Distribution(
        **{field.name: getattr(proto, field.name) for field in proto.DESCRIPTOR.fields}
    )


def _spend(proto: event_service_pb2.InsightsSpend) -> watched.InsightsSpend:
    return watched.InsightsSpend(
        **{field.name: getattr(proto, field.name) for field in proto.DESCRIPTOR.fields}
    )
