"""A session for threads: one RPC, read by one thread, whose messages go to the turns that they are about."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Unpack

import grpc

from ._lost import CallRecord, error_of_unsent_turn
from ._status import error_at_end, error_from_rpc
from ._turns import CLOSING_SECONDS, SessionProgress, TurnProgress, close_message, turn_message
from .events import StreamEvent, TextDelta
from .v1.model_service_pb2 import CompleteRequest, SessionRequest, SessionResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grpc import _CallIterator

    from ._requests import CompleteOptions, Prompt
    from .errors import ModelmeterError
    from .results import Completion
    from .sessions import SessionEnd
    from .v1.session_pb2 import SessionOpen, SessionOpened

    Call = _CallIterator[SessionResponse]
    Outbox = SimpleQueue[SessionRequest | None]


class SessionTurn(TurnProgress):
    """The events of one turn, in order; iterate it once, in any thread. Comes from `Session.turn`.

    Iterating raises what `Client.complete` raises; the session goes on.
    """

    def __init__(self, record: CallRecord) -> None:
        self._inbox: SimpleQueue[SessionResponse | ModelmeterError] = SimpleQueue()
        super().__init__(record, self._inbox.put)

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        while not self._is_over:
            event = self._take(self._inbox.get())
            if event is not None:
                return event
        raise StopIteration

    def result(self) -> Completion:
        """Read the turn to its end and return the completion."""
        for _ in self:
            pass
        return self.completion

    @property
    def text(self) -> Iterator[str]:
        """The pieces of the answer's text, in order; reads the turn to its end."""
        return (event.text for event in self if isinstance(event, TextDelta))


class Session(SessionProgress):
    """A conversation of many turns, for any number of threads. Comes from `Client.session`."""

    def __init__(self, call: Call, outbox: Outbox, opened: SessionOpened) -> None:
        super().__init__(opened)
        self._call = call
        self._outbox = outbox
        self._lock = threading.Lock()
        """Around what decides whether a turn is still heard: its place among the turns, and the end of reading."""
        self._is_closing = False
        self._is_over = False
        self._reading = threading.Thread(target=self._read, name="modelmeter session", daemon=True)
        self._reading.start()

    def turn(
        self,
        prompt: Prompt | CompleteRequest | None = None,
        *,
        previous_response_id: str | None = None,
        generate: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[CompleteOptions],
    ) -> SessionTurn:
        """Send a turn and return its events to come.

        Takes what is new in this turn, with the options of `complete`, or a ready `CompleteRequest`.
        `previous_response_id` left out goes on from where the session is, empty begins anew. `timeout` in seconds is
        for this turn. Raises a `ModelmeterError` once the session is over; where it ended in good order this is
        `DrainingError` or `UnreachableError`, and another one may be opened.
        """
        request = self._request(prompt, options)
        message = turn_message(request, previous_response_id, generate, timeout)
        record = CallRecord(request.call_id, self.model)
        turn = SessionTurn(record)
        with self._lock:
            if self._is_over or self._is_closing:
                raise self._failure or error_of_unsent_turn(record, self._reason)
            self._turns[request.call_id] = turn
            self._outbox.put(message)
        return turn

    def ask(
        self,
        prompt: Prompt | CompleteRequest | None = None,
        *,
        previous_response_id: str | None = None,
        generate: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[CompleteOptions],
    ) -> Completion:
        """Send a turn and return its completion. Takes what `turn` takes, raises what `complete` raises."""
        turn = self.turn(
            prompt,
            previous_response_id=previous_response_id,
            generate=generate,
            timeout=timeout,
            **options,
        )
        return turn.result()

    def close(self, reason: str = "", *, cut: bool = False) -> SessionEnd | None:
        """Take no further turn, wait for the end, and return it; None when the server never told one.

        `cut` ends the turn under way instead of waiting for it.
        """
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._outbox.put(close_message(reason, cut=cut))
                self._outbox.put(None)
        self._reading.join(CLOSING_SECONDS)
        return self._end

    def cancel(self) -> None:
        """End the session at once, from any thread; turns under way raise `LostContactError` with cause CALLER."""
        with self._lock:
            for turn in self._turns.values():
                turn._record.cancelled = True
            if not self._is_closing:
                self._is_closing = True
                self._outbox.put(None)
        self._call.cancel()

    def _read(self) -> None:
        """Hand every message to its turn; at the end tell the turns that are still open what is known."""
        error: grpc.RpcError | None = None
        try:
            for message in self._call:
                with self._lock:
                    self._route(message)
        except grpc.RpcError as raised:
            error = raised
        with self._lock:
            self._is_over = True
            self._fail(error)
        self._outbox.put(None)  # lets the thread go that sends


def open_session(send: Callable[[Iterator[SessionRequest]], Call], opening: SessionOpen) -> Session:
    """Open a session on the call that `send` begins. Raises a `ModelmeterError` when the server does not."""
    outbox: Outbox = SimpleQueue()
    outbox.put(SessionRequest(open=opening))
    call = send(iter(outbox.get, None))
    try:
        first = next(call, None)
        if first is None or not first.HasField("opened"):
            raise error_at_end(CallRecord(model=opening.model))
    except BaseException as error:
        call.cancel()
        outbox.put(None)
        if isinstance(error, grpc.RpcError):
            raise error_from_rpc(error, CallRecord(model=opening.model)) from error
        raise
    return Session(call, outbox, first.opened)
