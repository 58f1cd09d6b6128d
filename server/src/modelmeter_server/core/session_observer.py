"""The state machine that watches a Responses session and tells what happens to it. Pure: no clock, no socket.

Every `observe_*` method takes what just happened and the time, in seconds of any steady clock, and returns the events
that follow from it. It works beside any socket: whoever wraps one tells it of a send *before* sending, of a send that
failed, of every frame read, of a transport that broke, and of the close. Such an observer ends a turn by itself. One
made with `awaits_bill` ends a turn when it is told the bill, so that the events and the books say the same.

    send ──► (session_started) turn_started ──► frames ... ──► turn_completed ──► close ──► session_ended
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .accumulators.responses_tools import hosted_tools
from .counters import counter
from .events import Payload
from .json_text import NotJson, loads_event
from .outcomes import Certainty
from .redaction import truncated, without_keys
from .session_events import (
    Bill,
    HostedToolCompleted,
    HostedToolInvoked,
    SessionEnded,
    SessionEvent,
    SessionStarted,
    SessionTotals,
    TurnCompleted,
    TurnStarted,
)
from .session_frames import TERMINAL, CurrentResponse, Frame, generates, read_frame
from .usage import Usage
from .usage_meter import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .hosted import HostedTool

PAYLOAD_BYTES: Final = 4_096
"""UTF-8 bytes of a hosted tool's arguments, and of its result, that an event holds; cut on a character."""


class _Turn:
    """The turn under way."""

    __slots__ = (
        "call_id",
        "connection",
        "failed",
        "generated",
        "hosted",
        "number",
        "previous",
        "seen",
        "since",
        "terminal",
        "until",
        "usage",
    )

    def __init__(self, number: int, call_id: str, previous: str | None, since: float) -> None:
        self.number = number
        self.call_id = call_id
        self.previous = previous
        self.since = since
        self.connection = 0
        self.seen = ""
        """The last status that was told; `in_progress` is one of them and never the turn's own (R-W4)."""
        self.terminal = ""
        self.until: float | None = None
        """When that was told: nothing more comes, however late the next send or the close is."""
        self.failed = ""
        """Why it cannot end well any more; does not undo a terminal status."""
        self.usage: Usage | None = None
        self.hosted = 0
        self.generated = False


class SessionObserver:
    """Watch one session."""

    def __init__(
        self,
        *,
        session_id: str,
        model: str,
        conversation_id: str = "",
        awaits_bill: bool = False,
        redact: Callable[[str, str], str] = lambda _tool, text: text,
        payloads: bool = True,
    ) -> None:
        """Begin before the first turn.

        `redact` gets a hosted tool's name and payload before that is cut; keys and bearer tokens are taken out of what
        it returns in any case. Without `payloads`, uses of tools are told and not what was asked or given.
        """
        self.session_id = session_id
        self.model = model
        self.conversation_id = conversation_id
        self.started = False
        """A turn was sent, or tried to be."""
        self.ended = False
        self.totals = SessionTotals()
        self._awaits_bill = awaits_bill
        self._redact = redact
        self._payloads = payloads
        self._response = CurrentResponse()
        self._turn: _Turn | None = None
        self._turns = 0

    def __repr__(self) -> str:
        return (
            f"SessionObserver(session_id={self.session_id!r}, model={self.model!r}, "
            f"started={self.started}, ended={self.ended}, turns={self._turns})"
        )

    @property
    def in_turn(self) -> bool:
        """Say whether a turn is under way."""
        return self._turn is not None

    @property
    def response_id(self) -> str:
        """Return the id of the response that the turn is answered by; empty as long as nobody told it."""
        return self._response.id

    @property
    def last_status(self) -> str:
        """Return the status that was last told for the turn under way, on the way or terminal."""
        return "" if self._turn is None else self._turn.seen

    # What happens

    def observe_send(
        self,
        previous_response_id: str | None = None,
        *,
        at: float,
        call_id: str = "",
        connection: int = 0,
    ) -> list[SessionEvent]:
        """A turn is about to be sent. One that is still open is superseded."""
        if self.ended:
            return []
        events = self._end_turn(at, "superseded")
        if not self.started:
            self.started = True
            events.append(SessionStarted(**self._names, model=self.model))
        self._turns += 1
        self._turn = _Turn(self._turns, call_id, previous_response_id, at)
        self._turn.connection = connection
        self._response.begin(previous_response_id)
        started = TurnStarted(
            **self._names,
            turn=self._turns,
            call_id=call_id,
            previous_response_id=previous_response_id,
            connection=connection,
        )
        return [*events, started]

    def observe_connection(self, connection: int) -> None:
        """The turn goes over this socket; what follows says so."""
        if self._turn is not None:
            self._turn.connection = connection

    def observe_resend(self) -> None:
        """The turn under way is sent once more, with everything: what came of the first sending is no part of it."""
        turn = self._turn
        if turn is None:
            return
        self._turn = _Turn(turn.number, turn.call_id, None, turn.since)
        self._response.begin(turn.previous)

    def observe_send_error(self, *, at: float) -> list[SessionEvent]:
        """The turn could not be sent."""
        return self._fail("send_error", at)

    def observe_frame(self, data: bytes, *, at: float) -> list[SessionEvent]:
        """A frame was read; frames between turns, of other responses and without sense are nothing."""
        if self._turn is None:
            return []
        try:
            frame = read_frame(data)
        except NotJson:
            return []
        return self._take(self._turn, frame, data, at) if self._response.admits(frame) else []

    def observe_transport_error(self, *, at: float) -> list[SessionEvent]:
        """The socket broke: the turn is over, and not well unless its end had come (R-W4)."""
        return self._fail("transport_error", at)

    def observe_bill(
        self, bill: Bill, *, at: float, status: str = "", reason: str | None = None
    ) -> list[SessionEvent]:
        """The turn's bill is known, which ends it. `status` stands in where the provider told no terminal one."""
        return self._end_turn(at, reason, bill, status)

    def observe_close(self, reason: str, *, at: float) -> list[SessionEvent]:
        """The session is over. Nothing follows, and nothing comes of a second close or before the first turn."""
        events = self._end_turn(at, "closed")
        if not self.started or self.ended:
            return events
        self.ended = True
        totals = self.totals
        ended = SessionEnded(
            **self._names,
            reason=reason,
            turns=totals.turns,
            turns_completed=totals.completed,
            tokens_in=totals.tokens_in,
            tokens_out=totals.tokens_out,
            cached_tokens_in=totals.cached_tokens_in,
            reasoning_tokens=totals.reasoning_tokens,
            certainty=totals.certainty,
            cost_nano_units=dict(totals.nano_units),
            cost_certainty=totals.cost_certainty,
            hosted_tool_calls=totals.hosted_tool_calls,
        )
        return [*events, ended]

    # Frames

    def _take(self, turn: _Turn, frame: Frame, data: bytes, at: float) -> list[SessionEvent]:
        if frame.type == "error":
            return self._fail("error", at)
        turn.generated = turn.generated or generates(frame.type)
        status = TERMINAL.get(frame.type)
        if status is None:
            turn.seen = frame.response.status or turn.seen
            return self._take_response(turn, data, with_tools=False) if frame.response.id else []
        is_repeat, is_done = bool(turn.terminal), frame.type == "response.done"
        told = frame.response.status
        turn.terminal = turn.seen = told if is_done and told else turn.terminal or status
        turn.until = at if turn.until is None else turn.until
        events = self._take_response(turn, data, with_tools=not is_repeat)
        return [*events, *self._end_turn(at)] if is_done and not self._awaits_bill else events

    def _take_response(self, turn: _Turn, data: bytes, *, with_tools: bool) -> list[SessionEvent]:
        try:
            document = loads_event(data)
        except NotJson:
            return []
        response = document.get("response") if isinstance(document, dict) else None
        if not isinstance(response, dict):
            return []
        turn.usage = _usage(response.get("usage")) or turn.usage
        output = response.get("output")
        if not with_tools or not isinstance(output, list):
            return []
        events = list(self._hosted(output))
        turn.hosted = len(events) // 2
        return events

    def _hosted(self, output: list[Any]) -> Iterator[SessionEvent]:
        for index, item in enumerate(output):
            for tool in hosted_tools([item]) if isinstance(item, dict) else ():
                name = tool.name or tool.type
                asked = self._payload(name, tool.arguments_json, tool)
                gave = self._payload(name, tool.result_json or tool.error, tool)
                shared: dict[str, Any] = {
                    **self._names,
                    "tool_name": tool.type,
                    "call_id": tool.id or f"{tool.type}-{index}",
                    "provider_call_id": tool.id or None,
                    "response_id": self._response.id or None,
                }
                yield HostedToolInvoked(
                    **shared,
                    args_json=asked.text,
                    truncated=asked.truncated,
                    original_bytes=asked.original_bytes,
                )
                yield HostedToolCompleted(
                    **shared,
                    status=tool.status or None,
                    failed=bool(tool.error),
                    result=gave.text,
                    truncated=gave.truncated,
                    original_bytes=gave.original_bytes,
                )

    def _payload(self, name: str, text: str, tool: HostedTool) -> Payload:
        if not self._payloads:
            return Payload(text="")
        if not text and tool.omitted:
            return Payload(text="", truncated=True)
        return truncated(without_keys(self._redact(name, text)), PAYLOAD_BYTES)

    # The end of a turn

    def _fail(self, status: str, at: float) -> list[SessionEvent]:
        if self._turn is None:
            return []
        self._turn.failed = self._turn.failed or status
        return [] if self._awaits_bill else self._end_turn(at)

    def _end_turn(
        self, at: float, reason: str | None = None, bill: Bill | None = None, status: str = ""
    ) -> list[SessionEvent]:
        turn, self._turn = self._turn, None
        if turn is None:
            return []
        ended_as, why = _ending(turn, status, reason)
        ended_at = at if bill is not None or turn.until is None else turn.until
        bill = bill or Bill(usage=turn.usage, certainty=_certainty(turn))
        hosted = max(turn.hosted, bill.hosted_tool_calls)
        self.totals.add(ended_as, bill, hosted)
        usage = bill.usage or Usage()
        completed = TurnCompleted(
            **self._names,
            turn=turn.number,
            call_id=turn.call_id,
            response_id=self._response.id or bill.response_id,
            previous_response_id=turn.previous,
            connection=turn.connection,
            status=ended_as,
            reason=why,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            cached_tokens_in=usage.cache_read_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            certainty=bill.certainty,
            cost_nano_units=None if bill.cost is None else bill.cost.nano_units,
            currency=None if bill.cost is None else bill.cost.currency,
            hosted_tool_calls=hosted,
            replayed=bill.replayed,
            duration_ms=max(0, round((ended_at - turn.since) * 1000)),
        )
        return [completed]

    @property
    def _names(self) -> dict[str, str]:
        return {"session_id": self.session_id, "conversation_id": self.conversation_id}


def _ending(turn: _Turn, status: str, reason: str | None) -> tuple[str, str | None]:
    """Return how a turn ended and why: a terminal status stands, and nothing else makes it a good one (R-W4)."""
    if turn.terminal:
        return turn.terminal, None
    if turn.failed == "send_error":
        return "send_error", None
    if turn.failed:
        why = reason if turn.failed == "error" and reason not in ("superseded", "closed") else turn.failed
        return "error", None if why == "error" else why
    return status or "error", reason


def _certainty(turn: _Turn) -> Certainty:
    if turn.usage is not None and turn.usage.is_seen:
        return Certainty.EXACT if turn.terminal else Certainty.AT_LEAST
    return Certainty.NONE if turn.failed == "send_error" and not turn.generated else Certainty.UNKNOWN


def _usage(told: object) -> Usage | None:
    if not isinstance(told, dict):
        return None
    usage = Usage(
        input_tokens=counter(told.get("input_tokens")),
        output_tokens=counter(told.get("output_tokens")),
        cache_read_tokens=part_of(told, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=part_of(told, "output_tokens_details", "reasoning_tokens"),
    )
    return None if usage.input_tokens is None and usage.output_tokens is None else usage


def as_json(event: SessionEvent) -> bytes:
    """Return an event as one flat JSON object."""
    return msgspec.json.encode(event)
