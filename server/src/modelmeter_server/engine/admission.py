"""Room for calls: at once where there is some, after a fair wait where there will be, or not at all.

    enter ──► PLACED ───────────────────────────────► leave
          ├─► WAITING ──► PLACED | refused | withdrawn
          └─► a refusal that names the limit and when to come back

Everything is decided at once and in whole numbers; there is no task, and one timer for the rates. Who waits holds
nothing: no plan, no room in the ledger, no connection.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from modelmeter_server.core.call_limits import AdmissionLimits
from modelmeter_server.core.errors import Failure, Quota, failure
from modelmeter_server.core.fair_queue import Answer, FairQueue
from modelmeter_server.core.outcomes import Cause, Kind

from .cut import RETRY_AFTER, shutting_down
from .entry import Entry, State, unused
from .limit_scopes import Obstacle, Scope
from .target_load import TargetLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.call_limits import CallLimits
    from modelmeter_server.core.calls import CallOutcome

_SECOND: Final = 1_000_000_000
_SERVER: Final = "server"


class Admission:
    """The limits of one server process. All calls of its event loop go through it."""

    def __init__(
        self,
        limits: AdmissionLimits | None = None,
        *,
        share: int = 1,
        worker: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Begin with nobody. This process is number `worker` of `share` that divide the limits between them.

        `clock` tells nanoseconds and never goes back.
        """
        self.load = TargetLoad()
        """Calls under way by target."""
        self._share, self._worker = share, worker
        self._clock = clock
        self._limits = AdmissionLimits()
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._placed = 0
        self._entries: set[Entry] = set()
        self._queue: FairQueue[Entry] = FairQueue()
        self._beside = 0
        self._claims: dict[int, Entry] = {}
        self._returns: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False
        self.reconfigure(limits or AdmissionLimits())

    @property
    def limits(self) -> AdmissionLimits:
        """Return what this process admits: its share."""
        return self._limits

    @property
    def placed(self) -> int:
        """Return how many calls have a place."""
        return self._placed

    @property
    def waiting(self) -> int:
        """Return how many calls wait."""
        return len(self._queue) + self._beside

    def counts_tokens(self, tenant: str, model: str) -> bool:
        """Say whether anybody limits the tokens of such a call."""
        scopes = (self._scopes.get(("tenant", tenant)), self._scopes.get(("model", model)))
        return any(scope is not None and scope.tokens is not None for scope in scopes)

    def reconfigure(self, limits: AdmissionLimits) -> None:
        """Take other limits, all of them, now. Nobody who has a place loses it; who waits may get one at once."""
        limits = limits.divided(self._share, self._worker)
        at = self._clock()
        scopes: dict[tuple[str, str], Scope] = {}
        for kind, named in (("tenant", limits.tenants), ("model", limits.models)):
            for name, each in named.items():
                if not each.is_open:
                    scopes[kind, name] = self._scope(kind, name, each, at)
        self._limits, self._scopes = limits, scopes
        for scope in scopes.values():
            scope.in_flight = 0
        for entry in self._entries:
            entry.scopes = self._scopes_of(entry)
            if entry.state is State.PLACED:
                for scope in entry.scopes:
                    scope.in_flight += 1
            else:
                entry.remeasure()
        self.serve()

    def enter(
        self,
        tenant: str,
        model: str,
        targets: tuple[str, ...],
        tokens: int | None,
        *,
        left: float | None = None,
        measure: Callable[[], int] | None = None,
    ) -> Entry | Failure:
        """Let a call in, let it wait, or refuse it.

        `targets` are the provider instances that may serve it, at least one: there must be room at one of them.
        `tokens` are held for it until it is known what it took; `None` for what is no business of a rate. `left` is
        how many seconds it has: who cannot be served in time is refused and does not wait. `measure` works out
        `tokens` if they come to be limited while the call waits.
        """
        entry = Entry(self, tenant, model, targets, tokens)
        entry.measure = measure
        if self._scopes:
            entry.scopes = self._scopes_of(entry)
        self._entries.add(entry)
        if not len(self._queue):
            obstacle = self._obstacle(entry, self._clock() if entry.scopes else 0)
            if obstacle is None:
                self._place(entry)
                return entry
        else:
            self._wait(entry)
            self.serve()
            if entry.has_place:
                return entry
            self._unqueue(entry)
            obstacle = self._obstacle(entry, self._clock()) or self._behind_others(entry)
        refusal = self._turned_away(entry, obstacle, left)
        if refusal is not None:
            self._entries.discard(entry)
            return refusal
        self._wait(entry)
        self.serve()
        return entry

    def drain(self) -> None:
        """Refuse all who wait: this server shuts down."""
        self._draining = True
        for entry in list(self._queue):
            self._refuse(entry, shutting_down())
        self._stop_timer()

    # Waiting

    def serve(self) -> None:
        """Give places to those who wait, in turn, as far as there is room now."""
        self._stop_timer()
        if not len(self._queue):
            return
        at = self._clock()
        self._claims.clear()
        self._returns.clear()
        self._queue.serve(lambda entry: self._try(entry, at))
        self._claims.clear()
        if self._returns and len(self._queue):
            # A timer may come a millisecond early; then it is set once more.
            delay = max(min(self._returns) / _SECOND, 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay, self.serve)

    def _try(self, entry: Entry, at: int) -> Answer:
        obstacle = self._obstacle(entry, at)
        if obstacle is None:
            self._place(entry)
            if entry.decided is not None and not entry.decided.done():
                entry.decided.set_result(None)
            return Answer.ADMITTED
        if obstacle.scope == _SERVER:
            return Answer.FULL
        if obstacle.bucket is not None:
            # Large calls need more of a rate than small ones: who is first in turn must not be overtaken for ever.
            self._claims.setdefault(id(obstacle.bucket), entry)
        if obstacle.wait is not None:
            self._returns.append(obstacle.wait)
        return Answer.BLOCKED

    def _wait(self, entry: Entry) -> None:
        entry.state = State.WAITING
        if entry.decided is None:
            entry.decided = asyncio.get_running_loop().create_future()
        self._queue.push(entry.tenant, entry.model, entry)

    def _unqueue(self, entry: Entry) -> None:
        self._queue.remove(entry.tenant, entry.model, entry)
        entry.state = State.GONE

    def step_beside(self, entry: Entry) -> bool:
        """See `Entry.step_beside`."""
        if entry.state is State.WAITING:
            self._unqueue(entry)
            entry.state = State.BESIDE
            self._beside += 1
            self.serve()
        return entry.state is State.BESIDE

    def step_back(self, entry: Entry) -> None:
        """See `Entry.step_back`."""
        if entry.state is State.BESIDE:
            self._beside -= 1
            self._wait(entry)
            if self._draining:
                self._refuse(entry, shutting_down())
            else:
                self.serve()

    def withdraw(self, entry: Entry) -> None:
        """See `Entry.withdraw`."""
        if entry.state is State.BESIDE:
            self._beside -= 1
        elif entry.state is State.WAITING:
            self._unqueue(entry)
        else:
            return
        entry.state = State.GONE
        self.serve()

    def too_long(self, entry: Entry) -> Failure:
        """See `Entry.obstacle`."""
        obstacle = self._obstacle(entry, self._clock()) or self._behind_others(entry)
        return self._refusal(obstacle, f"after {self._limits.queue_seconds:g} s in the queue ")

    def _refuse(self, entry: Entry, refusal: Failure) -> None:
        self._unqueue(entry)
        if entry.decided is not None and not entry.decided.done():
            entry.decided.set_result(refusal)

    def _turned_away(self, entry: Entry, obstacle: Obstacle, left: float | None) -> Failure | None:
        """Return why a call that finds no room may not even wait."""
        limits = self._limits
        if limits.queued == 0:
            return self._refusal(obstacle)
        patience = limits.queue_seconds if left is None else min(limits.queue_seconds, left)
        if obstacle.wait is not None and obstacle.wait > patience * _SECOND:
            return self._refusal(obstacle)
        own = self._scopes.get(("tenant", entry.tenant))
        queued = None if own is None else own.limits.queued
        if queued is not None and self._queue.count(entry.tenant) >= queued:
            return self._refusal(Obstacle("tenant", entry.tenant, "limits.queued", queued))
        if self.waiting < limits.queued:
            return None
        obstacle = Obstacle(_SERVER, "", "max_queued_calls", limits.queued)
        loser = self._queue.newest_of_the_largest(entry.tenant)
        if loser is None:
            return self._refusal(obstacle)
        self._refuse(loser, self._refusal(obstacle))
        return None

    def _behind_others(self, entry: Entry) -> Obstacle:
        """Return what keeps a call out that has room and not its turn: what the first of its lane waits for.

        Else a larger one of others is first, and waits for tokens.
        """
        first = self._queue.first(entry.tenant, entry.model)
        if first is not None and first is not entry:
            obstacle = self._obstacle(first, self._clock())
            if obstacle is not None:
                return obstacle
        for scope in entry.scopes:
            if scope.tokens is not None:
                return Obstacle(scope.kind, scope.name, "limits.tokens_per_minute", scope.tokens.per_minute)
        return Obstacle(_SERVER, "", "max_concurrent_calls", self._limits.concurrent)

    def _refusal(self, obstacle: Obstacle, waited: str = "") -> Failure:
        wait = RETRY_AFTER if obstacle.wait is None else max(0.001, obstacle.wait / _SECOND)
        whose = f"the {obstacle.scope} {obstacle.name}".rstrip() if obstacle.name else "this server"
        return failure(
            Kind.OVERLOADED,
            f"there was {waited}no room for the call: {whose} allows {obstacle.allowed:,} ({obstacle.limit})",
            cause=Cause.LIMIT,
            retry_after=wait,
            quotas=(Quota(obstacle.subject, f"{obstacle.limit}: {obstacle.allowed} allowed"),),
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Places

    def _obstacle(self, entry: Entry, at: int) -> Obstacle | None:
        if self._placed >= self._limits.concurrent:
            return Obstacle(_SERVER, "", "max_concurrent_calls", self._limits.concurrent)
        if self._limits.targets and not any(map(self._has_room, entry.targets)):
            name = entry.targets[0]
            return Obstacle("target", name, "max_concurrent_calls", self._limits.targets[name])
        for scope in entry.scopes:
            if (full := scope.is_full()) is not None:
                return full
        if entry.tokens is not None:
            for scope in entry.scopes:
                if (spent := scope.is_spent(entry.tokens, at)) is not None:
                    return spent
                if (claimed := self._claimed(scope, entry)) is not None:
                    return claimed
        return None

    def _has_room(self, target: str) -> bool:
        limit = self._limits.targets.get(target)
        return limit is None or self.load.in_flight(target) < limit

    def move(self, entry: Entry, target: str) -> bool:
        """See `Entry.move`."""
        if target == entry.target:
            return True
        if entry.state is not State.PLACED or not self._has_room(target):
            return False
        self.load.remove(entry.target)
        entry.target = target
        self.load.add(target)
        if self._limits.targets:
            self.serve()
        return True

    def _claimed(self, scope: Scope, entry: Entry) -> Obstacle | None:
        bucket = scope.tokens
        if bucket is None or not self._claims or self._claims.get(id(bucket), entry) is entry:
            return None
        return Obstacle(scope.kind, scope.name, "limits.tokens_per_minute", bucket.per_minute)

    def _place(self, entry: Entry) -> None:
        entry.state = State.PLACED
        self._placed += 1
        if self._limits.targets:
            entry.target = next(filter(self._has_room, entry.targets))
        self.load.add(entry.target)
        if entry.scopes:
            entry.charge(self._clock())
            for scope in entry.scopes:
                scope.in_flight += 1

    def settle(self, entry: Entry, outcome: CallOutcome | None) -> None:
        """See `Entry.settle`."""
        if entry.state is not State.PLACED:
            self.withdraw(entry)
            self._entries.discard(entry)
            return
        self.load.remove(entry.target)
        scopes, entry.scopes = entry.scopes, ()
        self._entries.discard(entry)
        for scope in scopes:
            scope.in_flight -= 1
        if entry.taken and outcome is not None and entry.tokens is not None:
            requests, tokens = unused(outcome, entry.tokens)
            if requests or tokens:
                at = self._clock()
                for scope in scopes:
                    scope.correct(requests, tokens, at, entry.taken)
        if scopes or self._limits.targets:
            self.serve()

    def release(self, entry: Entry) -> None:
        """See `Entry.release`."""
        if entry.state is State.PLACED:
            self._placed -= 1
            self.serve()
        entry.state = State.GONE

    # Scopes

    def _scope(self, kind: str, name: str, limits: CallLimits, at: int) -> Scope:
        scope = self._scopes.get((kind, name))
        if scope is None:
            return Scope(kind, name, limits, at)
        scope.reconfigure(limits, at)
        return scope

    def _scopes_of(self, entry: Entry) -> tuple[Scope, ...]:
        scopes = self._scopes
        found = (scopes.get(("tenant", entry.tenant)), scopes.get(("model", entry.model)))
        return tuple(scope for scope in found if scope is not None)
