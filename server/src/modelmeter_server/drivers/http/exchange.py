"""One request and its answer, from the wait for a connection to the last byte."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING

from modelmeter_server.core.outcomes import Cause, Stage

from .delivery import Delivery, Permit, Sink, Verdict
from .faults import ExchangeEnd, Fault, cause_of
from .message import HttpRequest, request_head
from .watch import Watch

if TYPE_CHECKING:
    from .connection import Connection
    from .faults import ConnectError
    from .limits import Limits, Timeouts
    from .pool import Pool

PIECE_BYTES = 64 * 1024
"""How much of a request is handed over at a time: a piece that still waits when the connection goes was not had."""

_EXPIRED = {
    Fault.POOL_TIMEOUT: "no free connection in time",
    Fault.CONNECT_TIMEOUT: "no connection in time",
    Fault.WRITE_TIMEOUT: "the peer stopped reading the request",
    Fault.FIRST_BYTE_TIMEOUT: "no answer in time",
    Fault.IDLE_TIMEOUT: "the answer fell silent",
    Fault.TOTAL_TIMEOUT: "the exchange took too long",
}


class Exchange:
    """Run once. All work is done in the callbacks of connection and timer; `run` only waits for the end.

    So there is one single point at which a caller can be cancelled, and no task to wake for each read.
    """

    def __init__(
        self,
        pool: Pool,
        request: HttpRequest,
        sink: Sink,
        timeouts: Timeouts,
        limits: Limits,
        permit: Permit | None = None,
    ) -> None:
        """Prepare; nothing happens before `run`. A `permit` is asked for each attempt, once it has a connection."""
        self.request = request
        self.timeouts = timeouts
        self._pool = pool
        self._sink = sink
        self._permit = permit
        self._asked: asyncio.Future[bool] | None = None
        self._limits = limits
        self._delivery = Delivery(sink, limits, to_head=request.method == "HEAD")
        self._idle_seconds = timeouts.idle
        self._end: ExchangeEnd | None = None
        self._done: asyncio.Future[ExchangeEnd] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: Watch | None = None
        self._connection: Connection | None = None
        self._unsent: deque[bytes | memoryview] = deque()
        self._attempts = 1
        self._began = 0.0
        self._lost_written = False
        self._lost_seconds = 0.0
        self._reused = False
        self._sent = False
        self._ever_writing = False
        self._ever_written = False

    @property
    def end(self) -> ExchangeEnd | None:
        """How it ended, also after `run` was cancelled; `None` while it runs."""
        return self._end

    async def run(self) -> ExchangeEnd:
        """Send the request, feed the sink, return how it ended. Failures are returned, never raised.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled; by then the connection is closed and `end` is set.
        """
        try:
            return await self.start()
        except asyncio.CancelledError:
            self.cut(Cause.CALLER, "cancelled")
            raise

    def start(self) -> asyncio.Future[ExchangeEnd]:
        """Begin without waiting; the future gets the end.

        Raises:
            RuntimeError: it was begun before.
        """
        if self._done is not None:
            msg = "an exchange runs once"
            raise RuntimeError(msg)
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        if self._end is not None:
            self._done.set_result(self._end)
        elif len(self.request.body) > self._limits.request_bytes:
            self._finish(Fault.REQUEST_LIMIT, f"request body over {self._limits.request_bytes} bytes")
        else:
            self._watch = Watch(self._loop, self.timeouts.total, self._expired)
            self._pool.acquire(self)
        return self._done

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End it now, from outside: the connection is closed, `run` returns. Harmless when it has ended."""
        self._finish(Fault.CUT, detail or "cut", cause=cause)

    def set_idle_timeout(self, seconds: float) -> None:
        """Allow another gap between reads from now on, as once only the tail of an answer is awaited."""
        self._idle_seconds = seconds
        if self._watch is not None and self._watch.phase is Fault.IDLE_TIMEOUT:
            self._watch.limit(seconds)

    def pause_reading(self) -> None:
        """Let the peer wait while our own reader is behind; the idle timer stands still meanwhile."""
        if self._connection is not None and self._watch is not None:
            self._watch.suspend()
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        if self._connection is not None and self._watch is not None:
            self._watch.resume()
            self._connection.resume_reading()

    # What the pool says.

    def queued(self) -> None:
        """Learn that the pool is full: the pool timer starts."""
        self._enter(Fault.POOL_TIMEOUT, self.timeouts.pool)

    def connecting(self) -> None:
        """Learn that a connection is being opened: the connect timer starts."""
        self._enter(Fault.CONNECT_TIMEOUT, self.timeouts.connect)

    def unreachable(self, error: ConnectError) -> None:
        """Learn that no connection could be opened."""
        self._finish(error.fault, error.detail, error=error.error)

    def begin(self, connection: Connection, *, reused: bool) -> None:
        """Take over an open connection and send the request on it."""
        connection.owner = self
        self._connection = connection
        self._reused = reused
        self._sent = False
        self._unsent = _pieces(self.request, self._pool.endpoint.authority)
        self._enter(Fault.WRITE_TIMEOUT, self.timeouts.write)
        try:
            if self._may_leave():
                self.resumed()
        except Exception as exc:  # noqa: BLE001 - the sink is others' code; the pool must not pay for it
            self.failed(exc)

    def _may_leave(self) -> bool:
        """Ask whether this attempt may be sent; while the answer is awaited nothing is written."""
        # It may have been asked for the connection before this one, which went while nothing had been sent.
        if self._permit is not None and self._asked is None:
            answer = self._permit(self._attempts)
            if answer is not None:
                self._asked = asyncio.ensure_future(answer)
                self._asked.add_done_callback(self._answered)
        return not self._awaits_answer

    def _answered(self, answer: asyncio.Future[bool]) -> None:
        if answer.cancelled():
            self.cut(Cause.CALLER, "cancelled")
        elif isinstance(error := answer.exception(), Exception):
            self.failed(error)
        elif self._end is not None:
            return
        elif not answer.result():
            detail = "the request was not allowed to leave"
            if self._lost_written:
                detail = "the connection broke, and the request was not allowed to leave once more"
            self._finish(Fault.NOT_ALLOWED, detail, reusable=True)
        elif self._connection is not None:
            try:
                self.resumed()
            except Exception as exc:  # noqa: BLE001 - as in `begin`
                self.failed(exc)

    @property
    def _awaits_answer(self) -> bool:
        return self._asked is not None and not self._asked.done()

    # What the connection says.

    def resumed(self) -> None:
        """Write on, as far as the network takes it."""
        connection = self._connection
        if self._awaits_answer:
            return
        while connection is not None and connection.is_writable:
            if not self._unsent:
                self._mark_sent()
                return
            if not self._ever_writing and self._loop is not None:
                self._began = self._loop.time()
            self._ever_writing = True
            connection.write(self._unsent.popleft())
            self._touch()

    def received(self, data: bytes) -> None:
        """Take one read."""
        watch = self._watch
        assert watch is not None
        assert self._loop is not None
        watch.last = self._loop.time()
        verdict = self._delivery.feed(data)
        if self._end is not None:
            return
        if watch.phase is not Fault.IDLE_TIMEOUT and (self._sent or self._delivery.head is not None):
            self._enter(Fault.IDLE_TIMEOUT, self._idle_seconds)
        if verdict is not None:
            self._conclude(verdict)

    def ended(self, error: BaseException | None, *, clean: bool) -> None:
        """Learn that the connection is at its end."""
        connection = self._connection
        if not self._sent and not self._unsent and connection is not None and connection.is_drained:
            # The last piece left in the very moment of the loss: it may have landed.
            self._mark_sent()
        if self._end is not None:
            return
        verdict = self._delivery.end_of_stream() if clean else None
        if verdict is not None:
            self._conclude(verdict)
        elif connection is not None and self._may_send_again():
            if self._ever_writing:  # else this attempt goes on, over a fresh connection
                assert self._loop is not None
                self._attempts += 1
                self._asked = None
                self._lost_written = self._sent
                self._lost_seconds = self._loop.time() - self._began
            self._connection = None
            self._pool.replace(connection, self)
        else:
            self._finish(*self._loss(error), error=error)

    def failed(self, error: Exception) -> None:
        """Learn that our own code raised while it worked on this exchange."""
        # Not the exception's text: it may quote a key or a prompt.
        self._finish(Fault.BUG, f"{type(error).__name__} in our own code", error=error)

    def _mark_sent(self) -> None:
        self._sent = True
        if self._delivery.head is None:
            self._enter(Fault.FIRST_BYTE_TIMEOUT, self.timeouts.first_byte)
        if not self._ever_written:
            self._ever_written = True
            self._sink.written()

    def _conclude(self, verdict: Verdict) -> None:
        self._finish(verdict.fault, verdict.detail, reusable=verdict.reusable and self._sent)

    def _may_send_again(self) -> bool:
        """A kept connection may have been closed before our request reached it. A fresh one has no such excuse."""
        return self._reused and self._attempts == 1 and not self._delivery.begun and self._pool.resends

    def _loss(self, error: BaseException | None) -> tuple[Fault, str]:
        if not self._sent and self._delivery.head is None:
            return Fault.WRITE_LOST, "the connection was lost while the request was being written"
        if isinstance(error, ssl.SSLError):
            return Fault.TLS, f"TLS failed: {error.reason or 'bad record'}"
        if error is not None:
            return Fault.RESET, "the connection broke"
        if self._delivery.begun:
            return Fault.TRUNCATED, "the connection was closed before the end of the answer"
        return Fault.RESET, "the connection was closed without an answer"

    def _expired(self, fault: Fault) -> None:
        self._finish(fault, _EXPIRED[fault])

    def _enter(self, phase: Fault, seconds: float) -> None:
        if self._watch is not None and self._end is None:
            self._watch.enter(phase, seconds)

    def _touch(self) -> None:
        if self._watch is not None and self._loop is not None:
            self._watch.last = self._loop.time()

    def _stage(self) -> Stage:
        if self._delivery.body_seen:
            return Stage.BODY
        if self._delivery.head is not None:
            return Stage.HEADERS
        if self._ever_written:
            return Stage.WRITTEN
        return Stage.WRITING if self._ever_writing else Stage.NOT_WRITTEN

    def _finish(
        self,
        fault: Fault,
        detail: str,
        *,
        cause: Cause | None = None,
        reusable: bool = False,
        error: BaseException | None = None,
    ) -> None:
        if self._end is not None:
            return
        self._end = ExchangeEnd(
            stage=self._stage(),
            fault=fault,
            cause=cause or cause_of(fault),
            detail=detail,
            head=self._delivery.head,
            attempts=self._attempts,
            lost_written=self._lost_written,
            lost_seconds=self._lost_seconds,
            reused=self._reused,
            request_written=self._ever_written,
            error=error,
        )
        self._delivery.close()
        if self._watch is not None:
            self._watch.stop()
            # It holds a method of ours: an exchange must not wait for the cycle collector.
            self._watch = None
        if self._done is not None and not self._done.done():
            self._done.set_result(self._end)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.resume_reading()  # the next exchange on it is another reader's
            self._pool.release(connection, reusable=reusable)
        else:
            self._pool.withdraw(self)


def _pieces(request: HttpRequest, authority: str) -> deque[bytes | memoryview]:
    """Cut head and body into pieces, the head together with the first of the body: most requests are one write."""
    head = request_head(request, authority)
    body = memoryview(request.body)
    room = max(0, PIECE_BYTES - len(head))
    pieces: deque[bytes | memoryview] = deque([head + body[:room]])
    pieces.extend(body[start : start + PIECE_BYTES] for start in range(room, len(body), PIECE_BYTES))
    return pieces
