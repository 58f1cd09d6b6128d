"""Events as bytes of the wire. Those of every call are put together by hand: a message for each would cost more.

What the events of many calls have in common (names, words, small numbers) the library writes once, and it is
remembered as bytes; only what differs from call to call is written here. The tags come from the descriptors, and tests
hold the bytes of every kind against those of the library. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from google.protobuf.duration_pb2 import Duration

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
    from google.protobuf.message import Message

    from modelmeter_server.core.usage import Usage

KEPT: Final = 2_048
"""Events whose bytes are kept for further watchers: some batches, as far as watchers of one speed lie apart."""
REMEMBERED: Final = 1_024
"""Values that are remembered in each place; then all are forgotten, so that junk does not stay."""

_VARINT, _LENGTH = 0, 2
_SMALL: Final = [bytes((number,)) for number in range(0x80)]
_PAIRS: Final = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(0x4000)]
"""Two bytes of a number that goes on after them, by their 14 bits."""


def varint(number: int) -> bytes:
    """Return a number, not negative, as protobuf writes it: seven bits a byte, the lowest first."""
    if number < 0x80:
        return _SMALL[number]
    found = b""
    while number > 0x3FFF:
        found += _PAIRS[number & 0x3FFF]
        number >>= 14
    if number < 0x80:
        return found + _SMALL[number]
    return found + bytes((number & 0x7F | 0x80, number >> 7))


def _field(message: Any, name: str, wire_type: int = _LENGTH) -> bytes:
    """Return the tag that leads to a field."""
    return varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type)


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


# Values that differ from call to call, each with the tag that leads to it


def _texts(tag: bytes) -> Callable[[str], bytes]:
    return lambda text: _sized(tag, text.encode()) if text else b""


def _times(tag: bytes) -> Callable[[float], bytes]:
    heads = [tag + _SMALL[1 + digits] + b"\x10" for digits in range(6)]

    def write(seconds: float) -> bytes:
        if 1e-6 < seconds < 0.999:  # nearly all of them, with nanoseconds and nothing else
            nanos = varint(round(seconds * 1e9))
            return heads[len(nanos)] + nanos
        return _sized(tag, Duration(**duration_fields(seconds)).SerializeToString())

    return write


_COUNTER_TAGS: Final = [_field(usage_pb2.Usage, name, _VARINT) for name in COUNTERS]
_counters_of: Final = attrgetter(*COUNTERS)


class _Usages:
    """Write usages; that of a call stands in the event of its attempt and in that of its end, as one value."""

    def __init__(self) -> None:
        self._last: Usage | None = None
        self._sized = b""

    def bytes_of(self, usage: Usage) -> bytes:
        """Return the bytes, with their length before them."""
        if usage is not self._last:
            told = zip(_COUNTER_TAGS, _counters_of(usage), strict=True)
            data = b"".join([tag + varint(value) for tag, value in told if value is not None])
            if usage.hosted_tool_requests:
                data += usage_pb2.Usage(hosted_tool_requests=usage.hosted_tool_requests).SerializeToString()
            self._last, self._sized = usage, varint(len(data)) + data
        return self._sized


_usage: Final = _Usages().bytes_of


# The facts of every call


class _Common:
    """What facts of one kind have in common with those of other calls, as bytes."""

    def __init__(self, kind: type[Event], *differing: str) -> None:
        """Leave out the fields that differ from call to call."""
        self._differing = differing
        hints, others = get_type_hints(kind), {*Event.__struct_fields__, *differing}
        names = [name for name in kind.__struct_fields__ if name not in others]
        # The values of words, for hashing the words themselves runs Python code.
        self._key = attrgetter(*(f"{name}._value_" if _is_word(hints[name]) else name for name in names))
        self._known: dict[Any, bytes] = {}

    def bytes_of(self, event: Event) -> bytes:
        """Return what the event's fact has in common with others."""
        key = self._key(event)
        return self._known.get(key) or self._learn(key, event)

    def _learn(self, key: Any, event: Event) -> bytes:
        fact: Message = getattr(event_message(event), FACTS[type(event)].name)
        for name in self._differing:
            fact.ClearField(name)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        told = self._known[key] = fact.SerializeToString()
        return told


def _is_word(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _attempts() -> Callable[[AttemptEnded], bytes]:
    message = event_pb2.AttemptEnded
    common = _Common(AttemptEnded, "elapsed", "usage").bytes_of
    elapsed, usage = _times(_field(message, "elapsed")), _field(message, "usage")

    def write(event: AttemptEnded) -> bytes:
        told = common(event) + elapsed(event.elapsed)
        return told if event.usage is None else told + usage + _usage(event.usage)

    return write


def _completions() -> Callable[[PromptCompleted], bytes]:
    message = event_pb2.PromptCompleted
    times = ("queue_time", "first_token_time", "total_time")
    common = _Common(PromptCompleted, "usage", "cost", "provider_response_id", *times).bytes_of
    response = _texts(_field(message, "provider_response_id"))
    usage, cost = (_field(message, name) for name in ("usage", "cost"))
    queue, first, total = (_times(_field(message, name)) for name in times)

    def write(event: PromptCompleted) -> bytes:
        told = common(event) + response(event.provider_response_id) + queue(event.queue_time)
        if event.usage is not None:
            told += usage + _usage(event.usage)
        if event.cost is not None:
            told += _sized(cost, cost_message(event.cost).SerializeToString())
        if event.first_token_time is not None:
            told += first(event.first_token_time)
        return told + total(event.total_time)

    return write


_Fact = Callable[[Any], bytes]
_OF_EVERY_CALL: Final[dict[type[Event], _Fact]] = {
    PromptStarted: _Common(PromptStarted).bytes_of,
    AttemptEnded: _attempts(),
    PromptCompleted: _completions(),
}

# The envelope around them

_VERSION: Final = _field(event_pb2.Event, "version", _VARINT) + varint(SCHEMA_VERSION)
_TIME: Final = _field(event_pb2.Event, "occur_time")
_TICK: Final = _field(event_pb2.Event, "tick", _VARINT)
_IDS: Final = ("call_id", "conversation_id", "run_id", "trace_id", "span_id", "tenant")
_ids_of: Final = attrgetter(*_IDS)


@lru_cache(2)
def _starts(seconds: int) -> list[bytes]:
    """Return what leads to the nanoseconds of an event of this second, by the number of their bytes."""
    told = b"\x08" + varint(seconds) if seconds else b""
    return [_VERSION + _TIME + _SMALL[len(told) + 1 + digits] + told + b"\x10" for digits in range(6)]


@lru_cache(REMEMBERED)
def _ids(ids: tuple[str, ...]) -> bytes:
    """Return the ids that all events of a call have."""
    told: dict[str, Any] = dict(zip(_IDS, ids, strict=True))
    return event_pb2.Event(**told).SerializeToString()


def _kinds(kind: type[Event]) -> dict[Any, bytes]:
    """Return what says the kind, by severity."""
    return {
        severity: event_pb2.Event(kind=KINDS[kind], severity=told).SerializeToString()
        for severity, told in SEVERITIES.items()
    }


_WRITERS: Final = {
    kind: (_kinds(kind), _field(event_pb2.Event, FACTS[kind].name), write)
    for kind, write in _OF_EVERY_CALL.items()
}


def event_bytes(event: Event) -> bytes:
    """Return the bytes of an event's message."""
    found = _WRITERS.get(type(event))
    if found is None:
        return event_message(event).SerializeToString()
    kinds, tag, write = found
    fact = write(event)
    seconds, micros = divmod(event.occurred_at, SECOND)
    nanos = varint(micros * 1_000)
    return b"".join(
        (
            _starts(seconds)[len(nanos)],
            nanos,
            _TICK,
            varint(event.tick),
            kinds[event.severity],
            _ids(_ids_of(event)),
            tag,
            varint(len(fact)),
            fact,
        )
    )


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
