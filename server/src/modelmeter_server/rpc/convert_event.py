"""Events as protos: fields of one name in both worlds, copied by tables that are made when the server starts. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from modelmeter.v1 import event_pb2, event_service_pb2, usage_pb2
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.events import KINDS, Event, Severity
from modelmeter_server.core.text import well_formed

from .convert_standing import MICROS
from .convert_usage import COUNTERS, MAX_SECONDS, fill_cost, fill_duration
from .words import CAUSES, CERTAINTIES, DISPOSITIONS, FINISHES, STAGES
from .words import KINDS as ERROR_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from modelmeter_server.core.events import Payload
    from modelmeter_server.core.pricing import Cost
    from modelmeter_server.core.usage import Usage

CACHED: Final = 1_024
"""Events whose bytes are kept for further watchers: ten batches, which is what watchers of one speed lie apart."""

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


# Parts are given as dictionaries, which the library reads in one go: making and copying messages costs twice as much.


def _usage(usage: Usage) -> dict[str, Any]:
    told = {name: value for name in COUNTERS if (value := getattr(usage, name)) is not None}
    if usage.hosted_tool_requests:
        told["hosted_tool_requests"] = {
            well_formed(tool): count for tool, count in usage.hosted_tool_requests.items()
        }
    return told


def _cost(cost: Cost) -> usage_pb2.Cost:
    message = usage_pb2.Cost()
    fill_cost(message, cost)
    return message


def _duration(seconds: float) -> dict[str, int]:
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


_MAKE: Final[dict[str, Callable[[Any], Any]]] = {
    "Usage": _usage,
    "Cost": _cost,
    "EventPayload": _payload,
    "Duration": _duration,
}


def _maker(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """Return what turns a value into that of the field; `None` where they are the same."""
    if field.message_type is not None:
        return _MAKE[field.message_type.name]
    if field.enum_type is not None:
        return cast("Callable[[Any], Any]", _WORDS[field.enum_type.name].__getitem__)
    if field.type == FieldDescriptor.TYPE_STRING:
        return well_formed
    if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
        most = _INT32_MAX if field.type == FieldDescriptor.TYPE_INT32 else INT64_MAX
        return lambda value: value if value <= most else most
    return None


_Makers = list[tuple[str, bool, "Callable[[Any], Any] | None"]]
"""Of each field: its name, whether a zero is told, and what makes its value."""


def _table() -> dict[type[Event], tuple[str, _Makers]]:
    """Return the field of the oneof and how its fields are made, for each kind.

    A kind without a message is a KeyError when the server starts.
    """
    facts: dict[str, Any] = {}
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["fact"].fields:
        assert field.message_type is not None
        facts[field.message_type.name] = field
    return {
        kind: (
            fact.name,
            [(field.name, field.has_presence, _maker(field)) for field in fact.message_type.fields],
        )
        for kind in KINDS
        for fact in (facts[kind.__name__],)
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
    seconds, micros = divmod(event.occurred_at, MICROS)
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


# A message of ours around the event would copy it first, which costs as much as making it.
_EVENTS_TAG: Final = bytes((event_service_pb2.WatchEventsResponse.EVENTS_FIELD_NUMBER << 3 | 2,))


def _varint(number: int) -> bytes:
    """Return a length as protobuf writes it: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


class EventBytes:
    """Serialise each event once, however many watch."""

    def __init__(self, kept: int = CACHED) -> None:
        """Keep the bytes of this many events."""
        self._kept = kept
        self._pieces: OrderedDict[int, bytes] = OrderedDict()

    def batch(self, lost: int, events: Iterable[Event]) -> bytes:
        """Return the bytes of a `WatchEventsResponse`. A message is what its parts are, one behind the other."""
        head = b""
        if lost:
            gap = event_service_pb2.EventGap(lost=lost)
            head = event_service_pb2.WatchEventsResponse(gap=gap).SerializeToString()
        return head + b"".join([self._piece(event) for event in events])

    def _piece(self, event: Event) -> bytes:
        piece = self._pieces.get(event.tick)
        if piece is None:
            data = event_message(event).SerializeToString()
            piece = self._pieces[event.tick] = _EVENTS_TAG + _varint(len(data)) + data
            if len(self._pieces) > self._kept:
                self._pieces.popitem(last=False)
        return piece
