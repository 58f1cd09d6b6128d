"""How the turns of a session end, and the session itself."""

from __future__ import annotations

from dataclasses import dataclass

from .enums import Certainty, SessionEndReason
from .results import Usage


@dataclass(frozen=True)
class SessionTotals:
    """What the turns of a session came to. A sum with an unknown part is a lower bound."""

    turns: int
    """Turns that have ended."""
    turns_completed: int
    """Turns with the status `completed`."""
    usage: Usage
    """The tokens of all turns."""
    certainty: Certainty
    """How far the tokens can be trusted."""
    cost_nano_units: dict[str, int]
    """The cost of all turns in nano units, by currency."""
    cost_certainty: Certainty
    """How far the cost can be trusted."""


@dataclass(frozen=True)
class TurnEnd:
    """How a turn of a session ended, beside its completion or its error."""

    turn: int
    """Its number in the session, from 1; 0 for one that was refused unbegun."""
    status: str
    """The provider's terminal status; `error` when it told none, `send_error` when the turn was not sent whole."""
    previous_response_id: str | None
    """The response that it went on from."""
    connection: int
    """The session's socket that carried it, from 1; 0 for none."""
    next_previous_response_id: str | None
    """The response that the next turn goes on from."""
    totals: SessionTotals
    """What all turns so far came to."""


@dataclass(frozen=True)
class SessionEnd:
    """Why a session is over, and what it came to."""

    session_id: str
    """The session's id."""
    reason: SessionEndReason
    """Why it ended."""
    detail: str
    """The caller's own words, when it was closed with some."""
    totals: SessionTotals
    """What all turns came to."""
