"""Events as bytes: whoever reads them reads what the library would have written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter.v1 import event_pb2, event_service_pb2
from modelmeter_server.core.answers import Finish
from modelmeter_server.core.events import (
    AttemptEnded,
    Event,
    HostedToolCompleted,
    Payload,
    PromptCompleted,
    PromptStarted,
    Retried,
    Severity,
)
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.redaction import PAYLOAD_BYTES
from modelmeter_server.core.usage import Usage
from modelmeter_server.rpc import event_bytes as module
from modelmeter_server.rpc.convert_event import event_message
from modelmeter_server.rpc.event_bytes import EventBytes, event_bytes, varint
from modelmeter_server.telemetry.bus import BATCH
from tests.support.event_values import events, events_of

ENVELOPE: dict[str, Any] = {
    "version": 1,
    "occurred_at": 1_700_000_000_123_456,
    "tick": 300,
    "tenant": "default",
    "call_id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "conversation_id": "chat-\u20ac",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
}
USED = Usage(
    input_tokens=25, output_tokens=0, cache_read_tokens=2**40, hosted_tool_requests={"web_search": 2}
)
COST = Cost(nano_units=12_345_678, currency="USD", source=CostSource.PRICE_TABLE, certainty=Certainty.EXACT)
RETRIED = Retried(**ENVELOPE, number=2, target="scripted")
COMPLETED = PromptCompleted(
    **ENVELOPE,
    model_asked="claude",
    usage=USED,
    certainty=Certainty.EXACT,
    cost=COST,
    finish=Finish.STOP,
    provider_response_id="msg_1",
    attempts_total=1,
    queue_time=0.0,
    first_token_time=0.25,
    total_time=61.5,
    settled=True,
)
EXAMPLES = [
    RETRIED,
    COMPLETED,
    msgspec.structs.replace(COMPLETED, usage=Usage(), cost=None, first_token_time=None, settled=False),
    PromptStarted(**ENVELOPE, model_asked="claude", messages=1, temperature=0.0, top_p=0.5, streamed=True),
    PromptStarted(**{**ENVELOPE, "occurred_at": 0, "severity": Severity.ERROR}, model_asked=""),
    AttemptEnded(
        **ENVELOPE,
        number=2,
        target="anthropic",
        stage=Stage.NOT_WRITTEN,
        certainty=Certainty.AT_LEAST,
        elapsed=0.9999999999,
        error_kind=Kind.UNREACHABLE,
        cause=Cause.NETWORK,
        http_status=503,
        usage=USED,
    ),
]


def read(event: Event) -> event_pb2.Event:
    return event_pb2.Event.FromString(event_bytes(event))


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_is_read_as_the_library_would_have_written_it(event):
    assert read(event) == event_message(event)
    assert read(event) == event_message(event)  # as well from what is remembered of the first time


@pytest.mark.parametrize("tenant", ["", "acme", "other"])
@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_says_whose_it_is_whoever_had_the_one_before(event, tenant):
    event = msgspec.structs.replace(event, tenant=tenant)
    assert read(event).tenant == tenant
    assert read(event) == event_message(event)


def test_what_differs_between_calls_is_not_remembered():
    event_bytes(COMPLETED)
    without = msgspec.structs.replace(COMPLETED, usage=None, cost=None, provider_response_id="")
    assert read(without) == event_message(without)
    unbegun = msgspec.structs.replace(without, first_token_time=None)
    assert read(unbegun) == event_message(unbegun)


def test_a_batch_of_the_largest_events_is_received_by_every_client():
    name = "\u00e9" * 128
    gave = Payload(text="x" * PAYLOAD_BYTES, truncated=True, original_bytes=2**40)
    event = HostedToolCompleted(
        **{**ENVELOPE, "call_id": name, "conversation_id": name, "run_id": name, "span_id": "f" * 16},
        tool=name,
        tool_call_id=name,
        provider_response_id=name,
        status=name,
        failed=True,
        result=gave,
    )
    assert len(event_bytes(event)) * BATCH < 4 * 2**20 - 1_000


@given(st.one_of(events, events_of(PromptStarted), events_of(PromptCompleted), events_of(AttemptEnded)))
def test_every_event_is_read_as_the_library_would_have_written_it(event):
    assert read(event) == event_message(event)


@pytest.mark.parametrize(
    "seconds", [0.0, 1e-12, 1e-6, 0.5, 0.999, 0.9999999999, 1.0, 59.9999999999, 17592.3640608695, 4e11, -1.0]
)
def test_times_are_cut_and_carried_as_the_library_does_it(seconds):
    event = msgspec.structs.replace(COMPLETED, total_time=seconds, queue_time=seconds)
    assert read(event) == event_message(event)


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_written_seven_bits_a_byte(number):
    told = varint(number)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(told)) == number
    assert [byte >> 7 for byte in told] == [1] * (len(told) - 1) + [0]
    assert len(told) == max(1, -(-number.bit_length() // 7))


@pytest.mark.parametrize("number", [0, 0x7F, 0x80, 0x3FFF, 0x4000, 0x1FFFFF, 0x200000, 2**63 - 1, 2**64 - 1])
def test_numbers_at_the_edges_are_told_whole(number):
    test_a_number_is_written_seven_bits_a_byte.hypothesis.inner_test(number)  # type: ignore[attr-defined]


def test_what_is_remembered_is_bounded_and_junk_goes(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 3)
    facts = module._Facts(PromptStarted)
    started = PromptStarted(**ENVELOPE, model_asked="")
    for number in range(10):
        event = msgspec.structs.replace(started, model_asked=f"model-{number}")
        assert event_pb2.PromptStarted.FromString(facts.bytes_of(event)).model_asked == f"model-{number}"
        assert len(facts._known) <= 3


# Batches


@given(st.lists(events, max_size=5), st.integers(0, 9))
def test_a_batch_is_what_the_generated_message_would_be(batch, lost):
    response = event_service_pb2.WatchEventsResponse.FromString(EventBytes().batch(lost, batch))
    assert response.HasField("gap") == bool(lost)
    assert response.gap.lost == lost
    first: dict[int, Event] = {}
    for event in batch:  # events of one process never share a tick
        first.setdefault(event.tick, event)
    assert list(response.events) == [event_message(first[event.tick]) for event in batch]


def test_a_batch_tells_what_was_lost_and_its_events_in_order():
    batch = [msgspec.structs.replace(event, tick=tick) for tick, event in enumerate(EXAMPLES, 1)]
    response = event_service_pb2.WatchEventsResponse.FromString(EventBytes().batch(7, batch))
    assert response.gap.lost == 7
    assert list(response.events) == list(map(event_message, batch))


def test_an_event_is_written_once_for_all_watchers(monkeypatch):
    made: list[Event] = []

    def write(event: Event) -> bytes:
        made.append(event)
        return event_bytes(event)

    monkeypatch.setattr(module, "event_bytes", write)
    shared = EventBytes(kept=2)
    batch = [msgspec.structs.replace(RETRIED, tick=tick) for tick in range(2)]
    assert shared.batch(0, batch) == shared.batch(0, batch)
    assert len(made) == 2
    for tick in range(2, 6):  # as many as push the first ones out, twice as many as are promised
        shared.batch(0, [msgspec.structs.replace(RETRIED, tick=tick)])
    shared.batch(0, batch[:1])
    assert len(made) == 7
