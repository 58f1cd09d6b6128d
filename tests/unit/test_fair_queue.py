"""Whose turn it is: parties one after another, in each the oldest whose way is free."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.fair_queue import Answer, FairQueue

Who = tuple[str, str, int]
"""Party, lane and number."""


class Gate:
    """Lets `room` in; lanes in `closed` have to wait."""

    def __init__(self, room: int, closed: frozenset[str] = frozenset()) -> None:
        self.room = room
        self.closed = closed
        self.let_in: list[Who] = []

    def __call__(self, who: Who) -> Answer:
        if len(self.let_in) >= self.room:
            return Answer.FULL
        if who[1] in self.closed:
            return Answer.BLOCKED
        self.let_in.append(who)
        return Answer.ADMITTED


def queue_of(*arrivals: tuple[str, str]) -> FairQueue[Who]:
    queue: FairQueue[Who] = FairQueue()
    for number, (party, lane) in enumerate(arrivals):
        queue.push(party, lane, (party, lane, number))
    return queue


def test_parties_take_turns_however_many_one_of_them_sends():
    queue = queue_of(*[("a", "m")] * 100, ("b", "m"), ("c", "m"), ("b", "m"))
    gate = Gate(5)
    queue.serve(gate)
    assert [party for party, _, _ in gate.let_in] == ["a", "b", "c", "a", "b"]
    assert (len(queue), queue.count("a"), queue.count("b")) == (98, 98, 0)


def test_the_turn_goes_on_where_it_stood():
    queue = queue_of(("a", "m"), ("a", "m"), ("b", "m"), ("b", "m"))
    order = []
    for _ in range(4):
        gate = Gate(1)
        queue.serve(gate)
        order += gate.let_in
    assert [number for _, _, number in order] == [0, 2, 1, 3]


def test_one_lane_that_is_blocked_holds_up_no_other_and_keeps_its_place():
    queue = queue_of(("a", "slow"), ("a", "fast"), ("b", "fast"), ("a", "slow"))
    gate = Gate(9, frozenset({"slow"}))
    queue.serve(gate)
    assert gate.let_in == [("a", "fast", 1), ("b", "fast", 2)]
    queue.push("c", "fast", ("c", "fast", 4))
    gate = Gate(2)
    queue.serve(gate)
    assert gate.let_in == [("a", "slow", 0), ("c", "fast", 4)]


def test_who_leaves_is_gone_and_those_behind_move_up():
    queue = queue_of(("a", "m"), ("a", "m"), ("a", "m"))
    first, second, _ = list(queue)
    assert queue.remove("a", "m", second)
    assert not queue.remove("a", "m", second)
    assert not queue.remove("nobody", "m", first)
    gate = Gate(9)
    queue.serve(gate)
    assert [number for _, _, number in gate.let_in] == [0, 2]
    assert (len(queue), queue.count("a"), list(queue)) == (0, 0, [])


def test_the_newest_of_the_largest_party_gives_way_and_never_to_its_equal():
    queue = queue_of(("a", "m"), ("a", "n"), ("a", "m"), ("b", "m"))
    assert queue.newest_of_the_largest("c") == ("a", "m", 2)
    assert queue.newest_of_the_largest("b") == ("a", "m", 2)
    assert queue.newest_of_the_largest("a") is None
    assert queue_of(("a", "m"), ("b", "m"), ("b", "m")).newest_of_the_largest("a") is None
    assert queue_of().newest_of_the_largest("a") is None


arrivals = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("mn")), max_size=60)


@given(arrivals, st.integers(0, 60))
def test_no_party_gets_two_more_than_another_that_still_waits(told, room):
    queue, gate = queue_of(*told), Gate(room)
    queue.serve(gate)
    assert len(gate.let_in) == min(room, len(told))
    served = Counter(party for party, _, _ in gate.let_in)
    for party in {party for party, _ in told}:
        if queue.count(party):
            assert all(count <= served[party] + 1 for count in served.values())


@given(arrivals, st.lists(st.integers(0, 4), max_size=30))
def test_nobody_overtakes_in_a_lane_and_nobody_is_lost(told, rooms):
    queue, order = queue_of(*told), []
    for room in rooms:
        gate = Gate(room, frozenset("m") if room % 2 else frozenset())
        queue.serve(gate)
        order += gate.let_in
    for party in "abcd":
        for lane in "mn":
            numbers = [number for a, b, number in order if (a, b) == (party, lane)]
            assert numbers == sorted(numbers)
    assert sorted([*order, *queue]) == sorted((a, b, number) for number, (a, b) in enumerate(told))
