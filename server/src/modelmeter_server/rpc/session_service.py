"""`ModelService.Session`: what callers send and what they are told, in order, until one last message.

One coroutine reads, one turn at a time runs, and everything that is written waits for what was written before it. The
session's end is decided here alone, so that `ended` is the last message, once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure, FieldViolation, failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.engine.call import LATE
from modelmeter_server.engine.cut import shutting_down
from modelmeter_server.engine.engine import headroom
from modelmeter_server.engine.plan import Refused, mistaken
from modelmeter_server.engine.reading import TOO_SLOW
from modelmeter_server.engine.session import SessionEnd

from .convert_request import Violations
from .convert_session import ended, live_event, opened, opening, turn_ended, turn_order, unsent
from .identity import current_tenant
from .leaving import LEFT, seconds_left, why_left
from .slow_reader import TooSlow, break_off, patient_writer
from .stays import on_end_of_credential, unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from grpc.aio import ServicerContext

    from modelmeter.v1.model_service_pb2 import SessionRequest, SessionResponse
    from modelmeter_server.engine.engine import Engine
    from modelmeter_server.engine.session import Session, TurnEnd, TurnOrder
    from modelmeter_server.engine.stream import LiveEvent

    from .convert_session import Opening
    from .slow_reader import Write

SESSION_ID_KEY: Final = "modelmeter-session-id"
"""Initial metadata with the session's id. From it on no gRPC client repeats the RPC by itself."""

MAX_WAITING: Final = 16
"""Turns that wait while one is under way, where a session queues them."""

_TRANSPORT: Final = (Kind.UNREACHABLE, Kind.UNAVAILABLE)


class SessionRpc:
    """One session as its RPC sees it."""

    def __init__(
        self,
        engine: Engine,
        requests: AsyncIterator[SessionRequest],
        context: ServicerContext[SessionRequest, SessionResponse],
    ) -> None:
        """Read nothing yet."""
        self._engine = engine
        self._requests = aiter(requests)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.Lock()
        self._waiting: deque[tuple[TurnOrder, float | None]] = deque()
        self._turn: asyncio.Task[TurnEnd] | None = None
        self._untold: asyncio.Task[TurnEnd] | None = None
        """The turn whose end the caller has not been told."""
        self._ending: tuple[SessionEnd, str] | None = None
        self._refusing: Failure | None = None
        self._news = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._idle: asyncio.TimerHandle | None = None
        self._send: Write
        self._session: Session
        self._opening: Opening

    async def run(self) -> Failure | None:
        """Serve the session to its end. Returns why it could not be opened, or was ended by us, if so."""
        try:
            await self._open()
        except Refused as refusal:
            return refusal.verdict
        try:
            async with patient_writer(self._context, self._engine.slow_reader_seconds) as self._send:
                await self._serve()
        except TooSlow:
            self._engine.sessions.abandon(self._session, Cause.LIMIT, TOO_SLOW, SessionEnd.CLIENT_CLOSE)
            await break_off(self._context, await self._unread())
        except BaseException as error:
            self._leave(error)
            raise
        finally:
            for timer in (*self._timers, *((self._idle,) if self._idle is not None else ())):
                timer.cancel()
        reason, detail = self._ending or (None, "")
        return unauthenticated(detail) if reason is SessionEnd.CREDENTIAL_ENDED else None

    async def _unread(self) -> CallOutcome:
        """Return what the caller has not read: the outcome of its turn, or why the session is over without one."""
        if self._untold is not None:
            return (await asyncio.shield(self._untold)).outcome
        failed = failure(Kind.REFUSED, TOO_SLOW, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
        return CallOutcome(call_id="", model_asked=self._session.model.name, result=failed)

    async def _open(self) -> None:
        first = await self._read()
        if first is None or first.WhichOneof("message") != "open":
            raise Refused(mistaken([FieldViolation("open", "must be the first message")]))
        found = Violations("open.")
        self._opening = opened_with = opening(first.open, found)
        self._session = self._engine.sessions.open(
            opened_with.model,
            session_id=opened_with.session_id,
            conversation_id=opened_with.conversation_id,
            keeps_transcript=opened_with.keeps_transcript,
            found=found,
            field="open.model",
            tenant=current_tenant(),
        )

    async def _read(self) -> SessionRequest | None:
        try:
            return await anext(self._requests)
        except StopAsyncIteration:
            return None

    # From opened to ended

    async def _serve(self) -> None:
        session = self._session
        await self._context.send_initial_metadata(((SESSION_ID_KEY, session.session_id),))
        await self._write(opened(session))
        self._set_timers()
        reading: asyncio.Task[SessionRequest | None] | None = None
        try:
            while True:
                if self._turn is None and self._waiting:
                    await self._begin(*self._waiting.popleft())
                    continue
                if self._ending is not None and self._turn is None:
                    break
                if reading is None and self._ending is None and len(self._waiting) < MAX_WAITING:
                    reading = self._loop.create_task(self._read())
                self._watch_idleness()
                await self._wait(reading)
                if self._turn is not None and self._turn.done():
                    await self._conclude(self._turn)
                if reading is not None and reading.done() and self._ending is None:
                    done, reading = reading, None
                    await self._take(done.result())
            if reading is not None and reading.done():
                await self._turn_away(reading.result())
        finally:
            if reading is not None:
                reading.cancel()
        reason, detail = self._ending
        await self._engine.sessions.close(session, reason)
        await self._write(ended(session, reason, detail))

    async def _wait(self, reading: asyncio.Task[Any] | None) -> None:
        if self._news.done():
            self._news = self._loop.create_future()
        waits = [each for each in (reading if self._ending is None else None, self._turn) if each is not None]
        if self._ending is None:
            await asyncio.wait((self._news, *waits), return_when=asyncio.FIRST_COMPLETED)
        elif waits:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

    async def _take(self, message: SessionRequest | None) -> None:
        kind = None if message is None else message.WhichOneof("message")
        if message is None or kind == "close":
            self._close(message)
        elif kind == "turn":
            order, timeout = turn_order(message.turn, self._session)
            if self._turn is None or self._opening.queues:
                self._waiting.append((order, timeout))
            else:
                await self._refuse(order, _busy())
        else:
            self._refusing = mistaken([FieldViolation("message", "must be a turn, or a close")])
            self._end(SessionEnd.CLIENT_CLOSE, "a message that is neither a turn nor a close")

    def _close(self, message: SessionRequest | None) -> None:
        self._end(SessionEnd.CLIENT_CLOSE, "" if message is None else message.close.reason)
        if message is not None and message.close.cut:
            self._stop(Cause.CALLER, LEFT)

    # Turns

    async def _begin(self, order: TurnOrder, timeout: float | None) -> None:
        if self._refusing is not None:
            await self._refuse(order, self._refusing)
            return
        call_id = order.request.call_id

        async def deliver(event: LiveEvent) -> None:
            await self._write(live_event(call_id, event))

        self._turn = self._untold = self._session.start(order, deliver, timeout)

    async def _conclude(self, turn: asyncio.Task[TurnEnd]) -> None:
        self._turn = None
        end = turn.result()
        await self._write(turn_ended(end, self._session))
        self._untold = None
        failed = end.outcome.result
        if isinstance(failed, Failure) and self._opening.ends_on_failure:
            is_transport = failed.kind in _TRANSPORT and failed.cause is not Cause.PROVIDER
            self._end(SessionEnd.TRANSPORT_ERROR if is_transport else SessionEnd.RESPONSE_FAILED)
            self._refusing = self._refusing or _over()

    async def _turn_away(self, message: SessionRequest | None) -> None:
        """Answer a turn that came while the session ended."""
        if message is not None and message.WhichOneof("message") == "turn":
            order, _ = turn_order(message.turn, self._session)
            await self._refuse(order, self._refusing or self._too_late())

    def _too_late(self) -> Failure:
        reason = None if self._ending is None else self._ending[0]
        if reason is SessionEnd.DRAIN:
            return shutting_down()
        message = "the session was over before the turn was taken, and nothing was sent: open another one"
        return failure(Kind.UNREACHABLE, message, cause=Cause.LIMIT)

    async def _refuse(self, order: TurnOrder, why: Failure) -> None:
        """Answer a turn that is not begun: it is a call all the same, with an id and a record."""
        session = self._session
        call = self._engine.start(
            order.request, refusal=why, tenant=session.tenant, conversation_id=session.conversation_id
        )
        await self._write(unsent(await call.outcome()))

    # The end

    def _end(self, reason: SessionEnd, detail: str = "") -> None:
        """Take no further message; the first reason counts."""
        if self._ending is None:
            self._ending = (reason, detail)
        if not self._news.done():
            self._news.set_result(None)

    def _stop(self, cause: Cause, detail: str) -> None:
        """Cut the turn under way and refuse those that wait."""
        self._refusing = self._refusing or failure(Kind.UNREACHABLE, detail, cause=cause)
        self._session.cut(cause, detail)

    def _set_timers(self) -> None:
        remaining = seconds_left(self._context)
        if remaining is not None:
            self._timers.append(self._loop.call_later(remaining - headroom(remaining), self._expire))
        age = self._engine.sessions.age_seconds
        if age != float("inf"):
            self._timers.append(self._loop.call_later(age, self._end, SessionEnd.AGE))
        on_end_of_credential(self._expel)
        self._session.draining.add_done_callback(lambda _done: self._end(SessionEnd.DRAIN))

    def _expire(self) -> None:
        self._end(SessionEnd.DEADLINE)
        self._stop(Cause.DEADLINE, LATE)

    def _expel(self, reason: str) -> None:
        self._end(SessionEnd.CREDENTIAL_ENDED, reason)
        self._stop(Cause.LIMIT, f"{reason}, and so the turn was cut")

    def _watch_idleness(self) -> None:
        seconds = self._engine.sessions.idle_seconds
        if self._turn is not None and self._idle is not None:
            self._idle.cancel()
            self._idle = None
        elif self._turn is None and self._idle is None and seconds != float("inf"):
            self._idle = self._loop.call_later(seconds, self._end, SessionEnd.IDLE)

    def _leave(self, error: BaseException) -> None:
        """Let the session end without its caller: the turn's bill is worked out and recorded all the same."""
        cause, detail = why_left(self._context, error)
        reason = SessionEnd.DEADLINE if cause is Cause.DEADLINE else SessionEnd.CLIENT_CLOSE
        self._engine.sessions.abandon(self._session, cause, detail, reason)

    async def _write(self, message: SessionResponse) -> None:
        async with self._writing:
            await self._send(message)


def _busy() -> Failure:
    message = "another turn is under way: wait for its end, or open the session with QUEUE"
    return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)


def _over() -> Failure:
    message = "a turn failed, and the session was to end with that"
    return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
