"""One call under way: it observes its provider request, can be cut, and ends in one recorded outcome.

A call belongs to the in-flight registry, not to whoever asked for it: when its last caller leaves it is cut or drained,
and it still works out what it cost and records it. `run` never raises.

With a ledger it is reserved before it is sent and settled before anybody hears of it. One that the journal knows is not
sent: it is answered from there, or it joins the call that runs already.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.calls import MAX_REPORTED_ATTEMPTS, CallOutcome, Timings
from modelmeter_server.core.errors import OWN_FAULT, Failure, failure
from modelmeter_server.core.journal import CallKey
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.tenants import DEFAULT_TENANT
from modelmeter_server.ledger.contents import ContentUnreadable
from modelmeter_server.ledger.replies import Recorded, UnderWay
from modelmeter_server.telemetry.log import get_logger

from .audience import Audience
from .bill import broken, lost, priced
from .booking import reservation
from .checkpoints import Checkpoints
from .delta_log import DeltaLog
from .holding import Holding, now
from .joining import POLL_LEAST, POLL_MOST
from .landing import Landing
from .plan import Plan, Refused
from .recorded import recorded_outcome, repeated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.pricing import PriceTable
    from modelmeter_server.core.requests import CompletionRequest, Sensitivity
    from modelmeter_server.drivers.driver import Driver, ProviderCall
    from modelmeter_server.telemetry.observation import CallWatch

    from .holding import Desk
    from .recorder import Recorder


LATE = "the caller's deadline ran out"

_LEAVING = (Cause.CALLER, Cause.DEADLINE)
"""What ends a caller's interest; everything else ends the call."""

_log = get_logger(__name__)


class Call:
    """One call of a model. Made by `Engine.start`."""

    def __init__(
        self,
        request: CompletionRequest | EmbeddingRequest,
        planned: Callable[[Call, Any], Plan],
        recorder: Recorder,
        *,
        budget: float | None,
        deltas: bool,
        planner: Executor | None = None,
        desk: Desk | None = None,
        tenant: str = DEFAULT_TENANT,
        watch: CallWatch | None = None,
    ) -> None:
        """Take what `run` needs. `planned` turns the request into a plan and raises Refused for a bad one.

        `budget` is how many seconds the provider has; `deltas` keeps deltas for a stream. With a `planner`, for large
        requests, `planned` runs in one of its threads and the event loop stays free. `desk` are the ledger.
        """
        self.call_id = request.call_id
        """The call's id; of a call that was joined or replayed, the recorded one."""
        self.model_asked = request.model
        self.tenant = tenant
        self.run_id = request.effect.run_id if request.effect is not None else ""
        self.model: ModelSpec | None = None
        self.driver: Driver | None = None
        self.tables: dict[str, PriceTable] = {}
        self.provider_call: ProviderCall | None = None
        """The provider request, once there is one."""
        self.task: asyncio.Task[CallOutcome]
        """Ends with the outcome; set by the registry right after the call was made."""
        self.audience = Audience()
        self.log = DeltaLog(keeps=desk is not None) if deltas else None
        """What a stream has told; `None` for a call that keeps no deltas."""
        self._request = request
        self._planned = planned
        self._recorder = recorder
        self._watch = watch
        self._budget = budget
        self._planner = planner
        self._planning: asyncio.Future[Plan] | None = None
        self._desk = desk
        self._holding: Holding | None = None
        self._checkpoints: Checkpoints | None = None
        self._leader: Call | None = None
        self._landing = Landing()
        self._cut: tuple[Cause, str] | None = None
        self._halted = ""
        self._woken: asyncio.Future[None] | None = None
        self._is_reserving = self._is_asking = False
        self._arrived = time.monotonic()
        self._written: float | None = None
        self._first_output: float | None = None
        self._dispatched: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

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
    def is_written(self) -> bool:
        """Say whether the whole request was handed to the network."""
        return self.source._written is not None

    async def dispatched(self) -> bool:
        """Wait until the provider's request is written, or the call ended without that; say which.

        One waiter only: cancelling it ends the wait for good.
        """
        return await self._dispatched

    async def outcome(self) -> CallOutcome:
        """Wait for the recorded outcome. Cancelling the wait leaves the call running: `cut` ends it."""
        return await asyncio.shield(self.audience.told)

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now; its outcome says what is known. The first cut counts; harmless when it has ended.

        A caller that leaves or is late (CALLER, DEADLINE) ends it for itself alone while others wait for it, and where
        the model's requests are drained.
        """
        if self._cut is not None or (self._landing.is_draining and cause in _LEAVING):
            return
        if cause in _LEAVING and self.audience.has_joiners:
            self._part(cause, detail)
        else:
            self._abandon(cause, detail)

    def halt(self, sentence: str) -> None:
        """Cut the call on an operator's word."""
        if self._cut is None:
            self._halted = sentence
            self._end(Cause.LIMIT, sentence)

    # What those who join it do

    @property
    def takes_joiners(self) -> bool:
        """Say whether it is worth waiting for: not one that was cut."""
        return self._cut is None

    def join(self, listener: Callable[[], None]) -> None:
        """Take in another caller, also one who comes back while the request is read on for its bill."""
        self._landing.revoke()
        self.audience.join(listener)

    def release(self, listener: Callable[[], None], cause: Cause, detail: str) -> None:
        """Let go of a caller who had joined; when it was the last who wanted the call, it ends."""
        self.audience.leave(listener)
        if not self.audience.is_wanted and self._cut is None and not self._landing.is_draining:
            self._abandon(cause, detail)

    # How it is ended from outside

    def _part(self, cause: Cause, detail: str) -> None:
        """Let the caller who began it go with what is known now; the call goes on."""
        accumulator = None if self.provider_call is None else self.provider_call.accumulator
        result = broken(accumulator, cause, written=self.is_written, message=detail or LATE)
        self.audience.part(self._outcome_of(result))

    def _abandon(self, cause: Cause, detail: str) -> None:
        if cause in _LEAVING and self._drains(cause, detail):
            self._part(cause, detail)
            return
        if self._is_asking and self.is_written and (cause in _LEAVING or self._landing.is_draining):
            self._landing.abort()
        self._end(cause, detail)

    def _drains(self, cause: Cause, detail: str) -> bool:
        """Read on for the bill's sake, where that is wanted and something can be learned."""
        call, desk, model = self.provider_call, self._desk, self.model
        if not (self._is_asking and self.is_written) or call is None or desk is None or model is None:
            return False
        return self._landing.drain(desk, model, call.received, lambda: self._end_drain(cause, detail))

    def _end_drain(self, cause: Cause, detail: str) -> None:
        self._landing.abort()
        self._end(cause, detail)

    def _end(self, cause: Cause, detail: str) -> None:
        if self._cut is not None:
            return
        self._cut = (cause, detail)
        if self._landing.is_draining:
            self._landing.abort()
        if self.provider_call is not None:
            self.provider_call.cut(cause, detail)
        elif self._planning is not None:
            self._planning.cancel()
        elif self._is_reserving:
            # The ledger's answer cannot be called back, and nothing will be sent: nobody has to wait for it.
            self.audience.tell(self._outcome_of(self._never_sent(cause, detail)))
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    # What the provider request tells

    def dispatching(self, number: int, target: str) -> Awaitable[bool] | None:
        """See `Observer.dispatching`."""
        if self._watch is not None:
            self._watch.dispatching(number, target)
        return None if self._holding is None else self._holding.dispatch(number, target)

    def written(self) -> None:
        """See `Observer.written`; a re-send after a stale connection is not news."""
        if self._written is None:
            self._written = time.monotonic()
            self._announce(written=True)
            self.audience.alert()

    def progressed(self) -> None:
        """See `Observer.progressed`."""
        call = self.provider_call
        assert call is not None
        if self._first_output is None and call.accumulator.generated:
            self._first_output = time.monotonic()
        if self._checkpoints is not None:
            self._checkpoints.progressed(call.accumulator)
        self.audience.alert()
        if self._landing.exceeds(call.received):
            cause, detail = (
                Cause.LIMIT,
                "its callers had left, and more of the answer came than is read for its bill",
            )
            self._end_drain(cause, detail)

    def _announce(self, *, written: bool) -> None:
        if not self._dispatched.done():
            self._dispatched.set_result(written)

    # From start to outcome

    async def run(self) -> CallOutcome:
        """Bring the call to its recorded outcome; never raises. The registry runs it, once."""
        try:
            result = await self._result()
            outcome = self._heard(result) if isinstance(result, CallOutcome) else self._outcome_of(result)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever broke, the bill goes out
            outcome = self._broken(error)
        self._announce(written=False)
        self._landing.close()
        outcome = await self._recorded(outcome)
        if self._watch is not None:
            self._watch.ended(outcome, () if self.provider_call is None else self.provider_call.attempts)
        if self._desk is not None and self._holding is not None:
            self._desk.leaders.remove(self._holding.ref.call, self)
        self.audience.tell(outcome)
        return outcome

    async def _result(self) -> Answer | Failure | CallOutcome:
        left = self._left()
        timer = None
        if left is not None:
            timer = asyncio.get_running_loop().call_later(left, self.cut, Cause.DEADLINE, LATE)
        try:
            plan = await self._plan(self._request)
            if isinstance(plan, Failure):
                return plan
            ended = self._ended_before_sending()
            return ended if ended is not None else await self._ask_once(plan)
        finally:
            if timer is not None:
                timer.cancel()

    async def _plan(self, request: CompletionRequest | EmbeddingRequest) -> Plan | Failure:
        """Plan here or in a thread; a cut ends the wait for it. A plan that runs by then is dropped when done."""
        try:
            if self._planner is None:
                return self._planned(self, request)
            loop = asyncio.get_running_loop()
            self._planning = loop.run_in_executor(self._planner, self._planned, self, request)
            if self._cut is not None:
                self._planning.cancel()
            return await self._planning
        except Refused as refusal:
            return refusal.verdict
        except asyncio.CancelledError:
            if self._cut is None or _is_cancelled():
                raise
            return self._never_sent(*self._cut)
        finally:
            self._planning = None

    def _ended_before_sending(self) -> Failure | None:
        if self._cut is not None:
            return self._never_sent(*self._cut)
        left = self._left()
        if left is not None and left <= 0:
            return self._never_sent(Cause.DEADLINE, "the deadline is too near to send anything")
        return None

    def _left(self) -> float | None:
        """Return how many seconds the provider still has."""
        return None if self._budget is None else self._budget - (time.monotonic() - self._arrived)

    # With a ledger: at most once

    async def _ask_once(self, plan: Plan) -> Answer | Failure | CallOutcome:
        """Ask the provider, unless the journal has the outcome or the same call runs already."""
        desk = self._desk
        if desk is None or plan.digest is None or plan.hold is None:
            return await self._ask(plan)
        owner, at = desk.ledger.owner, now()
        order = reservation(
            self._request, plan.model, plan.digest, plan.hold, tenant=self.tenant, owner=owner, at=at
        )
        pause = POLL_LEAST
        while True:
            self._is_reserving = True
            try:
                found = await desk.reserve(order)
            finally:
                self._is_reserving = False
            if not isinstance(found, UnderWay):
                break
            leader = desk.leaders.find(CallKey(self.tenant, found.call_id))
            if leader is not None:
                return await self._join(leader)
            if self._cut is None:
                await self._wait(pause)
            if self._cut is not None:
                return self._never_sent(*self._cut)
            pause = min(2 * pause, POLL_MOST)
        if isinstance(found, Holding):
            return await self._ask_held(desk, plan, found)
        return self._replayed(found) if isinstance(found, Recorded) else found

    async def _ask_held(self, desk: Desk, plan: Plan, holding: Holding) -> Answer | Failure:
        self._holding = holding
        self.call_id = holding.ref.call.call_id
        desk.leaders.add(holding.ref.call, self)
        if (ended := self._ended_before_sending()) is not None:
            return ended
        if plan.hold is not None and holding.output_tokens < plan.hold.output_tokens:
            clamped = msgspec.structs.replace(self._request, max_output_tokens=holding.output_tokens)
            smaller = await self._plan(clamped)
            if isinstance(smaller, Failure):
                return smaller
            plan = smaller
        self._checkpoints = Checkpoints(holding, plan.model, self.tables)
        return await self._ask(plan)

    def _replayed(self, found: Recorded) -> CallOutcome | Failure:
        self.call_id = found.row.call_id
        try:
            return recorded_outcome(found, self.model)
        except ContentUnreadable as error:
            _log.error("a recorded outcome cannot be read", call_id=self.call_id, reason=str(error))
            return failure(
                Kind.OUTCOME_GONE, f"the outcome is recorded and cannot be read: {error}", cause=Cause.LIMIT
            )

    async def _join(self, leader: Call) -> CallOutcome:
        """Wait with the callers of a call that runs here already; this one's leaving ends it for itself alone."""
        self._leader, self.call_id, self.model = leader, leader.call_id, leader.model
        leader.join(self._hear)
        self._hear()
        if self._cut is None:
            await self._wait(None, leader.task)
        if leader.task.done():
            leader.audience.leave(self._hear)
            outcome = leader.task.result()
            return msgspec.structs.replace(outcome, result=repeated(outcome.result), replayed=True)
        assert self._cut is not None
        leader.release(self._hear, *self._cut)
        accumulator = None if leader.provider_call is None else leader.provider_call.accumulator
        result = broken(accumulator, self._cut[0], written=self.is_written, message=self._cut[1])
        return msgspec.structs.replace(self._outcome_of(result), replayed=True)

    def _hear(self) -> None:
        """Pass on what the call that was joined tells."""
        if self.is_written:
            self._announce(written=True)
        self.audience.alert()

    async def _wait(self, seconds: float | None, *others: asyncio.Future[CallOutcome]) -> None:
        """Wait for others, for a time or for a cut, whichever is first."""
        self._woken = asyncio.get_running_loop().create_future()
        waits: list[asyncio.Future[Any]] = [self._woken, *others]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken = None

    # The provider

    async def _ask(self, plan: Plan) -> Answer | Failure:
        assert self.driver is not None
        deltas = self.log is not None
        call = self.driver.start(plan.prepared, plan.model, plan.expectation, self, deltas=deltas)
        self.provider_call = call
        self._is_asking = True
        try:
            return await call.run()
        finally:
            self._is_asking = False
            if call.fault is not None:
                _log.error(
                    "provider call failed", call_id=self.call_id, model=self.model_asked, exc_info=call.fault
                )

    def _outcome_of(self, result: Answer | Failure) -> CallOutcome:
        attempts = () if self.provider_call is None else self.provider_call.attempts
        return CallOutcome(
            call_id=self.call_id,
            model_asked=self.model_asked,
            result=self._priced(result),
            model=self.model,
            attempts=attempts[-MAX_REPORTED_ATTEMPTS:],
            attempts_total=len(attempts),
            timings=self._timings(),
            labels=self._request.labels,
            sensitivity=self._sensitivity(),
        )

    def _heard(self, outcome: CallOutcome) -> CallOutcome:
        """Return another call's outcome as this caller gets it: no less confidential than its own prompt."""
        known = [each for each in (outcome.sensitivity, self._sensitivity()) if each is not None]
        return msgspec.structs.replace(outcome, sensitivity=max(known, default=None))

    def _sensitivity(self) -> Sensitivity | None:
        return None if self.model is None else self.model.answer_sensitivity(self._request.sensitivity)

    def _priced(self, result: Answer | Failure) -> Answer | Failure:
        try:
            return priced(result, self.model, self.tables)
        except Exception:  # noqa: BLE001 - a paid answer must not be lost to its price tag
            _log.exception("pricing failed; the cost is left out", call_id=self.call_id)
            return result

    def _timings(self) -> Timings:
        moment = time.monotonic()
        written, first = self._written, self._first_output
        return Timings(
            queue=(written if written is not None else moment) - self._arrived,
            first_token=first - written if first is not None and written is not None else None,
            total=moment - self._arrived,
        )

    def _never_sent(self, cause: Cause, detail: str) -> Failure:
        if self._halted:
            return failure(Kind.HALTED, self._halted, cause=Cause.LIMIT)
        return failure(Kind.UNREACHABLE, detail or "the call was ended before anything was sent", cause=cause)

    # When our own code fails

    def _broken(self, error: BaseException) -> CallOutcome:
        cause = _cause_of(error)
        if cause is Cause.BUG:
            _log.error("call failed", call_id=self.call_id, model=self.model_asked, exc_info=error)
        return CallOutcome(
            call_id=self.call_id,
            model_asked=self.model_asked,
            result=self._priced(self._verdict_on(cause)),
            model=self.model,
            timings=self._timings(),
            labels=self._request.labels,
            sensitivity=self._sensitivity(),
        )

    def _verdict_on(self, cause: Cause) -> Failure:
        message = OWN_FAULT if cause is Cause.BUG else "this server stopped while the call was under way"
        try:
            call = self.provider_call
            if call is not None:
                call.cut(cause, message)
            accumulator = call.accumulator if call is not None else None
            return broken(accumulator, cause, written=self.is_written, message=message)
        except Exception:  # noqa: BLE001 - the second fault in one call; the ladder's last rung is left
            _log.exception("the state of a failed call cannot be read", call_id=self.call_id)
            return lost(cause, written=self.is_written, message=message)

    # The record

    async def _recorded(self, outcome: CallOutcome) -> CallOutcome:
        if self._checkpoints is not None:
            self._checkpoints.stop()
        try:
            if self._holding is not None and await self._settled(self._holding, outcome):
                outcome = msgspec.structs.replace(outcome, settled=True)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the outcome goes out unsettled, and it says so
            _log.exception("settling failed; the outcome is not booked", call_id=self.call_id)
        try:
            booked = await self._recorder.record(outcome)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - as above
            _log.exception("recording failed; the outcome is not booked", call_id=self.call_id)
            return outcome
        return msgspec.structs.replace(outcome, settled=True) if booked else outcome

    async def _settled(self, holding: Holding, outcome: CallOutcome) -> bool:
        written = self._written
        return await holding.settle(
            outcome,
            attempts=() if self.provider_call is None else self.provider_call.attempts,
            written=written is not None,
            generating_seconds=0.0 if written is None else time.monotonic() - written,
            landing=self._landing.word_at_end(is_finished=_is_finished(outcome.result)),
        )


def _is_finished(result: Answer | Failure) -> bool:
    return not isinstance(result, Failure) or result.cause is Cause.PROVIDER


def _cause_of(error: BaseException) -> Cause:
    """Tell a loop that is going down from a fault: only the former cancels the call's own task."""
    stopping = isinstance(error, asyncio.CancelledError) and _is_cancelled()
    return Cause.DRAIN if stopping else Cause.BUG


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
