"""Events as protos: fields of one name in both worlds, copied by tables that are made when the server starts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from modelmeter.v1 import event_pb2, usage_pb2
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.events import KINDS, Event, Severity
from modelmeter_server.core.text import well_formed
from modelmeter_server.core.windows import SECOND

from .convert_usage import COUNTERS, MAX_SECONDS, fill_cost, fill_duration
from .words import CAUSES, CERTAINTIES, COST_SOURCES, DISPOSITIONS, FINISHES, STAGES
from .words import KINDS as ERROR_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.events import Payload
    from modelmeter_server.core.pricing import Cost
    from modelmeter_server.core.usage import Usage

INT32_MAX: Final = 2**31 - 1

SEVERITIES: Final[dict[Severity, Any]] = {
    word: event_pb2.EventSeverity.DESCRIPTOR.values_by_name[f"EVENT_SEVERITY_{word.name}"].number
    for word in Severity
}
SEVERITY_WORDS: Final = {number: word for word, number in SEVERITIES.items()}
WORDS: Final[dict[str, Any]] = {
    "ErrorKind": ERROR_KINDS,
    "Cause": CAUSES,
    "Stage": STAGES,
    "Disposition": DISPOSITIONS,
    "Certainty": CERTAINTIES,
    "Finish": FINISHES,
    "CostSource": COST_SOURCES,
}


# Parts are given as dictionaries, which the library reads in one go: making and copying messages costs twice as much.


def _usage(usage: Usage) -> dict[str, Any]:
    told = {name: value for name in COUNTERS if (value := getattr(usage, name)) is not None}
    if usage.hosted_tool_requests:
        told["hosted_tool_requests"] = {
            well_formed(tool): count for tool, count in usage.hosted_tool_requests.items()
        }
    return told


def cost_message(cost: Cost) -> usage_pb2.Cost:
    message = usage_pb2.Cost()
    fill_cost(message, cost)
    return message


def duration_fields(seconds: float) -> dict[str, int]:
    if not 0 <= seconds < MAX_SECONDS:
        message = Duration()
        fill_duration(message, seconds)
        return {"seconds": message.seconds, "nanos": message.nanos}
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return {"seconds": whole, "nanos": nanos}


def _payload(payload: Payload) -> dict[str, Any]:
    return {
        "text": well_formed(payload.text),
        "truncated": payload.truncated,
        "original_bytes": payload.original_bytes,
    }


def _sums(told: dict[str, int]) -> dict[str, int]:
    return {well_formed(name): min(number, INT64_MAX) for name, number in told.items()}


_MAKE: Final[dict[str, Callable[[Any], Any]]] = {
    "Usage": _usage,
    "Cost": cost_message,
    "EventPayload": _payload,
    "Duration": duration_fields,
}


def _maker(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """Return what turns a value into that of the field; `None` where they are the same."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _sums
    if field.message_type is not None:
        return _MAKE[field.message_type.name]
    if field.enum_type is not None:
        return cast("Callable[[Any], Any]", WORDS[field.enum_type.name].__getitem__)
    if field.type == FieldDescriptor.TYPE_STRING:
        return well_formed
    if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
        most = INT32_MAX if field.type == FieldDescriptor.TYPE_INT32 else INT64_MAX
        return lambda value: value if value <= most else most
    return None


_Makers = list[tuple[str, bool, "Callable[[Any], Any] | None"]]
"""Of each field: its name, whether a zero is told, and what makes its value."""


def _facts() -> dict[type[Event], FieldDescriptor]:
    """Return the field of the oneof for each kind. A kind without a message is a KeyError when the server starts."""
    facts: dict[str, Any] = {}
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["fact"].fields:
        assert field.message_type is not None
        facts[field.message_type.name] = field
    return {kind: facts[kind.__name__] for kind in KINDS}


FACTS: Final = _facts()


def _table() -> dict[type[Event], tuple[str, _Makers]]:
    """Return the field of the oneof and how its fields are made, for each kind."""
    return {
        kind: (
            fact.name,
            [
                (field.name, field.has_presence, _maker(field))
                for field in fact.message_type.fields  # type: ignore[union-attr]
            ],
        )
        for kind, fact in FACTS.items()
    }


_TABLE: Final = _table()


def event_message(event: Event) -> event_pb2.Event:
    """Return the message of an event."""
    name, makers = _TABLE[type(event)]
    told: dict[str, Any] = {}
    for field, has_presence, make in makers:
        value = getattr(event, field)
        if value or (has_presence and value is not None):
            told[field] = value if make is None else make(value)
    seconds, micros = divmod(event.occurred_at, SECOND)
    fields: dict[str, Any] = {"occur_time": {"seconds": seconds, "nanos": micros * 1_000}, name: told}
    return event_pb2.Event(
        version=event.version,
        tick=event.tick,
        kind=KINDS[type(event)],
        severity=SEVERITIES[event.severity],
        call_id=event.call_id,
        conversation_id=event.conversation_id,
        run_id=event.run_id,
        trace_id=event.trace_id,
        span_id=event.span_id,
        tenant=well_formed(event.tenant),
        **fields,
    )
