"""A session for asyncio: one RPC, read by one task, whose messages go to the turns that they are about."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Unpack

import grpc
import grpc.aio

from ._call_end import CallEnd
from ._lost import CallRecord, error_of_unsent_turn
from ._status import error_at_end, error_from_rpc
from ._turns import CLOSING_SECONDS, SessionProgress, TurnProgress, close_message, turn_message
from .events import StreamEvent, TextDelta
from .v1.model_service_pb2 import CompleteRequest, SessionRequest, SessionResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ._requests import CompleteOptions, Prompt
    from .errors import ModelmeterError
    from .results import Completion
    from .sessions import SessionEnd
    from .v1.session_pb2 import SessionOpen, SessionOpened

    Call = grpc.aio.StreamStreamCall[SessionRequest, SessionResponse]
    Messages = AsyncIterator[SessionResponse]


class AsyncSessionTurn(TurnProgress):
    """The events of one turn, in order; iterate it once. Comes from `AsyncSession.turn`.

    Iterating raises what `AsyncClient.complete` raises; the session goes on.
    """

    def __init__(self, record: CallRecord) -> None:
        self._inbox: asyncio.Queue[SessionResponse | ModelmeterError] = asyncio.Queue()
        super().__init__(record, self._inbox.put_nowait)

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._is_over:
            event = self._take(await self._inbox.get())
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


class AsyncSession(SessionProgress):
    """A conversation of many turns. Comes from `AsyncClient.session`."""

    def __init__(self, call: Call, messages: Messages, end: CallEnd, opened: SessionOpened) -> None:
        super().__init__(opened)
        self._call = call
        self._messages = messages
        self._end_of_call = end
        self._is_closing = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

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
        for this turn. Raises a `ModelmeterError` once the session is over; where it ended in good order this is
        `DrainingError` or `UnreachableError`, and another one may be opened.
        """
        request = self._request(prompt, options)
        message = turn_message(request, previous_response_id, generate, timeout)
        record = CallRecord(request.call_id, self.model)
        if self._reading.done() or self._is_closing:
            raise self._failure or error_of_unsent_turn(record, self._reason)
        turn = AsyncSessionTurn(record)
        self._turns[request.call_id] = turn
        if not await self._write(message):
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
            if await self._write(close_message(reason, cut=cut)):
                await self._call.done_writing()
        await asyncio.wait((self._reading,), timeout=CLOSING_SECONDS)
        return self._end

    def cancel(self) -> None:
        """End the session at once, from any task; turns under way raise `LostContactError` with cause CALLER."""
        for turn in self._turns.values():
            turn._record.cancelled = True
        self._is_closing = True
        self._call.cancel()

    async def _write(self, message: SessionRequest) -> bool:
        """Send a message; False when the RPC is over."""
        try:
            await self._call.write(message)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return False
        except asyncio.CancelledError:
            # grpc.aio says of an RPC that was cancelled that its caller was.
            if _is_cancelled_itself():
                raise
            return False
        return True

    async def _read(self) -> None:
        """Hand every message to its turn; at the end tell the turns that are still open what is known."""
        try:
            with contextlib.suppress(grpc.RpcError):  # it comes again as the end of the call
                async for message in self._messages:
                    self._route(message)
            self._fail(await self._end_of_call.error(self._call))
        except asyncio.CancelledError:
            self._fail(None if _is_cancelled_itself() else await self._end_of_call.error(self._call))


async def open_session(call: Call, opening: SessionOpen) -> AsyncSession:
    """Open a session on a call that has begun. Raises a `ModelmeterError` when the server does not."""
    record = CallRecord(model=opening.model)
    end, messages = CallEnd(call), aiter(call)
    message: SessionResponse | None = None
    try:
        # Who is refused unread cannot write, and says so by its status.
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await call.write(SessionRequest(open=opening))
        with contextlib.suppress(grpc.RpcError):
            message = await anext(messages, None)
        if message is not None and message.HasField("opened"):
            return AsyncSession(call, messages, end, message.opened)
        error = await end.error(call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    if error is None:
        raise error_at_end(record)
    raise error_from_rpc(error, record) from error


def _is_cancelled_itself() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
