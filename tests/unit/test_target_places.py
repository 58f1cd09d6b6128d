"""A call that may be served by several provider instances: its place is at one of them, and moves with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.call_limits import AdmissionLimits
from modelmeter_server.core.errors import Failure
from modelmeter_server.engine.admission import Admission
from modelmeter_server.engine.entry import Entry

BOTH = ("a", "b")


def admission(**targets: int) -> Admission:
    """Return an admission with these limits of targets, where many may wait for long."""
    return Admission(AdmissionLimits(queued=100, queue_seconds=1_000, targets=targets), clock=lambda: 0)


def entering(at: Admission, *targets: str) -> Entry:
    entered = at.enter("acme", "m" + "".join(targets), targets, 0)
    assert isinstance(entered, Entry), entered
    return entered


def load(at: Admission, names: str = "ab") -> list[int]:
    return [at.load.in_flight(name) for name in names]


async def test_a_call_gets_its_place_at_the_first_instance_with_room():
    at = admission(a=1, b=1)
    first, second, third = (entering(at, *BOTH) for _ in range(3))
    assert (first.target, second.target, third.has_place) == ("a", "b", False)
    second.settle(None)
    assert (third.target, third.has_place, load(at)) == ("b", True, [1, 1])


async def test_a_call_that_moves_takes_the_place_there_and_leaves_the_one_it_had():
    at = admission(a=1, b=1)
    call = entering(at, *BOTH)
    assert call.move("b")
    assert (call.target, load(at)) == ("b", [0, 1])
    call.settle(None)
    assert load(at) == [0, 0]


async def test_a_call_that_finds_no_room_stays_where_it_is():
    at = admission(a=1, b=1)
    call, other = entering(at, *BOTH), entering(at, "b")
    assert not call.move("b")
    assert (call.target, load(at)) == ("a", [1, 1])
    other.settle(None)
    assert call.move("b")


async def test_who_has_a_place_may_stay_at_it_even_above_a_limit_that_came_later():
    at = admission()
    calls = [entering(at, *BOTH) for _ in range(3)]
    at.reconfigure(AdmissionLimits(targets={"a": 1, "b": 1}))
    assert all(call.move("a") for call in calls)
    assert [call.move("b") for call in calls] == [True, False, False]
    assert load(at) == [2, 1]


async def test_the_place_that_a_call_leaves_goes_to_who_waits_for_it():
    at = admission(a=1, b=1)
    call, waiting = entering(at, *BOTH), entering(at, "a")
    assert not waiting.has_place
    assert call.move("b")
    assert (waiting.has_place, load(at)) == (True, [1, 1])


async def test_who_is_behind_the_first_of_its_lane_hears_what_that_one_waits_for():
    at = admission(a=1, b=1)
    *_, last = (at.enter("acme", "m", (bound,), 0) for bound in ("a", "a", "b"))
    assert isinstance(last, Entry)
    assert not last.has_place
    assert [each.subject for each in last.obstacle().quotas] == ["target:a"]


@pytest.mark.parametrize("gone", [False, True])
async def test_who_has_no_place_cannot_move(gone):
    at = admission(a=1)
    holding, call = entering(at, "a"), entering(at, "a")
    if gone:
        holding.settle(None)
        call.settle(None)
    assert not call.move("b")
    assert load(at) == [0 if gone else 1, 0]


async def test_a_refusal_names_the_first_instance_where_all_are_full():
    at = Admission(AdmissionLimits(queued=0, targets={"a": 1, "b": 2}))
    calls = [entering(at, *BOTH) for _ in range(3)]
    refusal = at.enter("acme", "m", BOTH, 0)
    assert isinstance(refusal, Failure)
    assert [each.subject for each in refusal.quotas] == ["target:a"]
    assert [call.target for call in calls] == ["a", "b", "b"]


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("enter"), st.permutations("abc").flatmap(lambda p: st.sampled_from([p, p[:2], p[:1]]))
        ),
        st.tuples(st.just("move"), st.tuples(st.integers(0, 30), st.sampled_from("abc"))),
        st.tuples(st.just("settle"), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(steps)
async def test_no_target_ever_has_more_than_its_limit_and_none_has_any_in_the_end(told):
    limits = {"a": 1, "b": 2}
    at = admission(**limits)
    inside: list[Entry] = []
    for step, what in told:
        if step == "enter":
            inside.append(entering(at, *what))
        elif step == "move" and inside:
            inside[what[0] % len(inside)].move(what[1])
        elif step == "settle" and inside:
            inside.pop(what % len(inside)).settle(None)
        placed = [entry.target for entry in inside if entry.has_place]
        assert load(at, "abc") == [placed.count(name) for name in "abc"]
        assert all(at.load.in_flight(name) <= limit for name, limit in limits.items())
    for entry in inside:
        entry.settle(None)
    assert (load(at, "abc"), at.placed, at.waiting) == ([0, 0, 0], 0, 0)
