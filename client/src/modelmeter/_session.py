"""A session for asyncio: one RPC, read by one task, whose messages go to the turns that they are about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

import grpc
import grpc.aio

from ._lost import CallRecord, error_after_session
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

    def __init__(
        self, call: grpc.aio.StreamStreamCall[SessionRequest, SessionResponse], opened: SessionOpened
    ) -> None:
        super().__init__(opened)
        self._call = call
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
        for this turn. Raises a `ModelmeterError` once the session is over, `NotConnectedError` where it ended in
        good order: open another one.
        """
        request = self._request(prompt, options)
        message = turn_message(request, previous_response_id, generate, timeout)
        record = CallRecord(request.call_id, self.model)
        if self._reading.done() or self._is_closing:
            raise self._failure or error_after_session(record)
        turn = AsyncSessionTurn(record)
        self._turns[request.call_id] = turn
        try:
            await self._call.write(message)
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
                await self._call.write(close_message(reason, cut=cut))
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

    async def _read(self) -> None:
        """Hand every message to its turn; at the end tell the turns that are still open what is known."""
        try:
            while True:
                message = await self._call.read()
                if not isinstance(message, SessionResponse):
                    # Also when the RPC failed: read() has no error of its own then.
                    await self._look_at_end()
                    return
                self._route(message)
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
