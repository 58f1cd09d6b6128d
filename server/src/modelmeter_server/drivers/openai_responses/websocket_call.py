"""One turn on a session's WebSocket: a provider call like any other, from the connect to the ladder.

    take a socket ──► permit ──► write ──► first event ──► events ... ──► end marker, error, close, loss or cut

What came is read by the same accumulator as over HTTP, and how it ended is judged by the same ladder. A turn that ends
before its response did takes the socket with it: that is how the provider is told to stop, and no later event of it can
reach another turn.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from websockets.frames import CloseCode

from modelmeter_server.core.calls import Attempt
from modelmeter_server.core.errors import OWN_FAULT, Failure, failure
from modelmeter_server.core.json_text import NotJson
from modelmeter_server.core.outcomes import Cause, Code, End, Ending, Kind, Stage
from modelmeter_server.core.provider_errors import failure_from_http
from modelmeter_server.core.session_frames import (
    CONNECTION_LIMIT,
    TOO_BIG,
    CurrentResponse,
    Frame,
    read_frame,
)
from modelmeter_server.core.text import cut_utf8, well_formed
from modelmeter_server.drivers.authentication import CredentialsError, without_credentials
from modelmeter_server.drivers.driver import LEDGER_DOWN
from modelmeter_server.drivers.http import ConnectError, Fault, cause_of, egress_refusal
from modelmeter_server.drivers.http.watch import Watch
from modelmeter_server.drivers.provider_words import without_keys

from .websocket import HandshakeRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.drivers.driver import Observer, TurnListener
    from modelmeter_server.drivers.http.limits import Limits, Timeouts

    from .websocket import Socket

# The close codes with which a server says that it goes and another one will do (R-W2).
_GOES_AWAY: Final = frozenset((CloseCode.GOING_AWAY, CloseCode.SERVICE_RESTART, CloseCode.TRY_AGAIN_LATER))
_LASTING: Final = frozenset((Fault.CERTIFICATE, Fault.PROXY_CREDENTIALS))
_EXPIRED: Final = {
    Fault.CONNECT_TIMEOUT: "no socket in time",
    Fault.WRITE_TIMEOUT: "the provider stopped reading the turn",
    Fault.FIRST_BYTE_TIMEOUT: "the provider did not answer in time",
    Fault.IDLE_TIMEOUT: "the provider fell silent before the answer was whole",
    Fault.TOTAL_TIMEOUT: "the turn took longer than it may",
}
_REQUEST_ID: Final = "x-request-id"
_REQUEST_ID_BYTES: Final = 256


class SocketSource(Protocol):
    """Where a turn gets its socket."""

    async def take(self) -> Socket:
        """Return an open socket: the session's, or a new one. Raises ConnectError and HandshakeRefused."""

    def drop(self, socket: Socket) -> None:
        """Close a socket that must not carry another turn."""


class WebSocketCall:
    """One turn's provider request."""

    def __init__(
        self,
        target: str,
        source: SocketSource,
        frame: bytes,
        accumulator: Accumulator,
        observer: Observer,
        listener: TurnListener,
        *,
        previous_response_id: str | None,
        scrub: Callable[[str], str],
        timeouts: Timeouts,
        limits: Limits,
    ) -> None:
        """Send nothing yet. `target` is the provider instance's name, `frame` the whole `response.create`."""
        self.accumulator = accumulator
        self.received = 0
        self.is_stale = False
        """It was lost on a socket that had carried earlier turns, before anything came back."""
        self._target = target
        self._source = source
        self._frame = frame
        self._observer = observer
        self._listener = listener
        self._scrub = scrub
        self._timeouts = timeouts
        self._limits = limits
        self._current = CurrentResponse()
        self._current.begin(previous_response_id)
        self._socket: Socket | None = None
        self._watch: Watch | None = None
        self._done: asyncio.Future[None] | None = None
        self._stage = Stage.NOT_WRITTEN
        self._events = 0
        self._end: Ending | Failure | None = None
        self._keeps_socket = False
        self._is_allowed = True
        self._fault: BaseException | None = None
        self._attempts: tuple[Attempt, ...] = ()

    # What the engine asks

    async def run(self) -> Answer | Failure:
        """Send the turn and read the answer; never raises but for a cancelled task."""
        begun = time.monotonic()
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        if self._end is None:
            await self._ride(loop, self._done)
        assert self._end is not None
        result = self._result(self._end)
        if self._is_allowed:
            self._attempts = (self._attempt(result, time.monotonic() - begun),)
        return result

    async def _ride(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        self._watch = Watch(loop, self._timeouts.total, self._expired)
        getting = loop.create_task(self._get())
        getting.add_done_callback(self._got)
        try:
            await done
        except asyncio.CancelledError:
            self.cut(Cause.CALLER, "cancelled")
            raise
        finally:
            self._watch.stop()
            if getting.cancel():
                await asyncio.wait(
                    (getting,)
                )  # what is half open is closed before the next turn opens another

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the turn now; the socket is closed, for nothing else stops the provider."""
        self._finish(Ending(end=End.CUT, cause=cause, stage=self._stage, detail=detail or "cut"))

    def pause_reading(self) -> None:
        """See `PausableCall`."""
        if self._socket is not None and self._watch is not None and self._end is None:
            self._watch.suspend()
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """See `PausableCall`."""
        if self._socket is not None and self._watch is not None and self._end is None:
            self._watch.resume()
            self._socket.resume_reading()

    @property
    def fault(self) -> BaseException | None:
        """Return what our own code raised within the turn."""
        return self._fault

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return what was sent; empty until `run` has returned."""
        return self._attempts

    # Getting a socket

    async def _get(self) -> Socket | None:
        """Return a socket that the turn may leave on; `None` when it must not leave."""
        self._enter(Fault.CONNECT_TIMEOUT, self._timeouts.connect + self._timeouts.first_byte)
        socket = await self._source.take()
        permit = self._observer.dispatching(1, self._target)
        return socket if permit is None or await permit else None

    def _got(self, getting: asyncio.Task[Socket | None]) -> None:
        if getting.cancelled() or self._end is not None:
            if not getting.cancelled():
                getting.exception()  # looked at, so that nobody complains
            return
        error = getting.exception()
        if error is not None:
            self._finish(self._not_connected(error))
            return
        socket = getting.result()
        if socket is None:
            self._is_allowed = False
            self._finish(failure(Kind.LEDGER_DOWN, LEDGER_DOWN, cause=Cause.LIMIT))
            return
        self._socket = socket
        self._listener.sending(socket.number)
        self._enter(Fault.WRITE_TIMEOUT, self._timeouts.write)
        try:
            socket.begin(self, self._frame)
        except Exception as fault:  # noqa: BLE001 - a bug of ours must not leave the turn waiting
            self.failed(fault)

    def _not_connected(self, error: BaseException) -> Ending | Failure:
        self._listener.send_failed()
        if isinstance(error, HandshakeRefused):
            return self._refused(error)
        if isinstance(error, CredentialsError):
            return without_credentials(error)
        if isinstance(error, ConnectError) and error.fault is Fault.EGRESS:
            return egress_refusal(error.detail)
        if isinstance(error, ConnectError) and error.fault is Fault.EXHAUSTED:
            return failure(Kind.OVERLOADED, error.detail, cause=Cause.LIMIT)
        if isinstance(error, ConnectError):
            return Ending(
                end=End.RESET,
                cause=cause_of(error.fault) or Cause.NETWORK,
                stage=Stage.NOT_WRITTEN,
                detail=error.detail,
                retryable=False if error.fault in _LASTING else None,
            )
        self._fault = error
        return Ending(end=End.CUT, cause=Cause.BUG, stage=Stage.NOT_WRITTEN, detail=OWN_FAULT)

    def _refused(self, error: HandshakeRefused) -> Failure:
        """Classify a refused upgrade like the HTTP answer it is, but for one thing: the turn was never sent."""
        told = failure_from_http(error.status, error.headers.get, error.body, scrub=self._scrub)
        told = msgspec.structs.replace(
            told,
            stage=Stage.NOT_WRITTEN,
            provider_request_id=_request_id(error.headers.get(_REQUEST_ID)),
        )
        if told.kind is not Kind.UNAVAILABLE:
            return told
        return failure(
            Kind.UNREACHABLE,
            f"{told.message}, and no WebSocket",
            cause=Cause.PROVIDER,
            stage=Stage.NOT_WRITTEN,
            http_status=error.status,
            retry_after=told.retry_after,
            provider_code=told.provider_code,
            provider_request_id=told.provider_request_id,
        )

    # What the socket says

    def writing(self) -> None:
        """See `Rider`."""
        self._reach(Stage.WRITING)

    def written(self) -> None:
        """See `Rider`."""
        self._reach(Stage.WRITTEN)
        if not self._events:
            self._enter(Fault.FIRST_BYTE_TIMEOUT, self._timeouts.first_byte)
        self._observer.written()

    def alive(self) -> None:
        """See `Rider`."""
        if self._watch is not None:
            self._watch.last = asyncio.get_running_loop().time()

    def message(self, data: bytes) -> None:
        """Take one event of the provider's."""
        if self._end is not None:
            return
        self.received += len(data)
        self._events += 1
        self._reach(Stage.BODY)
        if self._events == 1:
            self._enter(Fault.IDLE_TIMEOUT, self._timeouts.idle)
        self.alive()
        self._listener.frame(data)
        try:
            frame = read_frame(data)
        except NotJson:
            frame = Frame()
        if self._current.admits(frame):
            self._take(frame, data)
        if self.received > self._limits.answer_bytes:
            self._break_off(Cause.LIMIT, "the answer is larger than this deployment takes")

    def _take(self, frame: Frame, data: bytes) -> None:
        accumulator = self.accumulator
        accumulator.feed_event(frame.type, data)
        self._observer.progressed()
        if accumulator.done or (accumulator.awaits_tail and frame.sequence_number is None):
            # An error with a number belongs to a response, whose own end may follow; one without is all there is.
            self._keeps_socket = self._socket is not None and self._socket.is_written
            self._finish(Ending(end=End.CLEAN, stage=self._stage))
        elif accumulator.awaits_tail and self._watch is not None:
            self._watch.limit(self._timeouts.tail)

    def closed(self, code: int, *, by_peer: bool) -> None:
        """Judge a close: of another end than the provider's own a close proves nothing (R-W2)."""
        self._listener.transport_failed()
        if not by_peer:
            cause = Cause.LIMIT if code == CloseCode.MESSAGE_TOO_BIG else Cause.NETWORK
            what = (
                "an event is larger than this deployment takes" if cause is Cause.LIMIT else "broken frames"
            )
            self._break_off(cause, f"the socket was closed: {what} ({code})")
        elif code == CloseCode.MESSAGE_TOO_BIG and not self._events:
            self._finish(_too_big(self._stage))
        else:
            self._finish(
                Ending(
                    end=End.RESET,
                    cause=Cause.PROVIDER,
                    stage=self._stage,
                    detail=f"the provider closed the socket before the answer was whole ({code})",
                    retryable=None if code in _GOES_AWAY else False,
                )
            )

    def lost(self, error: BaseException | None) -> None:
        """Learn that the connection broke."""
        del error
        self._listener.transport_failed()
        socket = self._socket
        self.is_stale = not self._events and socket is not None and socket.turns > 1
        self._finish(
            Ending(
                end=End.RESET,
                cause=Cause.NETWORK,
                stage=self._stage,
                detail="the socket broke before the answer was whole",
            )
        )

    def failed(self, error: Exception) -> None:
        """Learn that our own code raised."""
        self._fault = error
        self._break_off(Cause.BUG, OWN_FAULT)

    # The end

    def _break_off(self, cause: Cause, detail: str) -> None:
        self._finish(Ending(end=End.CUT, cause=cause, stage=self._stage, detail=detail))

    def _expired(self, fault: Fault) -> None:
        self._break_off(cause_of(fault) or Cause.NETWORK, _EXPIRED[fault])

    def _finish(self, end: Ending | Failure) -> None:
        if self._end is not None:
            return
        self._end = end
        socket = self._socket
        if socket is not None:
            socket.part(self)
            socket.resume_reading()
            if not self._keeps_socket:
                self._source.drop(socket)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _result(self, end: Ending | Failure) -> Answer | Failure:
        result = self.accumulator.finish(end) if isinstance(end, Ending) else end
        socket = self._socket
        if socket is not None and isinstance(result, Failure) and result.provider_code == CONNECTION_LIMIT:
            self._source.drop(socket)
        if socket is not None and result.provider_request_id is None:
            told = _request_id(socket.handshake_headers.get(_REQUEST_ID))
            result = msgspec.structs.replace(result, provider_request_id=told)
        return without_keys(result, self._scrub)

    def _attempt(self, result: Answer | Failure, elapsed: float) -> Attempt:
        failed = result if isinstance(result, Failure) else None
        return Attempt(
            number=1,
            target=self._target,
            stage=failed.stage if failed else Stage.OUTPUT,
            certainty=result.certainty,
            elapsed=elapsed,
            kind=failed.kind if failed else None,
            cause=failed.cause if failed else None,
            usage=result.usage,
            http_status=failed.http_status if failed else None,
            provider_code=failed.provider_code if failed else None,
            provider_request_id=result.provider_request_id,
        )

    def _reach(self, stage: Stage) -> None:
        self._stage = max(self._stage, stage)

    def _enter(self, phase: Fault, seconds: float) -> None:
        if self._watch is not None and self._end is None:
            self._watch.enter(phase, seconds)


def _too_big(stage: Stage) -> Failure:
    return failure(
        Kind.REFUSED,
        f"the provider takes no message of this size on a WebSocket ({TOO_BIG}); an ordinary call may work",
        cause=Cause.PROVIDER,
        stage=stage,
        code=Code.INVALID_ARGUMENT,
        provider_code=TOO_BIG,
    )


def _request_id(told: str | None) -> str | None:
    return cut_utf8(well_formed(told), _REQUEST_ID_BYTES) if told else None
