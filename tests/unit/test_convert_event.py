"""Events on the wire: the same words, and nothing that a client could not read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from modelmeter.v1 import event_pb2, event_service_pb2
from modelmeter_server.core.events import KINDS, Event, Retried, kind_of
from modelmeter_server.rpc import convert_event
from modelmeter_server.rpc.convert_event import EventBytes, event_message
from tests.support.event_values import events

FACTS: dict[str, Any] = {
    str(each.message_type and each.message_type.name): each
    for each in event_pb2.Event.DESCRIPTOR.oneofs_by_name["fact"].fields
}
EVENT = Retried(version=1, occurred_at=1, tick=1, tenant="default", number=2, target="scripted")
ENVELOPE = set(Event.__struct_fields__)


@given(events)
def test_every_event_becomes_a_message_that_survives_the_wire(event):
    message = event_message(event)
    again = event_pb2.Event.FromString(message.SerializeToString())
    assert again == message
    assert again.kind == kind_of(event)
    assert again.WhichOneof("fact") == FACTS[type(event).__name__].name
    assert again.occur_time.ToMicroseconds() == event.occurred_at


@given(events)
def test_texts_and_numbers_are_told_as_they_are(event):
    message = event_message(event)
    fact = getattr(message, str(message.WhichOneof("fact")))
    for field in fact.DESCRIPTOR.fields:
        told, known = getattr(fact, field.name), getattr(event, field.name)
        if field.message_type is None and field.enum_type is None:
            assert told == (known if known is not None else field.default_value)
        elif field.message_type is not None:
            assert fact.HasField(field.name) == (known is not None)


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_a_kind_has_the_fields_of_its_message(kind):
    own = set(kind.__struct_fields__) - ENVELOPE
    assert own == {field.name for field in FACTS[kind.__name__].message_type.fields}


def test_every_message_of_the_oneof_is_a_kind():
    assert set(FACTS) == {kind.__name__ for kind in KINDS}
    assert all(field.type == FieldDescriptor.TYPE_MESSAGE for field in FACTS.values())


@given(st.lists(events, max_size=5), st.integers(0, 9))
def test_a_batch_is_what_the_generated_message_would_be(batch, lost):
    response = event_service_pb2.WatchEventsResponse.FromString(EventBytes().batch(lost, batch))
    assert response.HasField("gap") == bool(lost)
    assert response.gap.lost == lost
    first: dict[int, Event] = {}
    for event in batch:  # events of one process never share a tick
        first.setdefault(event.tick, event)
    assert list(response.events) == [event_message(first[event.tick]) for event in batch]


def test_an_event_is_serialised_once_for_all_watchers(monkeypatch):
    made: list[Event] = []

    def make(event: Event) -> event_pb2.Event:
        made.append(event)
        return event_message(event)

    monkeypatch.setattr(convert_event, "event_message", make)
    shared = EventBytes(kept=2)
    batch = [msgspec.structs.replace(EVENT, tick=tick) for tick in range(2)]
    assert shared.batch(0, batch) == shared.batch(0, batch)
    assert len(made) == 2
    shared.batch(0, [msgspec.structs.replace(EVENT, tick=2)])
    shared.batch(0, batch[:1])  # it was the oldest, and is made anew
    assert len(made) == 4
