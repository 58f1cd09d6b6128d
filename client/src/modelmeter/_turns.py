"""What the sync and the async session have in common: what is sent, and what becomes of what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from . import _wire
from ._lost import CallRecord, error_of_unsent_turn
from ._requests import CompleteOptions, Prompt, complete_request, seconds_to_duration
from ._results import totals_from, turn_end_from
from ._status import error_at_end, error_from_rpc, error_from_status, error_of_turn
from ._stream import StreamProgress
from .enums import BusyPolicy, SessionEndReason
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
    from collections.abc import Callable

    import grpc

    from .enums import SessionTransport
    from .errors import ModelmeterError
    from .events import StreamEvent

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


class TurnProgress(StreamProgress):
    """How far a turn has come."""

    def __init__(self, record: CallRecord, hand: Callable[[SessionResponse | ModelmeterError], None]) -> None:
        super().__init__(record)
        self._hand = hand
        """Takes what comes for the turn, and wakes whoever reads it."""
        self._end: TurnEnd | None = None
        self._is_over = False

    @property
    def end(self) -> TurnEnd:
        """How the turn ended, once it has. Raises RuntimeError before that, and when the server never said."""
        if self._end is None:
            message = "the turn has not been read to its end, or nobody told it"
            raise RuntimeError(message)
        return self._end

    def _take(self, message: SessionResponse | ModelmeterError) -> StreamEvent | None:
        """Return the event to hand out, `None` to read on; raise what the turn failed with."""
        if not isinstance(message, SessionResponse):
            self._is_over = True
            raise message
        return self._concluded(message) if message.HasField("turn_ended") else self._live(message)

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


class SessionProgress:
    """How far a session has come, and the turns that are still read."""

    def __init__(self, opened: SessionOpened) -> None:
        self.session_id = opened.session_id
        """The session's id."""
        self.model = opened.model
        """The model as the caller asked for it."""
        self.transport: SessionTransport = _wire.SESSION_TRANSPORT.member(opened.transport)
        """How turns reach the provider."""
        self._turns: dict[str, TurnProgress] = {}
        self._end: SessionEnd | None = None
        self._totals: SessionTotals | None = None
        self._failure: ModelmeterError | None = None

    @property
    def ended(self) -> SessionEnd | None:
        """Why the session is over and what it came to; None as long as the server has not said."""
        return self._end

    @property
    def totals(self) -> SessionTotals | None:
        """What all turns so far came to; None before the first has ended."""
        return self._totals

    def _request(self, prompt: Prompt | CompleteRequest | None, options: CompleteOptions) -> CompleteRequest:
        if isinstance(prompt, CompleteRequest):
            return complete_request(prompt, None, **options)
        return complete_request(self.model, prompt, **options)

    def _route(self, message: SessionResponse) -> None:
        """Hand a message to the turn that it is about."""
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

    @property
    def _reason(self) -> SessionEndReason:
        return SessionEndReason.UNSPECIFIED if self._end is None else self._end.reason

    def _fail(self, error: grpc.RpcError | None) -> None:
        """Tell the turns that are still open what is known, at the end of the RPC."""
        if error is not None:
            self._failure = error_from_rpc(error, CallRecord(model=self.model))
        turns, self._turns = self._turns, {}
        for turn in turns.values():
            turn._hand(self._failure_of(turn._record, error))

    def _failure_of(self, record: CallRecord, error: grpc.RpcError | None) -> ModelmeterError:
        has_begun = record.started or record.generated or record.snapshot is not None or record.cancelled
        if self._end is not None and not has_begun:
            # Every turn that the server took has ended before the session does.
            return error_of_unsent_turn(record, self._end.reason)
        return error_at_end(record) if error is None else error_of_turn(error, record)


def turn_message(
    request: CompleteRequest,
    previous_response_id: str | None,
    generate: bool | None,
    timeout: float | None,
) -> SessionRequest:
    """Return what sends a turn. Raises ValueError for a timeout that no request can hold."""
    turn = SessionTurn(
        request=request,
        previous_response_id=previous_response_id,
        generate=generate,
        timeout=None if timeout is None else seconds_to_duration(timeout, "timeout"),
    )
    return SessionRequest(turn=turn)


def close_message(reason: str, *, cut: bool) -> SessionRequest:
    """Return what closes a session."""
    return SessionRequest(close=SessionClose(reason=reason, cut=cut))
