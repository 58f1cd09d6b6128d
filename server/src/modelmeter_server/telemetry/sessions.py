"""What the log tells of sessions: how each began, each turn's end, and the end. Never a prompt, an answer or a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core.session_events import SessionEnded, SessionStarted, TurnCompleted
from modelmeter_server.core.text import cut_utf8

from .calls import NAME_BYTES
from .log import get_logger

if TYPE_CHECKING:
    from modelmeter_server.core.session_events import SessionEvent

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
