"""The attempts of one call: its targets, planned for and asked one after another, until one of them answers.

They know what was said of the call from outside, and nothing of who waits for it or what becomes of the result.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.tally import ended_between
from modelmeter_server.telemetry.log import get_logger

from .plan import Refused
from .retrying import Retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest

    from .cut import Cut
    from .delta_log import DeltaLog
    from .holding import Holding
    from .landing import Landing
    from .plan import Plan
    from .planning import Planning
    from .preparing import Preparation
    from .provider_request import ProviderRequest
    from .routing import Route, Target

TOO_LONG = "all attempts together took longer than a call may"

_log = get_logger(__name__)


class Attempts:
    """Bring one call to its answer, or to the failure that is left when no target has more to offer.

    `first_plan`, then, for a call that was clamped, `plan_within`, then `ask`, once.
    """

    def __init__(
        self,
        request: CompletionRequest | EmbeddingRequest,
        preparation: Preparation,
        *,
        planning: Planning,
        provider: ProviderRequest,
        cut: Cut,
        landing: Landing,
        log: DeltaLog | None,
    ) -> None:
        """Ask through `provider`, with plans that are made in `planning`.

        A call that was `cut`, whose request is read on for its bill alone by `landing`, or whose `log` has a delta
        already is not tried again.
        """
        self.model: ModelSpec | None = None
        """The model that was asked for, once it is found; then that of the target."""
        self.target: Target | None = None
        """Who is asked, or was last."""
        self.route: Route | None = None
        """Who can be asked, once that is known."""
        self.is_between = False
        """One attempt failed, and the next has not begun."""
        self._total: float | None = None  # seconds for all attempts together, if there may be several
        self._all_end_at: float | None = None
        self._most_output: int | None = None  # when the ceilings leave less output than was asked for
        self._request = request
        self._preparation = preparation
        self._planning = planning
        self._provider = provider
        self._cut = cut
        self._landing = landing
        self._log = log
        self._holding: Holding | None = None

    # Planning, for who can take the request

    async def first_plan(self) -> Plan | Failure:
        """Find the route, and plan for the first of its targets that can take the request."""
        try:
            self.route = self._find_route()
        except Refused as refusal:
            return refusal.verdict
        target = self.route.first()
        return target if isinstance(target, Failure) else await self._plan_along(target)

    def _find_route(self) -> Route:
        self.model = self._preparation.model()
        policy = self._preparation.policy(self.model)
        if policy.max_attempts > 1:
            self._total = policy.total
        retries = Retries(policy, self._request.call_id, self._time_left)
        return self._preparation.route(self.model, retries)

    def _time_left(self) -> float | None:
        """Return how many seconds are left for further attempts; `None` for any time."""
        until = self._all_end_at
        known = [self._cut.time_left(), None if until is None else until - time.monotonic()]
        return min((left for left in known if left is not None), default=None)

    async def plan_within(self, output_tokens: int) -> Plan | Failure:
        """Plan anew, this time and from now on for no more output than this."""
        self._most_output = output_tokens
        assert self.target is not None
        return await self._plan_along(self.target)

    async def _plan_along(self, target: Target) -> Plan | Failure:
        """Plan for a target, or for the next of the route that can take the request; else return the first refusal."""
        assert self.route is not None
        refusal: Failure | None = None
        following: Target | None = target
        while following is not None:
            plan = await self._planning.make(self._preparation.plan, following, self._as_sent(following))
            if not isinstance(plan, Failure):
                self.target, self.model = following, following.model
                return plan
            if self._cut:
                return plan
            refusal = refusal or plan
            following = self.route.refused(following, plan)
        assert refusal is not None
        return refusal

    def _as_sent(self, target: Target) -> CompletionRequest | EmbeddingRequest:
        """Return the request as a target gets it, when the ceilings leave less output than it would have."""
        request, most = self._request, self._most_output
        if most is None or isinstance(request, EmbeddingRequest):
            return request
        asked = request.max_output_tokens
        wanted = target.model.max_output_tokens if asked is None else asked
        return request if wanted <= most else msgspec.structs.replace(request, max_output_tokens=most)

    # Asking, once or more

    async def ask(
        self, plan: Plan, holding: Holding | None, cut: Callable[[Cause, str], None]
    ) -> Answer | Failure:
        """Ask one target after another, until one answers or the route has no more to offer.

        With a `holding` the ledger hears of every attempt, and may refuse another one. `cut` is called when all of them
        together take too long.
        """
        route, target = self.route, self.target
        assert route is not None
        if holding is not None:
            self._holding = holding
            self._provider.keep_books(holding)
        limit = self._limit_all(cut)
        try:
            while True:
                assert target is not None
                own = await self._ask_target(route, target, plan)
                result = self._provider.comes_to(own)
                if isinstance(own, Answer) or isinstance(result, Answer):
                    return result
                following = await self._following(route, own, result, plan)
                if isinstance(following, Failure):
                    return following
                plan, target = following, self.target
                self._provider.leave_behind(result)
                if self._log is not None:
                    self._log.carry(result)
        finally:
            if limit is not None:
                limit.cancel()

    async def _following(self, route: Route, own: Failure, so_far: Failure, plan: Plan) -> Plan | Failure:
        """Return what is sent next and set to whom, once the wait for that is over, or what the call ends with."""
        # Who left would pay for another attempt as for the one that is read on for its bill alone.
        is_over = self._cut or self._landing.is_draining or self._has_told()
        following = None if is_over else route.after(own)
        if following is None:
            return so_far
        self.is_between = True
        try:
            stopped = await self._may_follow(own, so_far)
            if stopped is not None:
                return ended_between(so_far, stopped) if stopped.kind is Kind.HALTED else so_far
            await self._cut.wait(following.wait)
        finally:
            self.is_between = False
        if (ended := self._cut.ended_before_sending()) is not None:
            return ended_between(so_far, ended)
        if following.target is self.target:
            return plan
        another = await self._plan_along(following.target)
        if isinstance(another, Failure):
            return ended_between(so_far, another) if self._cut else so_far
        return another

    async def _may_follow(self, own: Failure, so_far: Failure) -> Failure | None:
        """Book the attempt that failed; return why the ledger lets no other one follow."""
        if self._holding is None:
            return None
        return await self._holding.another(so_far, own, self._request, self._provider.asked())

    def _has_told(self) -> bool:
        """Say whether a stream has had a delta: one more answer would be spliced to the first."""
        if self._log is None or self._provider.call is None:
            return False
        self._log.pull(self._provider.call.accumulator)
        return self._log.last > 0

    def _limit_all(self, cut: Callable[[Cause, str], None]) -> asyncio.TimerHandle | None:
        """Bound all attempts and waits together; one attempt is bounded by its own timers."""
        if self._total is None:
            return None
        self._all_end_at = time.monotonic() + self._total
        return asyncio.get_running_loop().call_later(self._total, cut, Cause.TOTAL_TIMEOUT, TOO_LONG)

    async def _ask_target(self, route: Route, target: Target, plan: Plan) -> Answer | Failure:
        result: Answer | Failure | None = None
        route.began(target)
        try:
            result = await self._provider.ask(target, plan, deltas=self._log is not None)
            return result
        finally:
            route.ended(target, result)
            call = self._provider.call
            if call is not None and call.fault is not None:
                holding, request = self._holding, self._request
                call_id = request.call_id if holding is None else holding.ref.call.call_id
                _log.error("provider call failed", call_id=call_id, model=request.model, exc_info=call.fault)
