"""The circuit breaker of one target: a state machine that is told the time.

    CLOSED ── too many failures ──► OPEN ── its time is over ──► HALF_OPEN ── enough probes succeed ──► CLOSED
                                     ▲                               │
                                     └── a probe fails: twice as long ┘

It steers and never refuses: whoever has no better target asks one that is open all the same, and a success there is as
good as a probe's. What began before the last change of state says nothing about the state after it and is not counted.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, unique
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.routing import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

BUCKETS = 10
"""Parts of the window that are forgotten one by one."""


@unique
class State(Enum):
    """Whether a target is asked."""

    CLOSED = "CLOSED"
    """It is."""
    OPEN = "OPEN"
    """It is not, as long as there is another one."""
    HALF_OPEN = "HALF_OPEN"
    """A few calls find out whether it works again."""


class BreakerRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and when it closes."""

    failures: int = 5
    """Failures in a row that open it."""
    failure_share: float = 0.5
    """Share of failures within the window that opens it."""
    least_calls: int = 20
    """Calls within the window before their share means anything."""
    window: float = 30.0
    """Seconds that the share looks back."""
    open_seconds: float = 5.0
    """How long it stays open; twice as long after every probe that fails."""
    most_open_seconds: float = 120.0
    """The longest that it stays open, and that a target is left alone when it asks for more."""
    probes: int = 2
    """Calls in HALF_OPEN that must succeed, and as many at once at most."""


class Permit(msgspec.Struct, frozen=True):
    """A call that a breaker has let begin."""

    epoch: int
    is_probe: bool


class Breaker:
    """Watch one target. All times are seconds of one monotonic clock."""

    def __init__(self, rules: BreakerRules, changed: Callable[[State, State], None] | None = None) -> None:
        """Begin closed. `changed` hears of every change: from, to."""
        self._rules = rules
        self._changed = changed
        self._state = State.CLOSED
        self._epoch = 0
        self._streak = 0
        self._window: deque[_Bucket] = deque(maxlen=BUCKETS)
        self._openings = 0
        self._open_until = 0.0
        self._rest_until = 0.0
        self._probing = 0
        self._proven = 0

    def reconfigure(self, rules: BreakerRules) -> None:
        """Follow other rules from now on; the state stays."""
        self._rules = rules

    def state(self, now: float) -> State:
        """Return the state; an open breaker whose time is over is half-open from here on."""
        if self._state is State.OPEN and now >= self._open_until:
            self._enter(State.HALF_OPEN)
        return self._state

    @property
    def seen(self) -> State:
        """Return the state that was seen last; an open breaker whose time is over may be in it."""
        return self._state

    def is_resting(self, now: float) -> bool:
        """Say whether the target has asked to be left alone until later."""
        return now < self._rest_until

    def is_free(self, now: float) -> bool:
        """Say whether the target is to be asked now."""
        if self.is_resting(now):
            return False
        state = self.state(now)
        return state is State.CLOSED or (state is State.HALF_OPEN and self._probing < self._rules.probes)

    def free_at(self, now: float) -> float:
        """Return when it is to be asked again; `now` when that depends on calls under way, or on nothing."""
        opens = self._open_until if self.state(now) is State.OPEN else now
        return max(now, opens, self._rest_until)

    def begin(self, now: float) -> Permit:
        """Let a call begin, also one that nobody else can take; every permit must be given back to `end`."""
        is_probe = self.state(now) is State.HALF_OPEN
        self._probing += is_probe
        return Permit(self._epoch, is_probe)

    def end(self, permit: Permit, verdict: Verdict, now: float, rest: float = 0.0) -> None:
        """Take in how a call ended; `rest`: seconds for which the target asked to be left alone."""
        if rest > 0:
            self._rest_until = max(self._rest_until, now + min(rest, self._rules.most_open_seconds))
        if permit.epoch != self._epoch:
            return
        self._probing -= permit.is_probe
        if verdict is not Verdict.NEUTRAL:
            self._learn(now, is_good=verdict is Verdict.GOOD)

    def _learn(self, now: float, *, is_good: bool) -> None:
        if self._state is State.CLOSED:
            self._count(now, is_good=is_good)
            if not is_good and self._has_failed_too_often(now):
                self._open(now)
        elif is_good:
            self._prove()
        elif self._state is State.HALF_OPEN:
            self._open(now)

    def _count(self, now: float, *, is_good: bool) -> None:
        self._streak = 0 if is_good else self._streak + 1
        width = self._rules.window / BUCKETS
        if not self._window or now - self._window[-1].begun >= width:
            self._window.append(_Bucket(now))
        self._window[-1].good += is_good
        self._window[-1].bad += not is_good

    def _has_failed_too_often(self, now: float) -> bool:
        recent = [each for each in self._window if now - each.begun < self._rules.window]
        bad = sum(each.bad for each in recent)
        calls = bad + sum(each.good for each in recent)
        is_outlier = calls >= self._rules.least_calls and bad >= self._rules.failure_share * calls
        return is_outlier or self._streak >= self._rules.failures

    def _open(self, now: float) -> None:
        rules = self._rules
        # 2 ** 64 times any time is longer than the longest.
        seconds = min(rules.open_seconds * 2.0 ** min(self._openings, 64), rules.most_open_seconds)
        self._openings += 1
        self._open_until = now + seconds
        self._enter(State.OPEN)

    def _prove(self) -> None:
        proven = self._proven + 1
        if self._state is State.OPEN:
            self._enter(State.HALF_OPEN)
        self._proven = proven
        if proven >= self._rules.probes:
            self._openings = 0
            self._enter(State.CLOSED)

    def _enter(self, state: State) -> None:
        before, self._state = self._state, state
        self._epoch += 1
        self._streak = self._probing = self._proven = 0
        self._window.clear()
        if self._changed is not None:
            self._changed(before, state)


class _Bucket:
    """What ended within one part of the window."""

    __slots__ = ("bad", "begun", "good")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.good = 0
        self.bad = 0
