"""Events as protos: fields of one name in both worlds, copied by tables that are made when the server starts. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor

from modelmeter.v1 import event_pb2
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.events import KINDS, Event, Severity, kind_of
from modelmeter_server.core.text import well_formed

from .convert_usage import fill_cost, fill_duration, fill_usage
from .words import CAUSES, CERTAINTIES, DISPOSITIONS, FINISHES, STAGES
from .words import KINDS as ERROR_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.events import Payload

CACHED: Final = 1_024
"""Events whose messages are kept for further watchers: ten batches, which is what watchers of one speed lie apart."""

_MICROS: Final = 1_000_000
_INT32_MAX: Final = 2**31 - 1

SEVERITIES: Final[dict[Severity, Any]] = {
    word: event_pb2.EventSeverity.DESCRIPTOR.values_by_name[f"EVENT_SEVERITY_{word.name}"].number
    for word in Severity
}
SEVERITY_WORDS: Final = {number: word for word, number in SEVERITIES.items()}
_WORDS: Final[dict[str, Any]] = {
    "ErrorKind": ERROR_KINDS,
    "Cause": CAUSES,
    "Stage": STAGES,
    "Disposition": DISPOSITIONS,
    "Certainty": CERTAINTIES,
    "Finish": FINISHES,
}


def _fill_payload(message: event_pb2.EventPayload, payload: Payload) -> None:
    message.text = well_formed(payload.text)
    message.truncated = payload.truncated
    message.original_bytes = payload.original_bytes


_FILL: Final[dict[str, Callable[[Any, Any], None]]] = {
    "Usage": fill_usage,
    "Cost": fill_cost,
    "EventPayload": _fill_payload,
    "Duration": fill_duration,
}


def _writer(field: FieldDescriptor) -> Callable[[Any, Any], None]:
    """Return what writes a value into a field of this type."""
    name = field.name
    if field.message_type is not None:
        fill = _FILL[field.message_type.name]
        return lambda message, value: fill(getattr(message, name), value)
    if field.enum_type is not None:
        words = _WORDS[field.enum_type.name]
        return lambda message, value: setattr(message, name, words[value])
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda message, value: setattr(message, name, well_formed(value))
    if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
        most = _INT32_MAX if field.type == FieldDescriptor.TYPE_INT32 else INT64_MAX
        return lambda message, value: setattr(message, name, min(value, most))
    return lambda message, value: setattr(message, name, value)


def _table() -> dict[type[Event], tuple[str, list[tuple[str, Callable[[Any, Any], None]]]]]:
    """Return the field of the oneof and the writers of each kind; one without a message is a KeyError at the start."""
    facts: dict[str, Any] = {}
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["fact"].fields:
        assert field.message_type is not None
        facts[field.message_type.name] = field
    return {
        kind: (
            facts[kind.__name__].name,
            [(field.name, _writer(field)) for field in facts[kind.__name__].message_type.fields],
        )
        for kind in KINDS
    }


_TABLE: Final = _table()


def event_message(event: Event) -> event_pb2.Event:
    """Return the message of an event."""
    message = event_pb2.Event(
        version=event.version,
        tick=event.tick,
        kind=kind_of(event),
        severity=SEVERITIES[event.severity],
        call_id=event.call_id,
        conversation_id=event.conversation_id,
        run_id=event.run_id,
        trace_id=event.trace_id,
        span_id=event.span_id,
    )
    seconds, micros = divmod(event.occurred_at, _MICROS)
    message.occur_time.seconds = seconds
    message.occur_time.nanos = micros * 1_000
    name, writers = _TABLE[type(event)]
    fact = getattr(message, name)
    fact.SetInParent()
    for field, write in writers:
        value = getattr(event, field)
        if value is not None:
            write(fact, value)
    return message


class EventMessages:
    """Make each event's message once, however many watch."""

    def __init__(self, kept: int = CACHED) -> None:
        """Keep the messages of this many events."""
        self._kept = kept
        self._messages: OrderedDict[int, event_pb2.Event] = OrderedDict()

    def of(self, event: Event) -> event_pb2.Event:
        """Return the event's message; it must not be changed."""
        message = self._messages.get(event.tick)
        if message is None:
            message = self._messages[event.tick] = event_message(event)
            if len(self._messages) > self._kept:
                self._messages.popitem(last=False)
        return message
