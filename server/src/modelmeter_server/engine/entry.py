"""One call as admission knows it, from its arrival until it has left, and what it used of the rates."""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.usage import total_spend_tokens

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.models import ModelSpec

    from .admission import Admission
    from .limit_scopes import Scope, Taken


@unique
class State(Enum):
    """Where a call stands."""

    PLACED = 1
    WAITING = 2
    BESIDE = 3
    """It waits for what needs no room, such as the same call under way, and counts among those who wait."""
    GONE = 4


class Entry:
    """One call, from its arrival until it has left."""

    __slots__ = (
        "_admission",
        "_is_settled",
        "_readers",
        "decided",
        "measure",
        "model",
        "scopes",
        "spec",
        "state",
        "taken",
        "target",
        "targets",
        "tenant",
        "tokens",
    )

    def __init__(
        self, admission: Admission, tenant: str, model: str, targets: tuple[str, ...], tokens: int | None
    ) -> None:
        self.tenant = tenant
        self.model = model
        self.targets = targets
        """The provider instances that may serve it."""
        self.target = targets[0]
        """The one of them at which it has its place."""
        self.tokens = tokens
        """What is held for it; `None` for what takes nothing of a rate."""
        self.measure: Callable[[], int] | None = None
        """Works out `tokens`, as long as nobody limits them."""
        self.taken: Taken = {}
        """What it took from, and has to correct at its end."""
        self.scopes: tuple[Scope, ...] = ()
        self.state = State.GONE
        self.spec: ModelSpec | None = None
        """The model, where its journal may be asked while the call waits."""
        self.decided: asyncio.Future[Failure | None] | None = None
        """While it waits: done with `None` when it has a place, with a refusal when it gets none."""
        self._admission = admission
        self._is_settled = False
        self._readers = 1

    @property
    def has_place(self) -> bool:
        """Say whether there is room for it."""
        return self.state is State.PLACED

    @property
    def patience(self) -> float:
        """Return how many seconds it waits at most."""
        return self._admission.limits.queue_seconds

    def step_beside(self) -> bool:
        """Wait for something else than room; False when it has a place already."""
        return self._admission.step_beside(self)

    def step_back(self) -> None:
        """Wait for room again, behind the others."""
        self._admission.step_back(self)

    def withdraw(self) -> None:
        """Wait no more; harmless for who has a place."""
        self._admission.withdraw(self)

    def obstacle(self) -> Failure:
        """Return the refusal of a call that waited too long."""
        return self._admission.too_long(self)

    def hold(self) -> None:
        """Keep the place in this server beyond the end of the call: somebody still reads its answer."""
        self._readers += 1

    def settle(self, outcome: CallOutcome | None) -> None:
        """Learn how the call ended: rates get back what it did not use, tenant, model and target their places."""
        if self._is_settled:
            return
        self._is_settled = True
        self._admission.settle(self, outcome)
        self.release()

    def release(self) -> None:
        """Let go of the place in this server; with the last one it is free."""
        self._readers -= 1
        if self._readers == 0:
            self._admission.release(self)

    def move(self, target: str) -> bool:
        """Take the place at another provider instance, and give the old one back; False when there is none."""
        return self._admission.move(self, target)

    def charge(self, at: int) -> None:
        """Take what it asks for from every rate."""
        if self.tokens is not None:
            for scope in self.scopes:
                self.taken |= scope.take(self.tokens, at)

    def remeasure(self) -> None:
        """Work out the tokens of a call that still waits, if anybody limits them by now."""
        if self.measure is not None and any(scope.tokens is not None for scope in self.scopes):
            self.tokens, self.measure = self.measure(), None


def unused(outcome: CallOutcome, held: int) -> tuple[int, int]:
    """Return what a call did not use of one request and of the tokens `held` for it; below 0 is what it used beyond.

    What was never sent, or came from the journal or another call, used nothing. Exact figures may give back; figures
    that are a lower bound may only take more, and where nobody told any, what was held counts.
    """
    result = outcome.result
    if outcome.replayed or not outcome.attempts_total:
        return 1, held
    if result.certainty is Certainty.NONE or (isinstance(result, Failure) and result.is_refused_by_provider):
        return 0, held
    if result.usage is None:
        return 0, 0
    told = total_spend_tokens(result.usage, result.additional_usage)
    return 0, (held - told if result.certainty is Certainty.EXACT else min(0, held - told))
