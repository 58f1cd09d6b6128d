"""The route of a model with targets: who is asked first, who next, and why others were passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.routing import (
    PassedOver,
    PassReason,
    Verdict,
    judged,
    may_fall_back,
    rest_of,
)
from modelmeter_server.core.text import cut_utf8

from .routing import Next

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.errors import Failure

    from .breaker import Permit
    from .retrying import Retries
    from .routing import Target
    from .targets import Targets

DETAIL_BYTES = 200
"""UTF-8 bytes of why a target was passed over."""


class ManyTargets:
    """Hand out the targets of one call.

    A breaker steers and does not refuse: when no target is free, the one that is to be asked again soonest is asked
    now. A refusal of ours would make of a provider's trouble an outage, also where only one of its calls failed.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        states: Targets,
        retries: Retries,
        *,
        instance: str = "",
        watches: bool = True,
        tries_all: bool = True,
        takes: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Take the targets in the order in which the call would have them.

        `instance`, one of theirs, is the only one that can read the request's continuation; empty for any. Without
        `watches` the ends of the call's requests say nothing about the targets; without `tries_all` a refusal by the
        first one holds for all, as for a request that is wrong whoever gets it. `takes` gives the call its place at a
        provider instance, in exchange for the one that it has; it is false where there is no room.
        """
        self._targets = targets
        self._states = {each.name: states.find(each.name) for each in targets}
        self._retries = retries
        self._instance = instance
        self._watches = watches
        self._tries_all = tries_all
        self._takes = takes
        self._out: dict[str, PassedOver] = {}
        self._skipped: dict[str, PassedOver] = {}
        self._asked: set[str] = set()
        self._last: Target | None = None
        self._permits: dict[str, Permit] = {}

    def first(self) -> Target | Failure:
        """See `Route.first`."""
        if self._instance:
            self._keep_to_instance()
        found = self._choose(self._able)
        assert found is not None, (
            "what no target could read is refused before; at one of the others it has its place"
        )
        return found

    def refused(self, target: Target, failure: Failure) -> Target | None:
        """See `Route.refused`."""
        self._leave_out(target, PassReason.CANNOT, failure.message)
        if not self._tries_all:
            return None
        # After an attempt that failed, a target that is not free is no better than the end.
        return self._choose(self._fresh, only_free=self._last is not None)

    def began(self, target: Target) -> None:
        """See `Route.began`."""
        self._asked.add(target.name)
        self._last = target
        self._skipped.pop(target.name, None)
        self._permits[target.name] = self._states[target.name].begin()

    def ended(self, target: Target, result: Answer | Failure | None) -> None:
        """See `Route.ended`."""
        permit = self._permits.pop(target.name)
        verdict = Verdict.NEUTRAL if result is None or not self._watches else judged(result)
        self._states[target.name].end(permit, verdict, rest_of(result) if self._watches else 0.0)

    def after(self, failure: Failure) -> Next | None:
        """See `Route.after`: another target at once, where that is safe and one is free; else the policy's retry."""
        wait = self._retries.wait_after(failure)
        if self._retries.has_room and may_fall_back(failure, ambiguous=self._retries.ambiguous):
            other = self._choose(self._fresh, only_free=True)
            if other is not None:
                return Next(target=other)
        if wait is None:
            return None
        return Next(target=self._again(wait), wait=wait)

    @property
    def passed_over(self) -> tuple[PassedOver, ...]:
        """See `Route.passed_over`."""
        told = {**self._out, **self._skipped}
        return tuple(told[each.name] for each in self._targets if each.name in told)

    @property
    def _able(self) -> list[Target]:
        """Return the targets that can take the request, as far as that is known."""
        return [each for each in self._targets if each.name not in self._out]

    @property
    def _fresh(self) -> list[Target]:
        """Return those of them that were not asked."""
        return [each for each in self._able if each.name not in self._asked]

    def _keep_to_instance(self) -> None:
        for each in self._targets:
            if each.model.provider != self._instance:
                detail = f"the continuation was issued by `{self._instance}`"
                self._leave_out(each, PassReason.CONTINUATION, detail)

    def _leave_out(self, target: Target, reason: PassReason, detail: str) -> None:
        self._skipped.pop(target.name, None)
        self._out[target.name] = PassedOver(
            target=target.name, reason=reason, detail=cut_utf8(detail, DETAIL_BYTES)
        )

    def _choose(self, among: Sequence[Target], *, only_free: bool = False) -> Target | None:
        """Return the first one that is free; else, unless only a free one will do, the one that is soonest.

        Only one where the call gets a place.
        """
        for each in among:
            if not self._states[each.name].is_free:
                self._skip(each, *self._why_not_free(each))
            elif self._has_taken(each):
                return each
        if only_free:
            return None
        soonest = sorted(among, key=lambda each: self._states[each.name].free_in)
        return next(filter(self._has_taken, soonest), None)

    def _has_taken(self, target: Target) -> bool:
        """Take the place at a target; where there is none, that is why it is passed over, whatever its breaker says."""
        if self._takes(target.model.provider):
            return True
        self._skip(target, PassReason.FULL, f"`{target.model.provider}` has as many calls as it may have")
        return False

    def _why_not_free(self, target: Target) -> tuple[PassReason, str]:
        state = self._states[target.name]
        reason = PassReason.RESTING if state.is_resting else PassReason.OPEN
        return (
            reason,
            f"it is asked again in {state.free_in:.1f} s" if state.free_in else "it is being tried now",
        )

    def _skip(self, target: Target, reason: PassReason, detail: str) -> None:
        if target.name not in self._asked:
            self._skipped[target.name] = PassedOver(target=target.name, reason=reason, detail=detail)

    def _again(self, wait: float) -> Target:
        """Return who is asked after a wait: the last one again, unless it will not be free and another one is."""
        last = self._last
        assert last is not None
        if self._states[last.name].free_in <= wait:
            return last
        return self._choose(self._able, only_free=True) or last
