"""The vocabulary of events: one flat, versioned envelope, and kinds that only grow."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from modelmeter_server.core import events as vocabulary
from modelmeter_server.core.answers import Finish
from modelmeter_server.core.events import (
    KINDS,
    SCHEMA_VERSION,
    AttemptEnded,
    Event,
    Family,
    HostedToolCompleted,
    PromptCompleted,
    PromptFailed,
    TurnCompleted,
    correlator_of,
    family_of,
    from_json,
    is_failure,
    kind_of,
    to_json,
)
from modelmeter_server.core.outcomes import Certainty
from tests.support.event_values import events, events_of

ENVELOPE: dict[str, Any] = {
    "version": SCHEMA_VERSION,
    "occurred_at": 1,
    "tick": 7,
    "tenant": "default",
}


def completed(**fields) -> PromptCompleted:
    return PromptCompleted(
        **ENVELOPE, model_asked="claude", certainty=Certainty.EXACT, finish=Finish.STOP, **fields
    )


@given(events)
def test_every_event_survives_its_json(event):
    assert from_json(to_json(event)) == event


@given(events)
def test_the_fields_of_a_kind_stand_beside_the_envelope(event):
    told = json.loads(to_json(event))
    assert told["kind"] == kind_of(event)
    assert told["version"] == SCHEMA_VERSION
    assert told.keys() <= {"kind", *type(event).__struct_fields__}


def test_what_is_absent_is_left_out():
    told = json.loads(to_json(completed()))
    assert not told.keys() & {"usage", "cost", "first_token_time", "trace_id", "conversation_id"}


def test_a_reader_ignores_members_that_it_does_not_know():
    told = json.loads(to_json(completed(call_id="c"))) | {"news": {"of": "later"}}
    assert from_json(json.dumps(told).encode()) == completed(call_id="c")


def test_a_kind_that_nobody_knows_is_an_error_for_its_reader_alone():
    told = json.loads(to_json(completed())) | {"kind": "prompt.pondered"}
    with pytest.raises(msgspec.ValidationError):
        from_json(json.dumps(told).encode())


def test_every_kind_that_is_defined_is_in_the_tables():
    defined = {
        each
        for each in vars(vocabulary).values()
        if isinstance(each, type) and issubclass(each, Event) and each is not Event
    }
    assert set(KINDS) == defined
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_a_kind_belongs_to_the_family_that_its_name_says(kind):
    family = family_of(kind)
    prefix = KINDS[kind].partition(".")[0]
    if family in (Family.PROMPT, Family.TOOL, Family.RESPONSE, Family.EMBEDDING) and "." in KINDS[kind]:
        assert prefix == family.value
    else:
        assert "." not in KINDS[kind]


@given(events_of(PromptFailed))
def test_a_failed_prompt_is_a_failure_with_its_bill(event):
    assert is_failure(event)
    assert {"usage", "certainty", "cost", "error_kind", "estimated_output_tokens"} <= {
        *event.__struct_fields__
    }


@given(events_of(AttemptEnded))
def test_an_attempt_is_a_failure_when_it_has_a_kind_of_error(event):
    assert is_failure(event) == (event.error_kind is not None)


@given(events_of(HostedToolCompleted))
def test_a_hosted_tool_that_failed_is_a_failure(event):
    assert is_failure(event) == event.failed


@pytest.mark.parametrize(
    ("status", "fails"),
    [("completed", False), ("incomplete", False), ("error", True), ("send_error", True), ("failed", True)],
)
def test_a_turn_is_a_failure_unless_a_terminal_event_said_otherwise(status, fails):
    event = TurnCompleted(**ENVELOPE, session_id="s", status=status, certainty=Certainty.EXACT)
    assert is_failure(event) == fails
    assert correlator_of(event) == "s"


def test_an_answer_is_no_failure():
    assert not is_failure(completed())
