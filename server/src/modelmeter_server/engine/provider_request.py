"""The provider's side of a call: asked once or more, observed while it goes on, its milestones kept."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.tally import together
from modelmeter_server.telemetry.log import get_logger

from .bill import priced
from .booking import Asked
from .checkpoints import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import Attempt
    from modelmeter_server.drivers.driver import ProviderCall
    from modelmeter_server.telemetry.observation import CallWatch

    from .holding import Holding
    from .plan import Plan
    from .routing import Target

_log = get_logger(__name__)


class ProviderRequest:
    """What a call asks its provider, all attempts included. It is the driver's `Observer`."""

    def __init__(self, on_news: Callable[[], None], watch: CallWatch | None = None) -> None:
        """Call `on_news` when the request was written and at every read of the answer."""
        self.call: ProviderCall | None = None
        """The driver's call of the newest attempt, once there is one."""
        self.is_asking = False
        """Whether the driver's call runs now."""
        self.written_at: float | None = None
        """When the newest attempt was wholly handed to the network, on the monotonic clock."""
        self.first_written_at: float | None = None
        """When the first one was."""
        self.first_output_at: float | None = None
        """When generation of the newest attempt was first proven."""
        self.sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the request was written: told as soon as that is known."""
        self._on_news = on_news
        self._watch = watch
        self._holding: Holding | None = None
        self._checkpoints: Checkpoints | None = None
        self.past: Failure | None = None
        """What the attempts before the newest one came to; `None` while it is the first."""
        self._result: Answer | Failure | None = None
        self._target: Target | None = None
        self._earlier: tuple[Attempt, ...] = ()
        self._wait = 0.0
        self._ended_at: float | None = None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return every provider request so far, numbered through."""
        return (*self._earlier, *self._newest)

    @property
    def _newest(self) -> tuple[Attempt, ...]:
        """Return what the newest attempt sent: two requests when a stale connection made one re-send necessary."""
        sent = () if self.call is None or self._target is None else self.call.attempts
        if not sent:
            return ()
        cost = None if self._result is None else self._result.cost
        before, target = len(self._earlier), self._target.name if self._target is not None else ""
        named = [
            msgspec.structs.replace(each, number=each.number + before, target=target, wait=0.0)
            for each in sent
        ]
        named[0] = msgspec.structs.replace(named[0], wait=self._wait)
        named[-1] = msgspec.structs.replace(named[-1], cost=cost)
        return tuple(named)

    def asked(self) -> Asked:
        """Return what the newest attempt came to, for its booking."""
        newest = self._newest
        return Asked(
            number=newest[-1].number if newest else len(self._earlier) + 1,
            result=self._result,
            attempts=newest,
            written=self.is_written,
            generating_seconds=0.0 if self.written_at is None else time.monotonic() - self.written_at,
        )

    def judged(self, result: Answer | Failure) -> Answer | Failure:
        """Return what the call comes to when its newest attempt ends with this, which is priced here."""
        return self.comes_to(self._priced(result))

    def comes_to(self, own: Answer | Failure) -> Answer | Failure:
        """Return what the call comes to with its newest attempt's own result, which has its price."""
        return own if self.past is None else together(self.past, own)

    @property
    def so_far(self) -> Failure | None:
        """Return what the call has come to while it waits for its next attempt; `None` while it asks."""
        if self.is_asking or not isinstance(self._result, Failure):
            return None
        failed = self.comes_to(self._result)
        return failed if isinstance(failed, Failure) else None

    def settle_for(self, result: Failure) -> Answer | Failure:
        """Take this for what the newest attempt came to, if it did not say; return what the call comes to."""
        own = self._priced(result)
        if self._result is None:
            self._result = own
        return self.comes_to(own)

    def _priced(self, result: Answer | Failure) -> Answer | Failure:
        target = self._target
        if target is None:
            return result
        try:
            return priced(result, target.model, target.tables)
        except Exception:  # noqa: BLE001 - a paid answer must not be lost to its price tag
            _log.exception("pricing failed; the cost is left out", target=target.name)
            return result

    def leave_behind(self, so_far: Failure) -> None:
        """Let the newest attempt be one of those before: another one follows. `so_far` is what all came to."""
        self._earlier = self.attempts
        self.past = so_far
        self.call = None
        self._result = None
        self.written_at = self.first_output_at = None

    @property
    def accumulator(self) -> Accumulator | None:
        """Return what the answer has told so far, if anything was asked."""
        return None if self.call is None else self.call.accumulator

    @property
    def received(self) -> int:
        """Return how many bytes of the answer have come."""
        return 0 if self.call is None else self.call.received

    @property
    def is_written(self) -> bool:
        """Say whether the newest attempt was wholly handed to the network."""
        return self.written_at is not None

    @property
    def is_under_way(self) -> bool:
        """Say whether the provider has the request and works on it."""
        return self.is_asking and self.is_written

    def keep_books(self, holding: Holding) -> None:
        """Tell the ledger of every dispatch, and of what the answer tells on its way."""
        self._holding = holding

    def close_books(self) -> None:
        """Write no more checkpoints: the call is about to be settled."""
        if self._checkpoints is not None:
            self._checkpoints.stop()

    async def ask(self, target: Target, plan: Plan, *, deltas: bool) -> Answer | Failure:
        """Ask a target, once, and return what that attempt came to, priced."""
        self._target = target
        if self._ended_at is not None:
            self._wait = time.monotonic() - self._ended_at
        if self._holding is not None:
            self._checkpoints = Checkpoints(self._holding, plan.model, target.tables)
        self.call = target.driver.start(plan.prepared, plan.model, plan.expectation, self, deltas=deltas)
        self.is_asking = True
        try:
            self._result = self._priced(await self.call.run())
        finally:
            self.is_asking = False
            self._ended_at = time.monotonic()
            self.close_books()
        if self._watch is not None and isinstance(self._result, Failure):
            self._watch.attempts_failed(self.attempts)  # another one may follow, and not soon
        return self._result

    def announce(self, *, sent: bool) -> None:
        """Tell who waits whether the request was written; the first word counts."""
        if not self.sent.done():
            self.sent.set_result(sent)

    # The observer

    def dispatching(self, number: int, target: str) -> Awaitable[bool] | None:
        """See `Observer.dispatching`; the target goes by its own name, which may tell more than its instance's."""
        number += len(self._earlier)
        target = target if self._target is None else self._target.name
        if self._watch is not None:
            self._watch.dispatching(number, target)
        if self._holding is None:
            return None
        send = self._holding.resend if self.is_written else self._holding.dispatch
        return send(number, target)

    def written(self) -> None:
        """See `Observer.written`; a re-send after a stale connection is not news."""
        if self.written_at is not None:
            return
        self.written_at = time.monotonic()
        if self.first_written_at is None:
            self.first_written_at = self.written_at
            self.announce(sent=True)
            self._on_news()

    def progressed(self) -> None:
        """See `Observer.progressed`."""
        assert self.call is not None
        accumulator = self.call.accumulator
        if self.first_output_at is None and accumulator.generated:
            self.first_output_at = time.monotonic()
        if self._checkpoints is not None:
            self._checkpoints.progressed(accumulator)
        self._on_news()
