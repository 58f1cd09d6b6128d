"""The events of sessions as JSON: flat, with what was told and nothing else."""

import json

import msgspec
import pytest

from modelmeter_server.core.accumulators.responses_tools import hosted_tools
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.session_events import (
    Bill,
    HostedToolCompleted,
    HostedToolInvoked,
    SessionEnded,
    SessionStarted,
    SessionTotals,
    TurnCompleted,
    TurnStarted,
)
from modelmeter_server.core.session_observer import SessionObserver, as_json
from modelmeter_server.core.usage import Usage

ALL = (
    SessionStarted(session_id="s", model="m"),
    TurnStarted(session_id="s", turn=1, previous_response_id="r-0"),
    HostedToolInvoked(session_id="s", tool_name="web_search", call_id="ws", args_json="{}"),
    HostedToolCompleted(session_id="s", tool_name="web_search", call_id="ws", result=""),
    TurnCompleted(
        session_id="s",
        turn=1,
        response_id="r-1",
        status="completed",
        certainty=Certainty.EXACT,
        duration_ms=1,
    ),
    SessionEnded(session_id="s", reason="idle", turns=1, certainty=Certainty.EXACT),
)


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_every_kind_goes_to_json_and_back(event):
    assert msgspec.json.decode(as_json(event), type=type(event)) == event
    assert json.loads(as_json(event))["kind"].startswith(("response.", "tool.hosted_"))


def test_an_event_is_flat_and_leaves_out_what_nobody_told():
    told = json.loads(as_json(ALL[4]))
    assert told == {
        "kind": "response.turn_completed",
        "session_id": "s",
        "turn": 1,
        "response_id": "r-1",
        "status": "completed",
        "certainty": "EXACT",
        "duration_ms": 1,
    }


def extracted(*output):
    observer = SessionObserver(session_id="s", model="m")
    observer.observe_send(at=0)
    frame = {"type": "response.completed", "response": {"id": "r", "output": list(output)}}
    return [
        event
        for event in observer.observe_frame(json.dumps(frame).encode(), at=1)
        if isinstance(event, HostedToolInvoked | HostedToolCompleted)
    ]


def test_a_web_search_is_told_with_its_name_ids_arguments_and_status():
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"queries": ["x"]}}
    asked, gave = extracted(item)
    assert (asked.tool_name, asked.call_id, asked.provider_call_id) == ("web_search", "ws_1", "ws_1")
    assert json.loads(asked.args_json) == {"action": {"queries": ["x"]}}
    assert (gave.status, gave.response_id) == ("completed", "r")


def test_several_kinds_are_told_in_the_order_of_the_output():
    events = extracted({"type": "file_search_call", "id": "a"}, {"type": "mcp_call", "id": "b"})
    assert [(type(each), each.tool_name) for each in events] == [
        (HostedToolInvoked, "file_search"),
        (HostedToolCompleted, "file_search"),
        (HostedToolInvoked, "mcp"),
        (HostedToolCompleted, "mcp"),
    ]


def test_a_call_without_an_id_is_named_after_its_tool_and_its_place():
    asked, gave = extracted({"type": "message"}, {"type": "web_search_call"})[:2]
    assert asked.call_id == gave.call_id == "web_search-1"
    assert asked.provider_call_id is None


def test_a_hosted_tool_that_nobody_knows_yet_is_told():
    assert extracted({"type": "dream_call", "id": "d"})[0].tool_name == "dream"


@pytest.mark.parametrize(
    "kind", ["function_call", "function_call_output", "custom_tool_call", "message", "_call"]
)
def test_what_the_caller_runs_and_what_is_no_call_is_not_told(kind):
    assert extracted({"type": kind, "id": "x"}) == []


@pytest.mark.parametrize("output", [None, "odd", {"a": 1}, [1, None, "x"]])
def test_an_output_of_a_wrong_shape_is_nothing(output):
    observer = SessionObserver(session_id="s", model="m")
    observer.observe_send(at=0)
    frame = {"type": "response.completed", "response": {"id": "r", "output": output}}
    assert observer.observe_frame(json.dumps(frame).encode(), at=1) == []
    assert list(hosted_tools([])) == []


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], Certainty.NONE),
        ([Certainty.NONE], Certainty.NONE),
        ([Certainty.EXACT, Certainty.NONE], Certainty.EXACT),
        ([Certainty.EXACT, Certainty.AT_LEAST], Certainty.AT_LEAST),
        ([Certainty.EXACT, Certainty.UNKNOWN], Certainty.AT_LEAST),
        ([Certainty.UNKNOWN, Certainty.NONE], Certainty.UNKNOWN),
    ],
)
def test_a_sum_is_as_sure_as_its_weakest_part(parts, whole):
    totals = SessionTotals()
    for certainty in parts:
        totals.add("completed", Bill(usage=Usage(input_tokens=1), certainty=certainty))
    assert totals.certainty is whole
    assert totals.tokens_in == (len(parts) or None)
