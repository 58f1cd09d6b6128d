"""The observer of a Responses session: what it tells, in which order, and what it never tells."""

import json

import pytest

from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.session_events import (
    Bill,
    HostedToolCompleted,
    HostedToolInvoked,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
    TurnStarted,
)
from modelmeter_server.core.session_observer import PAYLOAD_BYTES, SessionObserver, as_json
from modelmeter_server.core.usage import Usage
from tests.support import responses_events as responses

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"queries": ["x"]}}


class Watched:
    """An observer, and all that it told; each thing happens one second after the one before."""

    def __init__(self, **options):
        self.observer = SessionObserver(session_id="s-1", model="m-1", conversation_id="c-1", **options)
        self.events = []
        self.at = 0.0

    def __getattr__(self, name):
        def happen(*arguments, **options):
            self.at += 1
            new = getattr(self.observer, name)(*arguments, at=self.at, **options)
            self.events += new
            return new

        return happen

    def frame(self, *events):
        return [told for each in events for told in self.observe_frame(json.dumps(each).encode())]

    @property
    def kinds(self):
        return [type(event) for event in self.events]


def created(id="r-1", status="in_progress"):
    return responses.event("created", response={"id": id, "status": status, "usage": None})


def ended(id="r-1", status="completed", *output, name=None, usage=responses.USAGE):
    return responses.event(
        name or status, response={"id": id, "status": status, "output": output, "usage": usage}
    )


@pytest.fixture
def watched():
    return Watched()


def test_a_session_with_a_turn_done_and_a_close_tells_everything_in_order(watched):
    watched.observe_send("r-0")
    watched.frame(
        created(), ended("r-1", "completed", SEARCH), ended("r-1", "completed", SEARCH, name="done")
    )
    watched.observe_close("client_close")
    assert watched.kinds == [
        SessionStarted,
        TurnStarted,
        HostedToolInvoked,
        HostedToolCompleted,
        TurnCompleted,
        SessionEnded,
    ]
    turn = watched.events[4]
    assert (turn.response_id, turn.previous_response_id, turn.status) == ("r-1", "r-0", "completed")
    assert (turn.tokens_in, turn.tokens_out, turn.cached_tokens_in, turn.reasoning_tokens) == (30, 8, 10, 3)
    assert (turn.certainty, turn.hosted_tool_calls) == (Certainty.EXACT, 1)
    assert watched.events[5].reason == "client_close"


@pytest.mark.parametrize("how", ["send", "close"])
def test_a_turn_whose_done_is_never_read_ends_with_the_next_send_or_the_close(watched, how):
    watched.observe_send()
    watched.frame(created(), ended(status="incomplete"))
    events = watched.observe_send("r-1") if how == "send" else watched.observe_close("client_close")
    assert isinstance(events[0], TurnCompleted)
    assert (events[0].status, events[0].reason) == ("incomplete", None)


def test_an_error_event_ends_the_turn_as_an_error(watched):
    watched.observe_send()
    (turn,) = watched.frame(responses.error("rate_limit_exceeded"))
    assert (turn.status, turn.certainty) == ("error", Certainty.UNKNOWN)


def test_an_error_after_created_is_an_error_and_not_in_progress(watched):
    watched.observe_send()
    watched.frame(created())
    assert watched.observer.last_status == "in_progress"
    (turn,) = watched.frame(responses.error("server_error"))
    assert turn.status == "error"


def test_an_error_does_not_undo_a_terminal_status(watched):
    watched.observe_send()
    watched.frame(created(), ended())
    (turn,) = watched.frame(responses.error("server_error"))
    assert turn.status == "completed"


def test_a_send_that_fails_ends_the_turn_and_costs_nothing(watched):
    watched.observe_send()
    (turn,) = watched.observe_send_error()
    assert (turn.status, turn.certainty, turn.response_id) == ("send_error", Certainty.NONE, "")


def test_a_transport_that_breaks_ends_the_turn_at_once(watched):
    watched.observe_send()
    watched.frame(created())
    (turn,) = watched.observe_transport_error()
    assert (turn.status, turn.reason) == ("error", "transport_error")
    assert watched.observe_close("transport_error")[0].reason == "transport_error"


@pytest.mark.parametrize(("how", "reason"), [("send", "superseded"), ("close", "closed")])
def test_a_turn_that_is_left_open_is_an_error_and_says_why(watched, how, reason):
    watched.observe_send()
    watched.frame(created())
    events = watched.observe_send() if how == "send" else watched.observe_close("idle")
    assert (events[0].status, events[0].reason) == ("error", reason)


def test_the_end_is_told_once(watched):
    watched.observe_send()
    watched.observe_close("client_close")
    assert watched.observe_close("client_close") == []
    assert watched.observe_send() == []
    assert watched.kinds.count(SessionEnded) == 1
    assert watched.observer.ended


def test_a_close_without_any_turn_tells_nothing(watched):
    assert watched.observe_close("client_close") == []
    assert (watched.observer.started, watched.observer.ended) == (False, False)


def test_two_turns_chained_by_the_previous_response_are_well_formed(watched):
    for previous, id in ((None, "r-1"), ("r-1", "r-2")):
        watched.observe_send(previous)
        watched.frame(created(id), ended(id, "completed", SEARCH, name="done"))
    watched.observe_close("client_close")
    turns = [each for each in watched.events if isinstance(each, TurnCompleted)]
    assert [(each.turn, each.previous_response_id, each.response_id) for each in turns] == [
        (1, None, "r-1"),
        (2, "r-1", "r-2"),
    ]
    assert watched.kinds.count(HostedToolInvoked) == watched.kinds.count(HostedToolCompleted) == 2


def test_an_error_then_a_close_tell_the_failed_turn_and_then_the_end(watched):
    watched.observe_send()
    watched.frame(responses.error("x"))
    watched.observe_close("response_failed")
    assert watched.kinds == [SessionStarted, TurnStarted, TurnCompleted, SessionEnded]
    assert watched.events[-1].reason == "response_failed"


def test_a_turn_says_how_long_it_took(watched):
    watched.observe_send()
    (turn,) = watched.frame(ended(name="done"))
    assert turn.duration_ms == 1000


def test_a_turn_lasts_until_its_end_was_told_however_late_the_next_send_is(watched):
    watched.observe_send()
    watched.frame(created(), ended())
    watched.at += 60
    turn = watched.observe_send("r-1")[0]
    assert (turn.status, turn.duration_ms) == ("completed", 2000)


def test_keys_and_bearer_tokens_are_taken_out_without_any_rule(watched):
    item = {
        **SEARCH,
        "action": {"headers": "Authorization: Bearer abcdef0123456789"},
        "results": "sk-" + "a" * 20,
    }
    watched.observe_send()
    watched.frame(ended("r-1", "completed", item))
    told = b"".join(map(as_json, watched.events))
    assert b"abcdef0123456789" not in told
    assert b"sk-aaaa" not in told
    assert told.count(b"[redacted]") >= 2


def test_half_a_character_from_a_provider_spoils_no_event(watched):
    watched.observe_send()
    watched.observe_frame(
        b'{"type":"response.completed","response":{"id":"r","status":"completed","output":'
        b'[{"type":"mcp_call","id":"\\ud83d","name":"x","arguments":"\\ud83d","error":"\\udead"}]}}'
    )
    assert all(map(as_json, watched.events))
    assert HostedToolCompleted in watched.kinds


def test_a_hosted_tool_that_failed_says_so_and_why(watched):
    watched.observe_send()
    watched.frame(
        ended("r-1", "completed", {"type": "mcp_call", "id": "m", "error": {"message": "no such page"}})
    )
    told = watched.events[3]
    assert (told.failed, told.result) == (True, "no such page")


def test_an_observer_without_payloads_tells_the_uses_alone():
    watched = Watched(payloads=False)
    watched.observe_send()
    watched.frame(ended("r-1", "completed", {**SEARCH, "results": ["marker"]}))
    assert [watched.events[2].args_json, watched.events[3].result] == ["", ""]
    assert b"marker" not in b"".join(map(as_json, watched.events))


def test_hosted_tools_are_redacted_in_what_was_asked_and_in_what_it_gave():
    watched = Watched(
        redact=lambda tool, text: text.replace("hunter2", "***") if tool == "code_interpreter" else text
    )
    item = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "hunter2",
        "outputs": ["hunter2", "marker"],
    }
    watched.observe_send()
    watched.frame(ended("r-1", "completed", item))
    told = b"".join(map(as_json, watched.events))
    assert b"hunter2" not in told
    assert told.count(b"***") == 2
    assert b"marker" in told


def test_a_payload_is_cut_on_a_character_after_it_was_redacted():
    watched = Watched(redact=lambda _tool, text: text.replace("secret", "é"))
    item = {"type": "web_search_call", "id": "ws", "query": "secret" * PAYLOAD_BYTES}
    watched.observe_send()
    watched.frame(ended("r-1", "completed", item))
    asked = watched.events[2]
    assert asked.truncated
    assert len(asked.args_json.encode()) in (PAYLOAD_BYTES - 1, PAYLOAD_BYTES)
    assert "secret" not in asked.args_json
    assert asked.original_bytes == len('{"query":""}') + 2 * PAYLOAD_BYTES


def test_completed_and_done_are_one_turn_and_one_bill(watched):
    watched.observe_send()
    watched.frame(
        created(), ended("r-1", "completed", SEARCH), ended("r-1", "completed", SEARCH, name="done")
    )
    watched.frame(ended("r-1", "completed", SEARCH, name="done"))
    assert watched.kinds.count(TurnCompleted) == watched.kinds.count(HostedToolInvoked) == 1
    assert watched.observer.totals.tokens_in == 30


def test_events_of_another_response_are_no_part_of_the_turn(watched):
    watched.observe_send()
    watched.frame(created("r-1"), ended("r-1"))
    watched.observe_send("r-1")
    watched.frame(ended("r-1", "failed", name="done"), created("r-2"), ended("r-9", "failed"))
    assert watched.observer.response_id == "r-2"
    (turn,) = watched.frame(ended("r-2", name="done"))
    assert (turn.response_id, turn.status) == ("r-2", "completed")


def test_tokens_that_were_told_before_the_end_are_a_lower_bound(watched):
    watched.observe_send()
    usage = responses.USAGE
    watched.frame(
        responses.event("in_progress", response={"id": "r-1", "status": "in_progress", "usage": usage})
    )
    (turn,) = watched.observe_transport_error()
    assert (turn.tokens_in, turn.certainty) == (30, Certainty.AT_LEAST)


def test_a_bill_ends_the_turn_of_an_observer_that_waits_for_it():
    watched = Watched(awaits_bill=True)
    watched.observe_send(call_id="call-1")
    watched.frame(created(), ended(name="done"))
    assert watched.observer.in_turn
    cost = Cost(nano_units=70, currency="USD", source=CostSource.PRICE_TABLE, certainty=Certainty.EXACT)
    bill = Bill(usage=Usage(input_tokens=1, output_tokens=2), certainty=Certainty.EXACT, cost=cost)
    (turn,) = watched.observe_bill(bill, status="ignored")
    assert (turn.call_id, turn.status, turn.tokens_in, turn.cost_nano_units) == ("call-1", "completed", 1, 70)


def test_a_second_sending_begins_with_a_clean_slate():
    watched = Watched(awaits_bill=True)
    watched.observe_send("r-0")
    watched.frame(responses.error("previous_response_not_found"))
    watched.observer.observe_resend()
    watched.frame(created("r-1"), ended("r-1"))
    (turn,) = watched.observe_bill(Bill(certainty=Certainty.EXACT))
    assert (turn.status, turn.previous_response_id) == ("completed", None)


def test_the_end_tells_the_sums_and_how_sure_they_are(watched):
    watched.observe_send()
    watched.frame(ended("r-1", "completed", SEARCH, name="done"))
    watched.observe_send("r-1")
    watched.frame(created("r-2"))
    watched.observe_transport_error()
    (end,) = watched.observe_close("client_close")
    assert (end.turns, end.turns_completed, end.tokens_in, end.hosted_tool_calls) == (2, 1, 30, 1)
    assert end.certainty is Certainty.AT_LEAST


def test_the_observer_shows_its_state_and_no_content(watched):
    watched.observe_send()
    watched.frame(
        created(), responses.text(0, "hunter2"), ended("r-1", "completed", {**SEARCH, "query": "hunter2"})
    )
    assert "hunter2" not in repr(watched.observer)
    assert (watched.observer.session_id, watched.observer.model) == ("s-1", "m-1")
    assert (watched.observer.started, watched.observer.ended) == (True, False)


def test_frames_without_sense_and_between_turns_are_nothing(watched):
    assert watched.frame(created()) == []
    watched.observe_send()
    assert watched.observe_frame(b"no json") == []
    assert watched.observe_frame(b"[1, 2]") == []
    assert watched.frame(responses.event("completed", response="odd")) == []
    assert watched.observer.in_turn
