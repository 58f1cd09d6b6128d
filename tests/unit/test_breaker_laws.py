"""Whatever happens in whatever order, a breaker keeps its laws: a plain model says after each step what holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from modelmeter_server.core.routing import Verdict
from modelmeter_server.engine.breaker import Breaker, BreakerRules, Permit, State

RULES = BreakerRules(
    failures=3, failure_share=1.0, least_calls=1_000, open_seconds=4.0, most_open_seconds=16.0, probes=2
)
ALLOWED = {
    (State.CLOSED, State.OPEN),
    (State.OPEN, State.HALF_OPEN),
    (State.HALF_OPEN, State.OPEN),
    (State.HALF_OPEN, State.CLOSED),
}


class BreakerMachine(RuleBasedStateMachine):
    """The model keeps what ended since the last change; only that may cause the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.changes: list[tuple[State, State]] = []
        self.breaker = Breaker(RULES, lambda *change: self.changes.append(change))
        self.running: list[
            tuple[Permit, int, bool]
        ] = []  # (permit, how many changes there were, was it a probe)
        self.since: list[Verdict] = []  # what ended of what began since the last change
        self.opened_at = 0.0
        self.openings = 0
        self.rest_until = 0.0

    def look(self) -> State:
        before = len(self.changes)
        state = self.breaker.state(self.now)
        if len(self.changes) > before:
            self.since = []
        return state

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 4.0, 8.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        before = self.changes[-1][1] if self.changes else State.CLOSED
        state = self.look()
        if before is State.OPEN:
            length = min(RULES.open_seconds * 2 ** (self.openings - 1), RULES.most_open_seconds)
            assert (state is State.HALF_OPEN) == (self.now >= self.opened_at + length)
        else:
            assert state is before

    @rule()
    def begin(self) -> None:
        state = self.look()
        self.running.append((self.breaker.begin(self.now), len(self.changes), state is State.HALF_OPEN))

    @precondition(lambda self: self.running)
    @rule(
        index=st.integers(0, 50),
        verdict=st.sampled_from([*Verdict, Verdict.BAD, Verdict.BAD]),
        rest=st.sampled_from([0.0, 0.0, 2.0, 99.0]),
    )
    def end(self, index: int, verdict: Verdict, rest: float) -> None:
        before, number = self.look(), len(self.changes)
        permit, epoch, _ = self.running.pop(index % len(self.running))
        self.breaker.end(permit, verdict, self.now, rest)
        if rest:
            self.rest_until = max(self.rest_until, self.now + min(rest, RULES.most_open_seconds))
        if epoch == number and verdict is not Verdict.NEUTRAL:
            self.since.append(verdict)
        assert self.changes[number:] == self.expected(before, is_new=epoch == number, verdict=verdict)
        self.follow(number)

    def expected(self, before: State, *, is_new: bool, verdict: Verdict) -> list[tuple[State, State]]:
        if not is_new or verdict is Verdict.NEUTRAL:
            return []
        if before is State.CLOSED:
            is_row = self.since[-RULES.failures :] == [Verdict.BAD] * RULES.failures
            return [(State.CLOSED, State.OPEN)] if is_row else []
        if before is State.OPEN:
            return [(State.OPEN, State.HALF_OPEN)] if verdict is Verdict.GOOD else []
        if verdict is Verdict.BAD:
            return [(State.HALF_OPEN, State.OPEN)]
        is_proven = self.since.count(Verdict.GOOD) >= RULES.probes
        return [(State.HALF_OPEN, State.CLOSED)] if is_proven else []

    def follow(self, number: int) -> None:
        for before, after in self.changes[number:]:
            # A success while it was open has proven as much as a probe.
            self.since = [Verdict.GOOD] if (before, after) == (State.OPEN, State.HALF_OPEN) else []
            if after is State.OPEN:
                self.opened_at, self.openings = self.now, self.openings + 1
            elif after is State.CLOSED:
                self.openings = 0

    @invariant()
    def only_allowed_changes(self) -> None:
        assert set(self.changes) <= ALLOWED
        assert all(one[1] is two[0] for one, two in zip(self.changes, self.changes[1:], strict=False))

    @invariant()
    def freedom_follows_from_state_rest_and_probes(self) -> None:
        state = self.look()
        probes = sum(is_probe and epoch == len(self.changes) for _, epoch, is_probe in self.running)
        has_room = state is State.CLOSED or (state is State.HALF_OPEN and probes < RULES.probes)
        assert self.breaker.is_free(self.now) == (has_room and self.now >= self.rest_until)

    @invariant()
    def it_is_always_free_again_at_some_time(self) -> None:
        assert self.now <= self.breaker.free_at(self.now) <= self.now + RULES.most_open_seconds


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
