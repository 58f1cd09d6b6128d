"""What is told of sessions, to the log and to those who watch. Never a prompt, an answer or a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core import events
from modelmeter_server.core.events import Severity
from modelmeter_server.core.session_events import SessionEnded, SessionStarted, TurnCompleted, TurnStarted
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.core.usage import Usage

from .calls import NAME_BYTES
from .happenings import Belonging, Happenings
from .log import get_logger

if TYPE_CHECKING:
    from modelmeter_server.core.session_events import Bill, SessionEvent

# The others say what these say, or hold what a hosted tool was asked and gave.
_LOGGED: Final = (SessionStarted, TurnCompleted, SessionEnded)

_log = get_logger(__name__)


def log_event(event: SessionEvent) -> None:
    """Leave a line for an event, if it is one for the log."""
    if isinstance(event, _LOGGED):
        members = msgspec.to_builtins(event)
        kind = members.pop("kind")
        _log.info(kind, **{name: _short(value) for name, value in members.items()})


def _short(value: object) -> object:
    return cut_utf8(value, NAME_BYTES) if isinstance(value, str) else value


class SessionWatch:
    """One session as those who watch see it. The hosted tools of its turns are told by the turns' calls."""

    def __init__(
        self, happenings: Happenings, *, tenant: str, conversation_id: str = "", emulated: bool = False
    ) -> None:
        """Begin where the session is opened: its events belong to the trace of that RPC."""
        self._happenings = happenings
        self._emulated = emulated
        self._to = Belonging(tenant, conversation_id=conversation_id)

    def tell(self, event: SessionEvent, bill: Bill | None = None) -> None:
        """Tell an event if anybody wants it; `bill` is that of the turn that it ends. Never raises."""
        if not self._happenings.is_wanted:
            return
        try:
            match event:
                case SessionStarted():
                    self._started(event)
                case TurnStarted():
                    self._turn_started(event)
                case TurnCompleted():
                    self._turn_completed(event, bill)
                case SessionEnded():
                    self._ended(event)
        except Exception:  # noqa: BLE001 - no session may fail because somebody looks at it
            _log.exception("a session could not be observed", session_id=_short(event.session_id))

    def _started(self, event: SessionStarted) -> None:
        clean = self._happenings.clean
        self._happenings.tell(
            events.SessionStarted,
            self._to,
            model_asked=clean(event.model),
            session_id=clean(event.session_id),
            emulated=self._emulated,
        )

    def _turn_started(self, event: TurnStarted) -> None:
        clean = self._happenings.clean
        self._happenings.tell(
            events.TurnStarted,
            self._to.with_call(event.call_id),
            session_id=clean(event.session_id),
            turn=event.turn,
            previous_response_id=clean(event.previous_response_id),
            connection=event.connection,
        )

    def _turn_completed(self, event: TurnCompleted, bill: Bill | None) -> None:
        clean = self._happenings.clean
        self._happenings.tell(
            events.TurnCompleted,
            self._to.with_call(event.call_id),
            Severity.INFO if event.status in events.GOOD_STATUSES else Severity.WARNING,
            session_id=clean(event.session_id),
            turn=event.turn,
            provider_response_id=clean(event.response_id),
            previous_response_id=clean(event.previous_response_id),
            connection=event.connection,
            status=clean(event.status),
            reason=clean(event.reason),
            usage=_counted(event) if bill is None else bill.usage,
            certainty=event.certainty,
            cost=None if bill is None else bill.cost,
            hosted_tool_calls=event.hosted_tool_calls,
            total_time=event.duration_ms / 1_000,
            replayed=event.replayed,
        )

    def _ended(self, event: SessionEnded) -> None:
        clean = self._happenings.clean
        self._happenings.tell(
            events.SessionEnded,
            self._to,
            Severity.WARNING if event.reason in events.ILL_ENDS else Severity.INFO,
            session_id=clean(event.session_id),
            reason=clean(event.reason),
            turns=event.turns,
            turns_completed=event.turns_completed,
            usage=_counted(event),
            certainty=event.certainty,
            cost_nano_units={clean(currency): told for currency, told in event.cost_nano_units.items()},
            cost_certainty=event.cost_certainty,
            hosted_tool_calls=event.hosted_tool_calls,
        )


def _counted(event: TurnCompleted | SessionEnded) -> Usage | None:
    """Return the figures of an event; `None` where nobody told any, so that unknown is not zero."""
    usage = Usage(
        input_tokens=event.tokens_in,
        output_tokens=event.tokens_out,
        cache_read_tokens=event.cached_tokens_in,
        reasoning_tokens=event.reasoning_tokens,
    )
    return None if usage == Usage() else usage
