"""Whatever happens to a session, and in whatever order: the laws of its events."""

import json

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.session_events import (
    Bill,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
    TurnStarted,
)
from modelmeter_server.core.session_observer import SessionObserver
from modelmeter_server.core.usage import Usage

IDS = st.sampled_from(["r-1", "r-2", "r-3", ""])
NAMES = st.sampled_from(
    ["created", "queued", "in_progress", "completed", "incomplete", "failed", "done", "output_text.delta"]
)
STATUSES = st.sampled_from(["in_progress", "completed", "failed", "queued", ""])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "response", "id", "output"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FRAMES = st.one_of(
    st.builds(
        lambda name, id, status: json.dumps(
            {
                "type": f"response.{name}",
                "response": {"id": id, "status": status, "usage": {"input_tokens": 1}},
            }
        ).encode(),
        NAMES,
        IDS,
        STATUSES,
    ),
    st.just(b'{"type":"error","error":{"code":"x"}}'),
    JUNK.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=20),
)
BILLS = st.builds(
    Bill,
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 2**63 - 1)),
    certainty=st.sampled_from(Certainty),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("observe_send"), st.none() | IDS),
        st.tuples(st.just("observe_frame"), FRAMES),
        st.tuples(st.just("observe_bill"), BILLS),
        st.tuples(st.sampled_from(["observe_send_error", "observe_transport_error"])),
        st.tuples(st.just("observe_close"), st.sampled_from(["idle", "client_close"])),
    ),
    max_size=40,
)


def told(steps, **options):
    observer = SessionObserver(session_id="s", model="m", **options)
    events = []
    for at, (name, *arguments) in enumerate(steps):
        events += getattr(observer, name)(*arguments, at=float(at))
    return observer, [*events, *observer.observe_close("drain", at=99.0)]


@given(STEPS, st.booleans())
def test_each_turn_that_was_started_ends_exactly_once_and_the_session_last(steps, awaits_bill):
    observer, events = told(steps, awaits_bill=awaits_bill)
    started = [each.turn for each in events if isinstance(each, TurnStarted)]
    ended = [each.turn for each in events if isinstance(each, TurnCompleted)]
    assert started == ended == list(range(1, len(started) + 1))
    if started:
        assert isinstance(events[0], SessionStarted)
        assert isinstance(events[-1], SessionEnded)
    assert sum(isinstance(each, SessionStarted | SessionEnded) for each in events) == (2 if started else 0)
    assert observer.totals.turns == len(started)


@given(STEPS)
def test_no_turn_is_said_to_be_under_way_when_it_has_ended(steps):
    _, events = told(steps)
    statuses = {each.status for each in events if isinstance(each, TurnCompleted)}
    assert not statuses & {"in_progress", "queued", ""}


@given(STEPS)
def test_completed_needs_a_terminal_event_that_says_so(steps):
    without = [
        step
        for step in steps
        if not (step[0] == "observe_frame" and (b"completed" in step[1] or b"done" in step[1]))
    ]
    _, events = told(without)
    assert all(each.status != "completed" for each in events if isinstance(each, TurnCompleted))


@given(STEPS)
def test_the_end_sums_what_the_turns_told(steps):
    _, events = told(steps)
    turns = [each for each in events if isinstance(each, TurnCompleted)]
    if turns:
        end = events[-1]
        sums = [each.tokens_in for each in turns if each.tokens_in is not None]
        assert end.tokens_in == (min(sum(sums), 2**63 - 1) if sums else None)
        assert end.turns == len(turns)
