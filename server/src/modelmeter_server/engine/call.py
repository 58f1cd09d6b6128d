"""One call under way: it observes its provider request, can be cut, and ends in one recorded outcome.

A call belongs to the in-flight registry, not to whoever asked for it: a caller that leaves cuts the call, and the
call still works out what it cost and records it. `run` never raises.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.calls import MAX_REPORTED_ATTEMPTS, CallOutcome, Timings
from modelmeter_server.core.errors import OWN_FAULT, Failure, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.telemetry.log import get_logger

from .bill import broken, lost, priced
from .plan import Plan, Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.pricing import PriceTable
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver, ProviderCall

    from .recorder import Recorder


LATE = "the caller's deadline ran out"

_log = get_logger(__name__)


class Call:
    """One call of a model. Made by `Engine.start`."""

    def __init__(
        self,
        request: CompletionRequest | EmbeddingRequest,
        planned: Callable[[Call], Plan],
        recorder: Recorder,
        *,
        budget: float | None,
        deltas: bool,
        planner: Executor | None = None,
    ) -> None:
        """Take what `run` needs. `planned` turns the request into a plan and raises Refused for a bad one.

        `budget` is how many seconds the provider has; `deltas` keeps deltas for a stream. With a `planner`, for large
        requests, `planned` runs in one of its threads and the event loop stays free.
        """
        self.call_id = request.call_id
        self.model_asked = request.model
        self.model: ModelSpec | None = None
        self.driver: Driver | None = None
        self.tables: dict[str, PriceTable] = {}
        self.provider_call: ProviderCall | None = None
        """The provider request, once there is one."""
        self.task: asyncio.Task[CallOutcome]
        """Ends with the outcome; set by the registry right after the call was made."""
        self.on_news: Callable[[], None] | None = None
        """Called when the provider request was written and when its accumulator holds news."""
        self._labels = request.labels
        self._planned = planned
        self._recorder = recorder
        self._budget = budget
        self._deltas = deltas
        self._planner = planner
        self._planning: asyncio.Future[Plan] | None = None
        self._cut: tuple[Cause, str] | None = None
        self._arrived = time.monotonic()
        self._written: float | None = None
        self._first_output: float | None = None
        self._dispatched: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    # What the caller does

    @property
    def is_written(self) -> bool:
        """Say whether the whole request was handed to the network."""
        return self._written is not None

    async def dispatched(self) -> bool:
        """Wait until the provider's request is written, or the call ended without that; say which.

        One waiter only: cancelling it ends the wait for good.
        """
        return await self._dispatched

    async def outcome(self) -> CallOutcome:
        """Wait for the recorded outcome. Cancelling the wait leaves the call running: `cut` ends it."""
        return await asyncio.shield(self.task)

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now; its outcome says what is known. The first cut counts; harmless when it has ended."""
        if self._cut is None:
            self._cut = (cause, detail)
            if self.provider_call is not None:
                self.provider_call.cut(cause, detail)
            elif self._planning is not None:
                self._planning.cancel()

    # What the provider request tells

    def written(self) -> None:
        """See `Observer.written`; a re-send after a stale connection is not news."""
        if self._written is None:
            self._written = time.monotonic()
            self._announce(written=True)
            self._tell()

    def progressed(self) -> None:
        """See `Observer.progressed`."""
        if self._first_output is None and self.provider_call and self.provider_call.accumulator.generated:
            self._first_output = time.monotonic()
        self._tell()

    def _tell(self) -> None:
        if self.on_news is not None:
            self.on_news()

    def _announce(self, *, written: bool) -> None:
        if not self._dispatched.done():
            self._dispatched.set_result(written)

    # From start to outcome

    async def run(self) -> CallOutcome:
        """Bring the call to its recorded outcome; never raises. The registry runs it, once."""
        try:
            outcome = self._outcome_of(await self._result())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever broke, the bill goes out
            outcome = self._broken(error)
        self._announce(written=False)
        return await self._recorded(outcome)

    async def _result(self) -> Answer | Failure:
        try:
            plan = self._planned(self) if self._planner is None else await self._plan_beside(self._planner)
        except Refused as refusal:
            return refusal.verdict
        except asyncio.CancelledError:
            if self._cut is None or _is_cancelled():
                raise
            return _never_sent(*self._cut)
        if self._cut is not None:
            return _never_sent(*self._cut)
        left = self._left()
        if left is not None and left <= 0:
            return _never_sent(Cause.DEADLINE, "the deadline is too near to send anything")
        return await self._ask(plan)

    async def _plan_beside(self, planner: Executor) -> Plan:
        """Plan in a thread; a cut ends the wait, as CancelledError. A plan that runs by then is dropped when done."""
        loop = asyncio.get_running_loop()
        self._planning = loop.run_in_executor(planner, self._planned, self)
        if self._cut is not None:
            self._planning.cancel()
        left = self._left()
        timer = None if left is None else loop.call_later(left, self.cut, Cause.DEADLINE, LATE)
        try:
            return await self._planning
        finally:
            self._planning = None
            if timer is not None:
                timer.cancel()

    def _left(self) -> float | None:
        """Return how many seconds the provider still has."""
        return None if self._budget is None else self._budget - (time.monotonic() - self._arrived)

    async def _ask(self, plan: Plan) -> Answer | Failure:
        assert self.driver is not None
        call = self.driver.start(plan.prepared, plan.model, plan.expectation, self, deltas=self._deltas)
        self.provider_call = call
        try:
            return await self._run(call)
        finally:
            if call.fault is not None:
                _log.error(
                    "provider call failed", call_id=self.call_id, model=self.model_asked, exc_info=call.fault
                )

    async def _run(self, call: ProviderCall) -> Answer | Failure:
        left = self._left()
        if left is None:
            return await call.run()
        timer = asyncio.get_running_loop().call_later(left, self.cut, Cause.DEADLINE, LATE)
        try:
            return await call.run()
        finally:
            timer.cancel()

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
            labels=self._labels,
        )

    def _priced(self, result: Answer | Failure) -> Answer | Failure:
        try:
            return priced(result, self.model, self.tables)
        except Exception:  # noqa: BLE001 - a paid answer must not be lost to its price tag
            _log.exception("pricing failed; the cost is left out", call_id=self.call_id)
            return result

    def _timings(self) -> Timings:
        now = time.monotonic()
        written, first = self._written, self._first_output
        return Timings(
            queue=(written if written is not None else now) - self._arrived,
            first_token=first - written if first is not None and written is not None else None,
            total=now - self._arrived,
        )

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
            labels=self._labels,
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

    async def _recorded(self, outcome: CallOutcome) -> CallOutcome:
        try:
            settled = await self._recorder.record(outcome)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the outcome goes out unsettled, and it says so
            _log.exception("recording failed; the outcome is not booked", call_id=self.call_id)
            return outcome
        return msgspec.structs.replace(outcome, settled=True) if settled else outcome


def _never_sent(cause: Cause, detail: str) -> Failure:
    return failure(Kind.UNREACHABLE, detail or "the call was ended before anything was sent", cause=cause)


def _cause_of(error: BaseException) -> Cause:
    """Tell a loop that is going down from a fault: only the former cancels the call's own task."""
    stopping = isinstance(error, asyncio.CancelledError) and _is_cancelled()
    return Cause.DRAIN if stopping else Cause.BUG


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
