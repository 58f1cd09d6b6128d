"""One call under way: it holds the deadline, can be cut, and ends in one recorded outcome.

A call belongs to the in-flight registry, not to whoever asked for it: when its last caller leaves it is cut or drained,
and it still works out what it cost and records it. `run` never raises.

With a ledger it is reserved before it is sent and settled before anybody hears of it. One that the journal knows is not
sent: it is answered from there, or it joins the call that runs already.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause
from modelmeter_server.core.tenants import DEFAULT_TENANT
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.replies import Recorded

from .attempts import Attempts
from .audience import Audience
from .booking import reservation
from .claim import claim, replayed
from .cut import Cut
from .delta_log import DeltaLog
from .entry import State
from .holding import Holding
from .landing import Landing
from .planning import Planning
from .provider_request import ProviderRequest
from .reading import STREAM_BUFFER_BYTES, Readers
from .reckoning import broken_outcome, heard, is_finished, known_so_far, outcome_of
from .recorded import repeated
from .recording import recorded, settled
from .waiting import known_already, room_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.core.routing import PassedOver
    from modelmeter_server.drivers.driver import ProviderCall
    from modelmeter_server.telemetry.observation import CallWatch

    from .entry import Entry
    from .holding import Desk
    from .plan import Plan
    from .preparing import Preparation
    from .recorder import Recorder
    from .routing import Target


LATE = "the caller's deadline ran out"

_LEAVING = (Cause.CALLER, Cause.DEADLINE)
"""What ends a caller's interest; everything else ends the call."""


class Call:
    """One call of a model. Made by `Engine.start`."""

    def __init__(
        self,
        request: CompletionRequest | EmbeddingRequest,
        preparation: Preparation,
        recorder: Recorder,
        *,
        budget: float | None,
        deltas: bool,
        planner: Executor | None = None,
        desk: Desk | None = None,
        buffer: int = STREAM_BUFFER_BYTES,
        tenant: str = DEFAULT_TENANT,
        entry: Entry | None = None,
        watch: CallWatch | None = None,
    ) -> None:
        """Take what `run` needs. `preparation` says who can be asked, and what each would be sent.

        `budget` is how many seconds the provider has; `deltas` keeps deltas for a stream. With a `planner`, for large
        requests, plans are made in one of its threads and the event loop stays free. `desk` is the ledger. `entry` is
        its room in this server; `None` for one that is refused.
        """
        self.request = request
        self.call_id = request.call_id
        """The call's id; of a call that was joined or replayed, the recorded one."""
        self.model_asked = request.model
        self.tenant = tenant
        self.run_id = request.effect.run_id if request.effect is not None else ""
        self.provider = ProviderRequest(self._on_news, watch)
        """What it asks its provider; nothing when it joins another call, or is answered from the journal."""
        self.task: asyncio.Task[CallOutcome]
        """Ends with the outcome; set by the registry right after the call was made."""
        self.audience = Audience()
        self.log = DeltaLog(keeps=desk is not None) if deltas else None
        """What a stream has told; `None` for a call that keeps no deltas."""
        self.entry = entry
        """Its room in this server, or its place among those who wait for some."""
        self.readers = Readers(self.provider, self.audience, buffer) if deltas else None
        """Who reads it as it comes; `None` for a call that keeps no deltas."""
        self._recorder = recorder
        self._watch = watch
        self._desk = desk
        self._holding: Holding | None = None
        self._leader: Call | None = None
        self._known_model: ModelSpec | None = None
        self._landing = Landing()
        self.arrived = time.monotonic()
        """When it came, on the monotonic clock."""
        self._cut = Cut(None if budget is None else self.arrived + budget)
        self._planning = Planning(planner, self._cut)
        self._attempts = Attempts(
            request,
            preparation,
            planning=self._planning,
            provider=self.provider,
            cut=self._cut,
            landing=self._landing,
            log=self.log,
        )
        self._is_reserving = False
        self._is_left = False

    # What the caller does

    @property
    def source(self) -> Call:
        """Return the call that asks the provider: this one, or the one that it joined."""
        return self._leader or self

    @property
    def is_purchase(self) -> bool:
        """Say whether the ledger let it out, so that no earlier reader can have had any of its deltas."""
        return self._holding is not None

    @property
    def model(self) -> ModelSpec | None:
        """Return the model that was asked for, once it is found; then that of who is asked, or was.

        Of a call that was joined or replayed it is the recorded one.
        """
        return self._attempts.model if self._known_model is None else self._known_model

    @property
    def target(self) -> Target | None:
        """Return who is asked, or was last."""
        return self._attempts.target

    @property
    def is_waiting(self) -> bool:
        """Say whether it waits for room in this server, or for its next attempt: nothing of it is at a provider."""
        return self._attempts.is_between or self._is_queued

    @property
    def _is_queued(self) -> bool:
        return self.entry is not None and self.entry.state is State.WAITING

    @property
    def provider_call(self) -> ProviderCall | None:
        """Return the driver's call, once there is one."""
        return self.provider.call

    @property
    def passed_over(self) -> tuple[PassedOver, ...]:
        """Return the targets that it was not sent to although they came first."""
        route = self._attempts.route
        return () if route is None else route.passed_over

    @property
    def is_written(self) -> bool:
        """Say whether the whole request was handed to the network."""
        return self.source.provider.first_written_at is not None

    async def dispatched(self) -> bool:
        """Wait until the provider's request is written, or the call ended without that; say which.

        One waiter only: cancelling it ends the wait for good.
        """
        return await self.provider.sent

    async def outcome(self) -> CallOutcome:
        """Wait for the recorded outcome. Cancelling the wait leaves the call running: `cut` ends it."""
        return await asyncio.shield(self.audience.told)

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now; its outcome says what is known. The first cut counts; harmless when it has ended.

        A caller that leaves or is late (CALLER, DEADLINE) ends it for itself alone while others wait for it, and where
        the model's requests are drained.
        """
        self._leave(cause, detail, is_leaving=cause in _LEAVING)

    def let_go(self, cause: Cause, detail: str) -> None:
        """End the call for its caller alone, whatever the cause: as `cut` does for one that leaves by itself."""
        self._leave(cause, detail, is_leaving=True)

    def _leave(self, cause: Cause, detail: str, *, is_leaving: bool) -> None:
        if self._cut or (self._landing.is_draining and is_leaving):
            return
        if is_leaving and self.audience.has_joiners:
            self._part(cause, detail)
        else:
            self._abandon(cause, detail, is_leaving=is_leaving)

    def halt(self, sentence: str) -> None:
        """Cut the call on an operator's word."""
        if not self._cut:
            self._cut.halt(sentence)
            self._end(Cause.LIMIT, sentence)

    # What those who join it do

    @property
    def takes_joiners(self) -> bool:
        """Say whether it is worth waiting for: not one that was cut."""
        return not self._cut

    def join(self, listener: Callable[[], None]) -> None:
        """Take in another caller, also one who comes back while the request is read on for its bill."""
        self._landing.revoke()
        self.audience.join(listener)
        self._review()

    def release(self, listener: Callable[[], None], cause: Cause, detail: str, *, is_leaving: bool) -> None:
        """Let go of a caller who had joined; when it was the last who wanted the call, it ends."""
        self.audience.leave(listener)
        self._review()
        if not self.audience.is_wanted and not self._cut and not self._landing.is_draining:
            self._abandon(cause, detail, is_leaving=is_leaving)

    # How it is ended from outside

    def _part(self, cause: Cause, detail: str) -> None:
        """Let the caller who began it go with what is known now; the call goes on."""
        self.audience.part(outcome_of(self, known_so_far(self, cause, detail or LATE)))
        self._review()

    def _abandon(self, cause: Cause, detail: str, *, is_leaving: bool) -> None:
        self._is_left = is_leaving
        if is_leaving and self._drains(cause, detail):
            self._part(cause, detail)
            return
        if self.provider.is_under_way and (is_leaving or self._landing.is_draining):
            self._landing.abort()
        self._end(cause, detail)

    def _drains(self, cause: Cause, detail: str) -> bool:
        """Read on for the bill's sake, where that is wanted and something can be learned."""
        desk, model, provider = self._desk, self.model, self.provider
        if not provider.is_under_way or desk is None or model is None:
            return False
        return self._landing.drain(desk, model, provider.received, lambda: self._end_drain(cause, detail))

    def _end_drain(self, cause: Cause, detail: str) -> None:
        self._landing.abort()
        self._end(cause, detail)

    def _end(self, cause: Cause, detail: str) -> None:
        if not self._cut.give(cause, detail):
            return
        if self._landing.is_draining:
            self._landing.abort()
        if self.provider.call is not None:
            self.provider.call.cut(cause, detail)
        elif self._planning.is_running:
            self._planning.cancel()
        elif self._is_reserving:
            # The ledger's answer cannot be called back, and nothing will be sent: nobody has to wait for it.
            self.audience.tell(outcome_of(self, self._cut.never_sent(cause, detail)))

    def _on_news(self) -> None:
        """Pass on what the provider request tells, and end a drain that has read enough."""
        self.audience.alert()
        self._review()
        if self._landing.exceeds(self.provider.received):
            detail = "its callers had left, and more of the answer came than is read for its bill"
            self._end_drain(Cause.LIMIT, detail)

    def _review(self) -> None:
        """Let the provider wait for who reads, or not any more."""
        if self.readers is not None:
            self.readers.review()

    # From start to outcome

    async def run(self) -> CallOutcome:
        """Bring the call to its recorded outcome; never raises. The registry runs it, once."""
        try:
            result = await self._result()
            outcome = heard(self, result) if isinstance(result, CallOutcome) else outcome_of(self, result)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever broke, the bill goes out
            outcome = broken_outcome(self, error)
        self.provider.announce(sent=False)
        self._landing.close()
        self.provider.close_books()
        if self._holding is not None:
            landing = self._landing.word_at_end(is_finished=is_finished(outcome.result))
            outcome = await settled(outcome, self._holding, self.provider.asked(), landing)
        outcome = await recorded(outcome, self._recorder)
        if self._watch is not None:
            self._watch.ended(outcome, self.provider.attempts)
        if self._desk is not None and self._holding is not None:
            self._desk.leaders.remove(self._holding.ref.call, self)
        self.audience.tell(outcome)
        return outcome

    async def _result(self) -> Answer | Failure | CallOutcome:
        left = self._cut.time_left()
        timer = None
        if left is not None:
            timer = asyncio.get_running_loop().call_later(left, self.cut, Cause.DEADLINE, LATE)
        try:
            if self._is_queued:
                elsewhere = await self._wait_for_room()
                if elsewhere is not None:
                    return elsewhere
            plan = await self._attempts.first_plan()
            if isinstance(plan, Failure):
                return plan
            ended = self._cut.ended_before_sending()
            return ended if ended is not None else await self._ask_once(plan)
        finally:
            if timer is not None:
                timer.cancel()

    async def _wait_for_room(self) -> Failure | CallOutcome | None:
        """Wait for room, `None` once there is some; what the journal has, or runs already, needs none."""
        assert self.entry is not None
        self._is_reserving = True
        try:
            known = await known_already(self, self._desk, self._planning, self._cut)
        finally:
            self._is_reserving = False
        if known is None:
            return await room_for(self.entry, self._cut)
        if isinstance(known, Recorded):
            self.call_id, self._known_model = known.row.call_id, self.entry.spec
            return replayed(known, self.model)
        return known if isinstance(known, Failure) else await self._join(known)

    # With a ledger: at most once

    async def _ask_once(self, plan: Plan) -> Answer | Failure | CallOutcome:
        """Ask the provider, unless the journal has the outcome or the same call runs already."""
        desk = self._desk
        if desk is None or plan.digest is None or plan.hold is None:
            return await self._attempts.ask(plan, None, self.cut)
        order = reservation(
            self.request,
            plan.model,
            plan.digest,
            plan.hold,
            tenant=self.tenant,
            owner=desk.ledger.owner,
            at=now(),
        )
        self._is_reserving = True
        try:
            found = await claim(desk, order, self._cut)
        finally:
            self._is_reserving = False
        if isinstance(found, Holding):
            return await self._ask_held(desk, plan, found)
        if isinstance(found, Recorded):
            self.call_id = found.row.call_id
            return replayed(found, self.model)
        return await self._join(found) if isinstance(found, Call) else found

    async def _ask_held(self, desk: Desk, plan: Plan, holding: Holding) -> Answer | Failure:
        self._holding = holding
        self.call_id = holding.ref.call.call_id
        desk.leaders.add(holding.ref.call, self)
        if (ended := self._cut.ended_before_sending()) is not None:
            return ended
        if plan.hold is not None and holding.output_tokens < plan.hold.output_tokens:
            smaller = await self._attempts.plan_within(holding.output_tokens)
            if isinstance(smaller, Failure):
                return smaller
            plan = smaller
        return await self._attempts.ask(plan, holding, self.cut)

    async def _join(self, leader: Call) -> CallOutcome:
        """Wait with the callers of a call that runs here already; this one's leaving ends it for itself alone."""
        self._leader, self.call_id, self._known_model = leader, leader.call_id, leader.model
        leader.join(self._hear)
        self._hear()
        await self._cut.wait(None, leader.task)
        if leader.task.done():
            leader.audience.leave(self._hear)
            outcome = leader.task.result()
            return msgspec.structs.replace(outcome, result=repeated(outcome.result), replayed=True)
        assert self._cut.word is not None
        cause, detail = self._cut.word
        leader.release(self._hear, cause, detail, is_leaving=self._is_left)
        return msgspec.structs.replace(outcome_of(self, known_so_far(self, cause, detail)), replayed=True)

    def _hear(self) -> None:
        """Pass on what the call that was joined tells."""
        if self.is_written:
            self.provider.announce(sent=True)
        self.audience.alert()
