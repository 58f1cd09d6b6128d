"""Room for calls by a clock that stands until it is moved: limits, turns, refusals, and what comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.rate import MINUTE
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.admission import Admission
from modelmeter_server.engine.cut import Cut
from modelmeter_server.engine.entry import Entry, unused
from modelmeter_server.engine.waiting import room_for

SECOND = MINUTE // 60


class House:
    """An admission, its clock, and the calls that are in it."""

    def __init__(self, *, share: int = 1, worker: int = 0, **limits: Any) -> None:
        self.at = 0
        self.admission = Admission(
            AdmissionLimits(**limits), share=share, worker=worker, clock=lambda: self.at
        )

    def enter(
        self,
        tenant: str = "acme",
        model: str = "claude",
        tokens: int | None = 0,
        target: str = "p",
        left: float | None = None,
    ) -> Entry:
        entered = self.admission.enter(tenant, model, (target,), tokens, left=left)
        assert isinstance(entered, Entry), entered
        return entered

    def refused(self, *arguments: Any, **more: Any) -> Failure:
        refusal = self.admission.enter(
            *(arguments or ("acme", "claude", ("p",), 0)), **{"left": None, **more}
        )
        assert isinstance(refusal, Failure)
        return refusal

    def pass_seconds(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)
        self.admission.serve()


def outcome(result: Answer | Failure, *, attempts: int = 1, replayed: bool = False) -> CallOutcome:
    return CallOutcome(
        call_id="1", model_asked="claude", result=result, attempts_total=attempts, replayed=replayed
    )


def answer(tokens: int, certainty: Certainty = Certainty.EXACT) -> Answer:
    return Answer(text="Hi", usage=Usage(input_tokens=tokens, output_tokens=0), certainty=certainty)


@pytest.mark.parametrize(
    ("limits", "subject", "limit"),
    [
        ({"concurrent": 1}, "server", "max_concurrent_calls"),
        ({"tenants": {"acme": CallLimits(concurrent=1)}}, "tenant:acme", "limits.concurrent"),
        ({"models": {"claude": CallLimits(concurrent=1)}}, "model:claude", "limits.concurrent"),
        ({"targets": {"p": 1}}, "target:p", "max_concurrent_calls"),
    ],
)
async def test_each_limit_on_calls_at_once_refuses_by_its_name_and_takes_the_next_when_one_has_left(
    limits, subject, limit
):
    house = House(queued=0, **limits)
    first = house.enter()
    refusal = house.refused()
    assert (refusal.kind, refusal.cause, refusal.stage) == (
        Kind.OVERLOADED,
        Cause.LIMIT,
        Stage.NOT_WRITTEN,
    )
    assert [(each.subject, each.description) for each in refusal.quotas] == [(subject, f"{limit}: 1 allowed")]
    assert limit in refusal.message
    assert refusal.retry_after == 1.0
    first.settle(outcome(answer(1)))
    house.enter()


async def test_the_load_of_a_target_is_what_is_under_way_there():
    house = House()
    first, _, other = house.enter(target="p"), house.enter(target="p"), house.enter(target="q")
    assert [house.admission.load.in_flight(name) for name in ("p", "q", "r")] == [2, 1, 0]
    first.settle(None)
    other.settle(None)
    assert [house.admission.load.in_flight(name) for name in ("p", "q")] == [1, 0]


async def test_a_rate_is_spent_call_by_call_and_says_when_room_returns():
    house = House(queued=0, tenants={"acme": CallLimits(requests_per_minute=2)})
    house.enter(), house.enter()
    assert house.refused().retry_after == 30.0
    assert house.enter("other").has_place
    house.pass_seconds(29)
    assert house.refused().retry_after == 1.0
    house.pass_seconds(1)
    house.enter()


async def test_tokens_are_held_by_the_estimate_and_corrected_by_the_truth():
    house = House(queued=0, models={"claude": CallLimits(tokens_per_minute=1_000)})
    first = house.enter(tokens=900)
    assert (
        house.refused("acme", "claude", "p", 200).quotas[0].description.startswith("limits.tokens_per_minute")
    )
    first.settle(outcome(answer(100)))
    second = house.enter(tokens=900)
    second.settle(outcome(answer(1_500)))
    assert house.refused("acme", "claude", "p", 1).retry_after == pytest.approx(60 * 601 / 1_000)


@pytest.mark.parametrize(
    ("ended", "back"),
    [
        (outcome(answer(30)), (0, 70)),
        (outcome(answer(130)), (0, -30)),
        (outcome(answer(30, Certainty.AT_LEAST)), (0, 0)),
        (outcome(answer(130, Certainty.AT_LEAST)), (0, -30)),
        (outcome(Answer(text="Hi", certainty=Certainty.UNKNOWN)), (0, 0)),
        (outcome(answer(30), replayed=True), (1, 100)),
        (outcome(failure(Kind.REFUSED, "no", cause=Cause.LIMIT), attempts=0), (1, 100)),
        (outcome(failure(Kind.RATE_LIMITED, "later")), (0, 100)),
        (outcome(failure(Kind.UNAVAILABLE, "500", retryable=True)), (0, 100)),
        (outcome(failure(Kind.UNAVAILABLE, "silence", retryable=False)), (0, 0)),
    ],
)
def test_only_what_is_exact_or_was_never_bought_gives_back(ended, back):
    assert unused(ended, 100) == back


async def test_a_count_takes_a_place_and_nothing_of_a_rate():
    house = House(queued=0, tenants={"acme": CallLimits(requests_per_minute=1, concurrent=2)})
    house.enter()
    count = house.enter(tokens=None)
    assert house.refused("acme", "claude", "p", None).quotas[0].description == "limits.concurrent: 2 allowed"
    count.settle(outcome(answer(5)))
    assert house.refused().retry_after == 60.0


async def test_who_waits_is_let_in_in_turn_as_places_come_back():
    house = House(concurrent=1, queued=10)
    first = house.enter("a")
    waiting = [house.enter(tenant) for tenant in ("a", "a", "b")]
    assert [entry.has_place for entry in waiting] == [False, False, False]
    assert house.admission.waiting == 3
    order, placed = [], first
    for _ in range(3):
        placed.settle(None)
        (placed,) = [entry for entry in waiting if entry.has_place and entry not in order]
        order.append(placed)
    assert order == [waiting[0], waiting[2], waiting[1]]


async def test_a_queue_has_a_bound_and_gives_a_newcomer_the_place_of_who_fills_it():
    house = House(concurrent=1, queued=3)
    house.enter("a")
    first, second, third = (house.enter("a") for _ in range(3))
    assert house.refused("a", "m", "p", 0).quotas[0].description == "max_queued_calls: 3 allowed"
    newcomer = house.enter("b")
    assert third.decided is not None
    assert third.decided.result() is not None
    assert third.decided.result().kind is Kind.OVERLOADED  # type: ignore[union-attr]
    assert [each.decided.done() for each in (first, second, newcomer)] == [False] * 3  # type: ignore[union-attr]
    assert house.refused("b", "m", "p", 0).kind is Kind.OVERLOADED


async def test_a_tenant_has_its_own_bound_on_who_waits():
    house = House(concurrent=1, queued=10, tenants={"a": CallLimits(queued=1)})
    house.enter("a")
    house.enter("a")
    assert house.refused("a", "claude", "p", 0).quotas[0].subject == "tenant:a"
    house.enter("b")


async def test_nobody_waits_for_what_returns_too_late():
    house = House(queue_seconds=5, tenants={"acme": CallLimits(requests_per_minute=6)})
    for _ in range(6):
        house.enter()
    assert house.refused().retry_after == 10.0
    house.pass_seconds(6)
    assert house.refused(left=3).retry_after == 4.0
    assert not house.enter(left=4.5).has_place


async def test_a_large_call_is_not_overtaken_for_ever_by_small_ones_of_others():
    house = House(queue_seconds=60, models={"claude": CallLimits(tokens_per_minute=600)})
    house.enter(tokens=600)
    large = house.enter("large", tokens=500)
    small = [house.enter(f"small-{number}", tokens=10) for number in range(3)]
    for _ in range(49):
        house.pass_seconds(1)
        assert not any(entry.has_place for entry in (large, *small))
    house.pass_seconds(1)
    assert large.has_place
    house.pass_seconds(3)
    assert all(entry.has_place for entry in small)


async def test_who_waits_for_one_model_holds_up_nobody_who_asks_for_another():
    house = House(models={"slow": CallLimits(concurrent=1)})
    house.enter(model="slow")
    waiting = house.enter(model="slow")
    assert house.enter(model="fast").has_place
    assert not waiting.has_place


async def test_who_leaves_the_queue_frees_its_place_there_at_once():
    house = House(concurrent=1, queued=1)
    placed = house.enter()
    leaving = house.enter()
    house.refused()
    leaving.withdraw()
    last = house.enter()
    placed.settle(None)
    assert last.has_place
    assert not leaving.has_place


async def test_who_waited_too_long_is_out_of_the_queue_before_it_hears_of_it():
    house = House(concurrent=1, queue_seconds=0.01)
    house.enter()
    refusal = await room_for(house.enter(), Cut())
    assert refusal is not None
    assert refusal.kind is Kind.OVERLOADED
    assert house.admission.waiting == 0


async def test_a_drain_refuses_all_who_wait_and_none_who_has_a_place():
    house = House(concurrent=1, queued=5)
    placed, *waiting = (house.enter() for _ in range(3))
    house.admission.drain()
    refusals = [each.decided.result() for each in waiting if each.decided is not None]
    assert [each is not None and each.kind for each in refusals] == [Kind.DRAINING] * 2
    assert placed.has_place


async def test_who_stands_beside_counts_among_those_who_wait_and_is_not_served():
    house = House(concurrent=1, queued=2)
    placed = house.enter()
    beside, other = house.enter(), house.enter()
    assert beside.step_beside()
    house.refused()
    placed.settle(None)
    assert other.has_place
    beside.step_back()
    other.settle(None)
    assert beside.has_place
    assert house.admission.waiting == 0


async def test_a_call_with_several_targets_has_one_place_and_moves_it_only_where_there_is_room():
    house = House(queued=0, targets={"p": 1, "q": 1})
    first = house.admission.enter("acme", "claude", ("p", "q"), 0)
    second = house.admission.enter("acme", "claude", ("p", "q"), 0)
    assert isinstance(first, Entry)
    assert isinstance(second, Entry)
    assert (first.target, second.target) == ("p", "q")
    assert not first.move("q")
    assert first.move("p")
    assert house.refused("acme", "claude", ("p", "q"), 0).quotas[0].subject == "target:p"
    second.settle(None)
    assert first.move("q")
    assert [house.admission.load.in_flight(name) for name in "pq"] == [0, 1]
    first.settle(None)
    assert [house.admission.load.in_flight(name) for name in "pq"] == [0, 0]


@given(moves=st.lists(st.tuples(st.sampled_from(("enter", "move", "leave")), st.sampled_from("pqr"))))
async def test_no_target_ever_has_more_calls_than_it_may(moves):
    limits = {"p": 1, "q": 2}
    house, inside = House(queued=0, targets=limits), []
    for move, target in moves:
        if move == "enter":
            entered = house.admission.enter("acme", "claude", tuple(sorted({target, "q"})), 0)
            inside += [entered] if isinstance(entered, Entry) else []
        elif inside and move == "move":
            inside[0].move(target)
            inside.append(inside.pop(0))
        elif inside:
            inside.pop().settle(None)
        load = {name: house.admission.load.in_flight(name) for name in "pqr"}
        assert sum(load.values()) == len(inside)
        assert all(load[name] <= most for name, most in limits.items())


async def test_a_place_that_a_reader_holds_is_taken_until_it_has_read():
    house = House(concurrent=1, queued=0, tenants={"acme": CallLimits(concurrent=1)})
    entry = house.enter()
    entry.hold()
    entry.settle(outcome(answer(1)))
    assert house.refused().quotas[0].subject == "server"
    entry.release()
    assert house.enter().has_place


async def test_new_limits_hold_for_who_is_there_and_let_in_who_waits():
    house = House(concurrent=1, queued=5)
    first, second = house.enter("a"), house.enter("b")
    limits = AdmissionLimits(queued=0, tenants={"a": CallLimits(concurrent=1, requests_per_minute=60)})
    house.admission.reconfigure(limits)
    assert second.has_place
    assert house.refused("a", "m", "p", 0).quotas[0].subject == "tenant:a"
    first.settle(None)
    house.enter("a").settle(None)
    house.admission.reconfigure(msgspec.structs.replace(limits, tenants={}))
    assert all(house.enter("a").has_place for _ in range(3))


async def test_a_rate_that_stays_remembers_what_was_spent_when_limits_are_read_anew():
    house = House(queued=0, tenants={"acme": CallLimits(requests_per_minute=2)})
    house.enter(), house.enter()
    house.admission.reconfigure(house.admission.limits)
    assert house.refused().retry_after == 30.0


async def test_a_timer_lets_in_who_waits_for_a_rate():
    admission = Admission(AdmissionLimits(tenants={"a": CallLimits(requests_per_minute=6_000)}))
    entry = admission.enter("a", "m", ("p",), 0)
    while isinstance(entry, Entry) and entry.has_place:
        entry.settle(outcome(answer(1)))
        entry = admission.enter("a", "m", ("p",), 0)
    assert isinstance(entry, Entry)
    assert entry.decided is not None
    assert await entry.decided is None
    assert entry.has_place


@pytest.mark.parametrize(("limit", "parts"), [(10, [4, 3, 3]), (9, [3, 3, 3]), (2, [1, 1, 1])])
def test_workers_divide_a_limit_and_the_first_get_what_is_left_over(limit, parts):
    whole = AdmissionLimits(concurrent=limit, tenants={"a": CallLimits(tokens_per_minute=limit)})
    shares = [whole.divided(3, worker) for worker in range(3)]
    assert [each.concurrent for each in shares] == parts
    assert [each.tenants["a"].tokens_per_minute for each in shares] == parts
    assert {each.tenants["a"].concurrent for each in shares} == {None}


def test_a_queue_that_is_switched_off_stays_off_for_every_worker():
    assert AdmissionLimits(queued=0).divided(4, 0).queued == 0


async def test_an_admission_takes_its_share():
    house = House(share=4, worker=1, concurrent=5, queued=0)
    house.enter()
    house.refused()


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_the_parts_of_a_limit_add_up_to_it_where_there_is_one_for_each(limit, share):
    parts = [AdmissionLimits(concurrent=limit).divided(share, worker).concurrent for worker in range(share)]
    assert sum(parts) == max(limit, share)
    assert max(parts) - min(parts) <= 1


moves = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from("abc"), st.integers(0, 50)),
        st.tuples(st.sampled_from(("settle", "withdraw", "wait")), st.integers(0, 30), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(moves)
async def test_no_limit_is_ever_broken_and_no_place_is_ever_lost(told):
    house = House(
        concurrent=5,
        queued=4,
        queue_seconds=1_000,
        tenants={name: CallLimits(concurrent=3, tokens_per_minute=60) for name in "ab"},
    )
    inside: list[Entry] = []
    for move, who, number in told:
        if move == "enter":
            entered = house.admission.enter(str(who), "m", ("p",), number)
            inside += [entered] if isinstance(entered, Entry) else []
        elif move == "wait":
            house.pass_seconds(number)
        elif inside:
            entry = inside[int(who) % len(inside)]
            if move == "settle" or not entry.has_place:
                entry.settle(outcome(answer(number)) if entry.has_place else None)
                inside.remove(entry)
        placed = [entry for entry in inside if entry.has_place]
        assert len(placed) == house.admission.placed <= 5
        assert len(placed) == house.admission.load.in_flight("p")
        assert all(sum(entry.tenant == name for entry in placed) <= 3 for name in "ab")
        assert house.admission.waiting <= 4
    for entry in inside:
        entry.settle(None)
    assert (house.admission.placed, house.admission.waiting) == (0, 0)
