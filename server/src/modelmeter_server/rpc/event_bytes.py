"""Events as bytes of the wire. Those of every call are written from messages that stay: making one costs more.

A message is kept for all events that differ in nothing but numbers, which are set anew for each; what else differs from
call to call is written beside it. Tests hold the bytes of every kind against those of the library. Pure, but for what
is kept; only the event loop may call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from modelmeter.v1 import event_pb2, event_service_pb2, usage_pb2
from modelmeter_server.core.events import (
    KINDS,
    SCHEMA_VERSION,
    AttemptEnded,
    Event,
    PromptCompleted,
    PromptStarted,
)
from modelmeter_server.core.windows import SECOND

from .convert_event import FACTS, SEVERITIES, cost_message, duration_fields, event_message
from .convert_usage import COUNTERS

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from modelmeter_server.core.usage import Usage

KEPT: Final = 2_048
"""Events whose bytes are kept for further watchers: some batches, as far as watchers of one speed lie apart."""
REMEMBERED: Final = 1_024
"""Values that are remembered in each place; then all are forgotten, so that junk does not stay."""

_LENGTH: Final = 2
"""Wire type of fields that tell their length: texts and messages."""


def varint(number: int) -> bytes:
    """Return a number, not negative, as protobuf writes it: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_LENGTHS: Final = [varint(length) for length in range(1_024)]
"""Lengths of nearly everything here."""


def _field(message: Any, name: str) -> bytes:
    """Return the tag that leads to a text or a message."""
    return varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH)


def _sized(tag: bytes, data: bytes) -> bytes:
    size = len(data)
    return tag + (_LENGTHS[size] if size < len(_LENGTHS) else varint(size)) + data


def _set_time(message: Duration, seconds: float) -> None:
    if 0 <= seconds < 0.999:  # nearly all of them; a larger one may be rounded to a whole second
        message.seconds = 0
        message.nanos = round(seconds * 1e9)
        return
    told = duration_fields(seconds)
    message.seconds, message.nanos = told["seconds"], told["nanos"]


class _Usages:
    """Write usages; that of a call stands in the event of its attempt and in that of its end, as one value."""

    def __init__(self) -> None:
        self._message = usage_pb2.Usage()
        self._counters_of = attrgetter(*COUNTERS)
        self._last: Usage | None = None
        self._written = b""

    def bytes_of(self, usage: Usage) -> bytes:
        """Return the bytes."""
        if usage is not self._last:
            self._last, self._written = usage, self._write(usage)
        return self._written

    def _write(self, usage: Usage) -> bytes:
        message = self._message
        message.Clear()
        for name, value in zip(COUNTERS, self._counters_of(usage), strict=True):
            if value is not None:
                setattr(message, name, value)
        data = message.SerializeToString()
        if usage.hosted_tool_requests:
            # Not in the message that stays: it would keep every name it ever had.
            data += usage_pb2.Usage(hosted_tool_requests=usage.hosted_tool_requests).SerializeToString()
        return data


_usage: Final = _Usages().bytes_of


# The facts of every call


class _Facts:
    """Write facts of one kind, by messages that stay for what they have in common with those of other calls."""

    def __init__(self, kind: type[Event], times: tuple[str, ...] = (), apart: tuple[str, ...] = ()) -> None:
        """Set `times` anew for each event, all of which it must have; what is `apart` is left out.

        Nothing else may be set anew: a message holds the memory of every text that it ever had.
        """
        self._left_out = apart
        hints, others = get_type_hints(kind), {*Event.__struct_fields__, *times, *apart}
        names = [name for name in kind.__struct_fields__ if name not in others]
        # The values of words, for hashing the words themselves runs Python code.
        self._key = attrgetter(*(f"{name}._value_" if _is_word(hints[name]) else name for name in names))
        self._times = [(name, attrgetter(name)) for name in times]
        self._known: dict[Any, tuple[Message, list[tuple[Duration, Callable[[Event], float]]]]] = {}

    def bytes_of(self, event: Event) -> bytes:
        """Return the fact without what is apart."""
        key = self._key(event)
        message, times = self._known.get(key) or self._learn(key, event)
        for duration, seconds_of in times:
            _set_time(duration, seconds_of(event))
        return message.SerializeToString()

    def _learn(self, key: Any, event: Event) -> tuple[Message, list[Any]]:
        fact: Message = getattr(event_message(event), FACTS[type(event)].name)
        for name in self._left_out:
            fact.ClearField(name)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        learned = self._known[key] = fact, [(getattr(fact, name), of) for name, of in self._times]
        return learned


def _is_word(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _attempts() -> Callable[[AttemptEnded], bytes]:
    facts = _Facts(AttemptEnded, times=("elapsed",), apart=("usage",)).bytes_of
    usage = _field(event_pb2.AttemptEnded, "usage")

    def write(event: AttemptEnded) -> bytes:
        told = facts(event)
        return told if event.usage is None else told + _sized(usage, _usage(event.usage))

    return write


def _completions() -> Callable[[PromptCompleted], bytes]:
    apart = ("usage", "cost", "provider_response_id")
    begun = _Facts(PromptCompleted, ("queue_time", "first_token_time", "total_time"), apart).bytes_of
    whole = _Facts(PromptCompleted, ("queue_time", "total_time"), (*apart, "first_token_time")).bytes_of
    usage, cost, response = (_field(event_pb2.PromptCompleted, name) for name in apart)

    def write(event: PromptCompleted) -> bytes:
        told = whole(event) if event.first_token_time is None else begun(event)
        if event.usage is not None:
            told += _sized(usage, _usage(event.usage))
        if event.cost is not None:
            told += _sized(cost, cost_message(event.cost).SerializeToString())
        if event.provider_response_id:
            told += _sized(response, event.provider_response_id.encode())
        return told

    return write


_Fact = Callable[[Any], bytes]
_OF_EVERY_CALL: Final[dict[type[Event], _Fact]] = {
    PromptStarted: _Facts(PromptStarted).bytes_of,
    AttemptEnded: _attempts(),
    PromptCompleted: _completions(),
}

# The envelope around them

_IDS: Final = ("call_id", "conversation_id", "run_id", "trace_id", "span_id", "tenant")
_ids_of: Final = attrgetter(*_IDS)


@lru_cache(REMEMBERED)
def _ids(ids: tuple[str, ...]) -> bytes:
    """Return the ids that all events of a call have."""
    told: dict[str, Any] = dict(zip(_IDS, ids, strict=True))
    return event_pb2.Event(**told).SerializeToString()


class _Writer:
    """Write the events of one kind: ids and the fact beside an envelope that stays, for each severity."""

    def __init__(self, kind: type[Event], fact: _Fact) -> None:
        self._envelopes = {severity: _envelope(kind, told) for severity, told in SEVERITIES.items()}
        self._tag = _field(event_pb2.Event, FACTS[kind].name)
        self._fact = fact

    def bytes_of(self, event: Event) -> bytes:
        """Return the bytes of the event's message."""
        envelope, time = self._envelopes[event.severity]
        time.seconds, micros = divmod(event.occurred_at, SECOND)
        time.nanos = micros * 1_000
        envelope.tick = event.tick
        return envelope.SerializeToString() + _ids(_ids_of(event)) + _sized(self._tag, self._fact(event))


def _envelope(kind: type[Event], severity: Any) -> tuple[event_pb2.Event, Timestamp]:
    message = event_pb2.Event(version=SCHEMA_VERSION, kind=KINDS[kind], severity=severity)
    return message, message.occur_time


_WRITERS: Final = {kind: _Writer(kind, fact).bytes_of for kind, fact in _OF_EVERY_CALL.items()}


def event_bytes(event: Event) -> bytes:
    """Return the bytes of an event's message."""
    write = _WRITERS.get(type(event))
    return event_message(event).SerializeToString() if write is None else write(event)


# A message of ours around the event would copy it first, which costs as much as making it.
_EVENTS: Final = _field(event_service_pb2.WatchEventsResponse, "events")


class EventBytes:
    """Write each event once, however many watch."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep the bytes of at least this many events."""
        self._kept = kept
        self._newer: dict[int, bytes] = {}
        self._older: dict[int, bytes] = {}

    def batch(self, lost: int, events: Iterable[Event]) -> bytes:
        """Return the bytes of a `WatchEventsResponse`. A message is what its parts are, one behind the other."""
        head = b""
        if lost:
            gap = event_service_pb2.EventGap(lost=lost)
            head = event_service_pb2.WatchEventsResponse(gap=gap).SerializeToString()
        return head + b"".join([self._piece(event) for event in events])

    def _piece(self, event: Event) -> bytes:
        tick = event.tick
        piece = self._newer.get(tick) or self._older.get(tick)
        if piece is None:
            if len(self._newer) >= self._kept:
                self._older, self._newer = self._newer, {}
            piece = self._newer[tick] = _sized(_EVENTS, event_bytes(event))
        return piece
