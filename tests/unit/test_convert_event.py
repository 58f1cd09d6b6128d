"""Events on the wire: the same words, and nothing that a client could not read."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given

from modelmeter.v1 import event_pb2
from modelmeter_server.core.events import KINDS, Event, kind_of
from modelmeter_server.rpc.convert_event import event_message
from tests.support.event_values import events

FACTS: dict[str, Any] = {
    str(each.message_type and each.message_type.name): each
    for each in event_pb2.Event.DESCRIPTOR.oneofs_by_name["fact"].fields
}
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
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            assert dict(told) == known
        elif field.message_type is not None:
            assert fact.HasField(field.name) == (known is not None)


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_a_kind_has_the_fields_of_its_message(kind):
    own = set(kind.__struct_fields__) - ENVELOPE
    assert own == {field.name for field in FACTS[kind.__name__].message_type.fields}


def test_every_message_of_the_oneof_is_a_kind():
    assert set(FACTS) == {kind.__name__ for kind in KINDS}
    assert all(field.type == FieldDescriptor.TYPE_MESSAGE for field in FACTS.values())
