"""Play a rendition as the transport would deliver it: same calls to the same sink, same timeouts, same ends.

The stages and faults are those of `drivers.http.exchange`, so that everything above cannot tell the two apart. All
work is done in callbacks of the loop; a play without pauses is over before `run` waits for anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from modelmeter_server.core.outcomes import Cause, Stage

from ..http import ExchangeEnd, Fault, Headers, Permit, ResponseHead, Sink, Timeouts, cause_of
from ..http.watch import Watch
from .script import PlayEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from .render import Rendition, Step

_CLOSED = "provider closed"

_EXPIRED = {
    Fault.FIRST_BYTE_TIMEOUT: "no answer in time",
    Fault.IDLE_TIMEOUT: "the answer fell silent",
    Fault.TOTAL_TIMEOUT: "the exchange took too long",
}


class ReplayTransport:
    """Stands where a pool of connections stands, and has no network."""

    def __init__(self, timeouts: Timeouts) -> None:
        """Begin with nothing running."""
        self.timeouts = timeouts
        self._running: set[ReplayExchange] = set()
        self._is_closed = False

    def exchange(
        self, rendition: Callable[[], Rendition], sink: Sink, permit: Permit | None = None
    ) -> ReplayExchange:
        """Prepare an exchange; nothing happens before it runs, and only then `rendition` is asked."""
        return ReplayExchange(self, rendition, sink, permit)

    def admit(self, exchange: ReplayExchange) -> bool:
        """Remember an exchange that begins; return False when no more may."""
        if not self._is_closed:
            self._running.add(exchange)
        return not self._is_closed

    def forget(self, exchange: ReplayExchange) -> None:
        """Learn that an exchange has ended."""
        self._running.discard(exchange)

    def close(self) -> None:
        """Cut what runs (cause DRAIN) and whatever begins later."""
        self._is_closed = True
        for exchange in list(self._running):
            exchange.cut(Cause.DRAIN, _CLOSED)


class ReplayExchange:
    """One request and its scripted answer. Run once."""

    def __init__(
        self,
        transport: ReplayTransport,
        rendition: Callable[[], Rendition],
        sink: Sink,
        permit: Permit | None = None,
    ) -> None:
        """Prepare; nothing happens before `run`. A `permit` must allow the request to leave."""
        self._transport = transport
        self._rendition = rendition
        self._sink = sink
        self._permit = permit
        self._asked: asyncio.Future[bool] | None = None
        self._idle_seconds = transport.timeouts.idle
        self._end: ExchangeEnd | None = None
        self._done: asyncio.Future[ExchangeEnd] | None = None
        self._watch: Watch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._steps: deque[Step] = deque()
        self._stage = Stage.NOT_WRITTEN
        self._head: ResponseHead | None = None
        self._is_paused = False
        self._waits: PlayEnd | None = None

    async def run(self) -> ExchangeEnd:
        """Play, feed the sink, return how it ended. Failures are returned, never raised.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled; by then the play has ended.
            RuntimeError: it was run before.
        """
        if self._done is not None:
            msg = "an exchange runs once"
            raise RuntimeError(msg)
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        if self._end is None:
            self._watch = Watch(loop, self._transport.timeouts.total, self._expired)
            self._guarded(self._begin)
        else:
            self._done.set_result(self._end)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.cut(Cause.CALLER, "cancelled")
            raise

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End it now; harmless when it has ended."""
        self._finish(Fault.CUT, detail or "cut", cause=cause)

    def set_idle_timeout(self, seconds: float) -> None:
        """Allow another gap between reads from now on."""
        self._idle_seconds = seconds
        if self._watch is not None and self._watch.phase is Fault.IDLE_TIMEOUT:
            self._watch.limit(seconds)

    def pause_reading(self) -> None:
        """Deliver no more reads until `resume_reading`; the idle timer stands still meanwhile."""
        if self._watch is not None:
            self._watch.suspend()
        self._is_paused = True

    def resume_reading(self) -> None:
        """Go on after `pause_reading`, in the loop's next turn: it may be the sink that says so."""
        if self._watch is not None:
            self._watch.resume()
        self._is_paused = False
        end, self._waits = self._waits, None
        if end is not None and self._end is None:
            asyncio.get_running_loop().call_soon(self._guarded, lambda: self._advance(end))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a fault of the sink or of ours ends the call, with its bill
            self._finish(Fault.BUG, f"{type(error).__name__} in our own code", error=error)

    def _begin(self) -> None:
        if not self._transport.admit(self):
            self.cut(Cause.DRAIN, _CLOSED)
            return
        answer = None if self._permit is None else self._permit(1)
        if answer is None:
            self._send()
        else:
            self._asked = asyncio.ensure_future(answer)
            self._asked.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[bool]) -> None:
        if answer.cancelled():
            self.cut(Cause.CALLER, "cancelled")
        elif isinstance(error := answer.exception(), Exception):
            self._finish(Fault.BUG, f"{type(error).__name__} in our own code", error=error)
        elif not answer.result():
            self._finish(Fault.NOT_ALLOWED, "the request was not allowed to leave")
        elif self._end is None:
            self._guarded(self._send)

    def _send(self) -> None:
        rendition = self._rendition()
        if rendition.stops_at is Stage.NOT_WRITTEN:
            self._finish(Fault.REFUSED, "the replay provider plays a host where nobody listens")
        elif rendition.stops_at is Stage.WRITING:
            self._stage = Stage.WRITING
            self._finish(Fault.WRITE_LOST, "the connection was lost while the request was being written")
        else:
            self._write(rendition)

    def _write(self, rendition: Rendition) -> None:
        self._stage = Stage.WRITTEN
        self._enter(Fault.FIRST_BYTE_TIMEOUT, self._transport.timeouts.first_byte)
        self._sink.written()
        self._after(rendition.delay, lambda: self._answer(rendition))

    def _answer(self, rendition: Rendition) -> None:
        if rendition.stops_at is None:
            self._stage = Stage.HEADERS
            self._head = ResponseHead(rendition.status, Headers(rendition.headers))
            self._enter(Fault.IDLE_TIMEOUT, self._idle_seconds)
            self._sink.head(self._head)
            self._steps.extend(rendition.steps)
        self._advance(rendition.end)

    def _advance(self, end: PlayEnd) -> None:
        """Deliver reads until there is a pause or an end."""
        while self._steps and self._end is None:
            if self._is_paused:
                self._waits = end
                return
            step = self._steps.popleft()
            if isinstance(step, float):
                self._after(step, lambda: self._advance(end))
                return
            self._deliver(step)
        if self._end is None:
            self._conclude(end)

    def _deliver(self, chunk: bytes) -> None:
        self._stage = Stage.BODY
        if self._watch is not None:
            self._watch.last = asyncio.get_running_loop().time()
        if self._sink.data(chunk):
            self._finish(Fault.NONE, "")

    def _conclude(self, end: PlayEnd) -> None:
        if end is PlayEnd.RESET:
            self._finish(Fault.RESET, "the connection broke")
        elif end is PlayEnd.CLEAN and self._head is None:
            self._finish(Fault.RESET, "the connection was closed without an answer")
        elif end is PlayEnd.CLEAN:
            self._finish(Fault.NONE, "")

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        if self._end is not None:
            return
        if seconds:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._guarded, work)
        else:
            work()

    def _enter(self, phase: Fault, seconds: float) -> None:
        if self._watch is not None and self._end is None:
            self._watch.enter(phase, seconds)

    def _expired(self, fault: Fault) -> None:
        self._finish(fault, _EXPIRED[fault])

    def _finish(
        self, fault: Fault, detail: str, *, cause: Cause | None = None, error: Exception | None = None
    ) -> None:
        if self._end is not None:
            return
        self._end = ExchangeEnd(
            stage=self._stage,
            fault=fault,
            cause=cause or cause_of(fault),
            detail=detail,
            head=self._head,
            attempts=1,
            reused=False,
            request_written=self._stage >= Stage.WRITTEN,
            error=error,
        )
        self._steps.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.stop()
        if self._done is not None and not self._done.done():
            self._done.set_result(self._end)
        self._transport.forget(self)
