"""A session for asyncio: one RPC, read by one task, whose messages go to the turns that they are about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import grpc
import grpc.aio

from . import _wire
from ._lost import CallRecord, error_without_outcome
from ._requests import CompleteOptions, Prompt, complete_request, seconds_to_duration
from ._results import totals_from, turn_end_from
from ._status import error_at_end, error_from_rpc, error_from_status
from ._stream import StreamProgress
from .enums import BusyPolicy
from .events import StreamEvent, TextDelta
from .sessions import SessionEnd, SessionTotals, TurnEnd
from .v1.model_service_pb2 import (
    CompleteRequest,
    SessionRequest,
    SessionResponse,
    SessionTurn,
    StreamCompleteResponse,
)
from .v1.session_pb2 import SessionClose, SessionOpen, SessionOpened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .enums import SessionTransport
    from .errors import ModelmeterError
    from .results import Completion

CLOSING_SECONDS = 30.0
"""How long leaving a session waits for the end that the server tells, turns under way included."""

_LIVE: tuple[Literal["started", "text", "reasoning", "tool_call", "usage"], ...] = (
    "started",
    "text",
    "reasoning",
    "tool_call",
    "usage",
)


class SessionOptions(TypedDict, total=False):
    """What a session is opened with beside the model. Everything is optional."""

    conversation_id: str
    """The caller's name for the conversation; goes into the server's events and logs."""
    session_id: str
    """The caller's id for the session. Left out: the server makes one."""
    when_busy: BusyPolicy | str | None
    """What becomes of a turn that is sent while another one is under way. Left out: it is refused."""
    keep_transcript: bool
    """Let the server keep what is said, so that it can send a turn with its full input when the provider has
    forgotten the conversation."""
    end_on_failure: bool
    """End the session when a turn fails."""


def session_opening(
    model: str,
    *,
    conversation_id: str = "",
    session_id: str = "",
    when_busy: BusyPolicy | str | None = None,
    keep_transcript: bool = False,
    end_on_failure: bool = False,
) -> SessionOpen:
    """Return what opens a session. Raises ValueError for an unknown word, TypeError for an unknown option."""
    return SessionOpen(
        model=model,
        conversation_id=conversation_id,
        session_id=session_id,
        when_busy=_wire.BUSY_POLICY.number(when_busy),
        keep_transcript=keep_transcript,
        end_on_failure=end_on_failure,
    )


class AsyncSessionTurn(StreamProgress):
    """The events of one turn, in order; iterate it once. Comes from `AsyncSession.turn`.

    Iterating raises what `AsyncClient.complete` raises; the session goes on.
    """

    def __init__(self, record: CallRecord) -> None:
        super().__init__(record)
        self._inbox: asyncio.Queue[SessionResponse | ModelmeterError] = asyncio.Queue()
        self._end: TurnEnd | None = None
        self._is_over = False

    @property
    def end(self) -> TurnEnd:
        """How the turn ended, once it has. Raises RuntimeError before that, and when the server never said."""
        if self._end is None:
            message = "the turn has not been read to its end, or nobody told it"
            raise RuntimeError(message)
        return self._end

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._is_over:
            message = await self._inbox.get()
            if not isinstance(message, SessionResponse):
                self._is_over = True
                raise message
            event = self._concluded(message) if message.HasField("turn_ended") else self._live(message)
            if event is not None:
                return event
        raise StopAsyncIteration

    async def result(self) -> Completion:
        """Read the turn to its end and return the completion."""
        async for _ in self:
            pass
        return self.completion

    @property
    def text(self) -> AsyncIterator[str]:
        """The pieces of the answer's text, in order; reads the turn to its end."""
        return (event.text async for event in self if isinstance(event, TextDelta))

    def _live(self, message: SessionResponse) -> StreamEvent | None:
        told = StreamCompleteResponse()
        for name in _LIVE:
            if message.HasField(name):
                getattr(told, name).CopyFrom(getattr(message, name))
        return self._event(told)

    def _concluded(self, message: SessionResponse) -> StreamEvent:
        self._is_over = True
        self._end = turn_end_from(message.turn_ended)
        told = StreamCompleteResponse()
        if message.turn_ended.HasField("completion"):
            told.completion.CopyFrom(message.turn_ended.completion)
        elif message.turn_ended.HasField("failed"):
            told.failed.CopyFrom(message.turn_ended.failed)
        event = self._event(told)
        if event is None:
            raise error_from_status(message.turn_ended.error, self._record)
        return event

    # What the session hands over

    def _hand(self, message: SessionResponse | ModelmeterError) -> None:
        self._inbox.put_nowait(message)


class AsyncSession:
    """A conversation of many turns. Comes from `AsyncClient.session`."""

    def __init__(
        self, call: grpc.aio.StreamStreamCall[SessionRequest, SessionResponse], opened: SessionOpened
    ) -> None:
        self.session_id = opened.session_id
        """The session's id."""
        self.model = opened.model
        """The model as the caller asked for it."""
        self.transport: SessionTransport = _wire.SESSION_TRANSPORT.member(opened.transport)
        """How turns reach the provider."""
        self._call = call
        self._turns: dict[str, AsyncSessionTurn] = {}
        self._end: SessionEnd | None = None
        self._totals: SessionTotals | None = None
        self._failure: ModelmeterError | None = None
        self._is_closing = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def ended(self) -> SessionEnd | None:
        """Why the session is over and what it came to; None as long as the server has not said."""
        return self._end

    @property
    def totals(self) -> SessionTotals | None:
        """What all turns so far came to; None before the first has ended."""
        return self._totals

    async def turn(
        self,
        prompt: Prompt | CompleteRequest | None = None,
        *,
        previous_response_id: str | None = None,
        generate: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[CompleteOptions],
    ) -> AsyncSessionTurn:
        """Send a turn and return its events to come.

        Takes what is new in this turn, with the options of `complete`, or a ready `CompleteRequest`.
        `previous_response_id` left out goes on from where the session is, empty begins anew. `timeout` in seconds is
        for this turn. Raises a `ModelmeterError` once the session is over.
        """
        request = self._request(prompt, options)
        record = CallRecord(request.call_id, self.model)
        if self._reading.done() or self._is_closing:
            raise self._failure or error_without_outcome(
                record, grpc.StatusCode.UNAVAILABLE, "the session is over"
            )
        turn = AsyncSessionTurn(record)
        self._turns[request.call_id] = turn
        message = SessionTurn(
            request=request,
            previous_response_id=previous_response_id,
            generate=generate,
            timeout=None if timeout is None else seconds_to_duration(timeout, "timeout"),
        )
        try:
            await self._call.write(SessionRequest(turn=message))
        except (grpc.RpcError, asyncio.InvalidStateError):
            await asyncio.wait((self._reading,))  # which tells every turn what is known
        return turn

    async def ask(
        self,
        prompt: Prompt | CompleteRequest | None = None,
        *,
        previous_response_id: str | None = None,
        generate: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[CompleteOptions],
    ) -> Completion:
        """Send a turn and return its completion. Takes what `turn` takes, raises what `complete` raises."""
        turn = await self.turn(
            prompt,
            previous_response_id=previous_response_id,
            generate=generate,
            timeout=timeout,
            **options,
        )
        return await turn.result()

    async def close(self, reason: str = "", *, cut: bool = False) -> SessionEnd | None:
        """Take no further turn, wait for the end, and return it; None when the server never told one.

        `cut` ends the turn under way instead of waiting for it.
        """
        if not self._is_closing:
            self._is_closing = True
            try:
                await self._call.write(SessionRequest(close=SessionClose(reason=reason, cut=cut)))
                await self._call.done_writing()
            except (grpc.RpcError, asyncio.InvalidStateError):
                pass  # it is over already
        await asyncio.wait((self._reading,), timeout=CLOSING_SECONDS)
        return self._end

    def cancel(self) -> None:
        """End the session at once, from any task; turns under way raise `LostContactError` with cause CALLER."""
        for turn in self._turns.values():
            turn._record.cancelled = True
        self._call.cancel()

    def _request(self, prompt: Prompt | CompleteRequest | None, options: CompleteOptions) -> CompleteRequest:
        if isinstance(prompt, CompleteRequest):
            return complete_request(prompt, None, **options)
        return complete_request(self.model, prompt, **options)

    # Reading

    async def _read(self) -> None:
        """Hand every message to its turn; at the end tell the turns that are still open what is known."""
        try:
            while True:
                message = await self._call.read()
                if not isinstance(message, SessionResponse):
                    # Also when the RPC failed: read() has no error of its own then.
                    await self._look_at_end()
                    return
                self._take(message)
        except grpc.RpcError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(None)

    async def _look_at_end(self) -> None:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            self._fail(None)
            return
        self._fail(await _error_of(self._call, code))

    def _take(self, message: SessionResponse) -> None:
        turn = self._turns.get(message.call_id)
        if message.HasField("ended"):
            ended = message.ended
            self._totals = totals_from(ended.totals)
            reason = _wire.SESSION_END_REASON.member(ended.reason)
            self._end = SessionEnd(ended.session_id, reason, ended.detail, self._totals)
        elif turn is not None:
            if message.HasField("turn_ended"):
                if message.turn_ended.turn:
                    self._totals = totals_from(message.turn_ended.totals)
                del self._turns[message.call_id]
            turn._hand(message)

    def _fail(self, error: grpc.RpcError | None) -> None:
        if error is not None:
            self._failure = error_from_rpc(error, CallRecord(model=self.model))
        turns, self._turns = self._turns, {}
        for turn in turns.values():
            record = turn._record
            turn._hand(error_at_end(record) if error is None else error_from_rpc(error, record))


async def open_session(
    call: grpc.aio.StreamStreamCall[SessionRequest, SessionResponse], opening: SessionOpen
) -> AsyncSession:
    """Open a session on a call that has begun. Raises a `ModelmeterError` when the server does not."""
    record = CallRecord(model=opening.model)
    try:
        await call.write(SessionRequest(open=opening))
        message = await call.read()
    except grpc.RpcError as error:
        raise error_from_rpc(error, record) from error
    except asyncio.InvalidStateError:
        message = grpc.aio.EOF
    except asyncio.CancelledError:
        call.cancel()
        raise
    if isinstance(message, SessionResponse) and message.HasField("opened"):
        return AsyncSession(call, message.opened)
    code = await call.code()
    if code is grpc.StatusCode.OK:
        raise error_at_end(record)
    raise error_from_rpc(await _error_of(call, code), record)


async def _error_of(
    call: grpc.aio.StreamStreamCall[SessionRequest, SessionResponse], code: grpc.StatusCode
) -> grpc.aio.AioRpcError:
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    return grpc.aio.AioRpcError(code, initial, trailing, details=await call.details())
