"""How the targets of a deployment fare: how many calls each one has, and what its breaker says. One for a server.

A target is known by its name, so that all models that have it share what is known of it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from modelmeter_server.telemetry.log import get_logger

from .breaker import Breaker, BreakerRules, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelmeter_server.core.routing import Verdict
    from modelmeter_server.telemetry.observation import Telemetry

    from .breaker import Permit

_LEVELS = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
"""States as figures, the worst one last."""

_log = get_logger(__name__)


class TargetState:
    """How one target fares. A call holds on to it, whatever the configuration becomes meanwhile."""

    def __init__(
        self,
        name: str,
        rules: BreakerRules,
        clock: Callable[[], float],
        changed: Callable[[str, State, State], None],
    ) -> None:
        self.name = name
        self.running = 0
        """Calls under way."""
        self._clock = clock
        self._breaker = Breaker(rules, lambda before, after: changed(name, before, after))

    @property
    def state(self) -> State:
        """Return whether it is asked."""
        return self._breaker.state(self._clock())

    @property
    def seen(self) -> State:
        """Return the state that was seen last, without a look at the clock."""
        return self._breaker.seen

    @property
    def is_free(self) -> bool:
        """Say whether it is to be asked now."""
        return self._breaker.is_free(self._clock())

    @property
    def is_resting(self) -> bool:
        """Say whether it has asked to be left alone."""
        return self._breaker.is_resting(self._clock())

    @property
    def free_in(self) -> float:
        """Return in how many seconds it is to be asked again."""
        now = self._clock()
        return self._breaker.free_at(now) - now

    def reconfigure(self, rules: BreakerRules) -> None:
        """Follow other rules."""
        self._breaker.reconfigure(rules)

    def begin(self) -> Permit:
        """Let a call begin; the permit is given back to `end`."""
        self.running += 1
        return self._breaker.begin(self._clock())

    def end(self, permit: Permit, verdict: Verdict, rest: float) -> None:
        """Take in how a call ended; `rest`: seconds for which the target asked to be left alone."""
        self.running -= 1
        self._breaker.end(permit, verdict, self._clock(), rest)


class Targets:
    """The targets of all models that have any."""

    def __init__(
        self,
        rules: Mapping[str, BreakerRules] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Begin with all of them well. `rules` are keyed by the targets' names; `telemetry` is told of every change."""
        self._clock = clock
        self._telemetry = telemetry
        self._states: dict[str, TargetState] = {}
        self.reconfigure(rules or {})

    def reconfigure(self, rules: Mapping[str, BreakerRules]) -> None:
        """Have these targets from now on. What is known of those that stay is kept; it cannot fail half-way."""
        states = {
            name: self._states.get(name) or TargetState(name, each, self._clock, self._tell)
            for name, each in rules.items()
        }
        for name, each in rules.items():
            states[name].reconfigure(each)
        self._states = states
        self._note()

    def find(self, name: str) -> TargetState:
        """Return how a target fares; one that is unknown, as after a reload, is well and forgotten again."""
        return self._states.get(name) or TargetState(name, BreakerRules(), self._clock, self._tell)

    def states(self) -> list[tuple[str, State, int]]:
        """Return name, state and calls under way of each."""
        return [(name, each.state, each.running) for name, each in self._states.items()]

    def _tell(self, name: str, before: State, after: State) -> None:
        log = _log.warning if after is State.OPEN else _log.info
        log("target changed", target=name, before=before.value, after=after.value)
        self._note()
        if self._telemetry is not None:
            self._telemetry.breaker_changed(name, before.value, after.value)

    def _note(self) -> None:
        if self._telemetry is not None:
            self._telemetry.targets_stand([(each, _LEVELS[of.seen]) for each, of in self._states.items()])
