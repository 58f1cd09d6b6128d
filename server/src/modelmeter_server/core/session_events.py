"""What is told of a session: one kind of event for each thing that happens to it, without any prompt or answer.

Each is a flat JSON object with its `kind`; what nobody told is left out. Kinds and members are only ever added.
"""

from __future__ import annotations

import msgspec

from .counters import saturating_add
from .outcomes import Certainty
from .pricing import Cost
from .usage import Usage


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all kinds have."""

    session_id: str
    conversation_id: str = ""


class SessionStarted(SessionEvent, frozen=True, kw_only=True, tag="response.session_started"):
    """The first turn is about to be sent."""

    model: str


class TurnStarted(SessionEvent, frozen=True, kw_only=True, tag="response.turn_started"):
    """A turn is about to be sent."""

    turn: int
    """From 1."""
    call_id: str = ""
    previous_response_id: str | None = None
    connection: int = 0
    """The session's socket that was open then; 0 for none. What is opened for the turn stands in its completion."""


class HostedToolInvoked(SessionEvent, frozen=True, kw_only=True, tag="tool.hosted_invoked"):
    """A tool of the provider's was used."""

    tool_name: str
    call_id: str
    provider_call_id: str | None = None
    response_id: str | None = None
    args_json: str
    truncated: bool = False
    original_bytes: int = 0
    """UTF-8 bytes before it was cut, after it was redacted; 0 beside `truncated` when it was too long to be kept."""


class HostedToolCompleted(SessionEvent, frozen=True, kw_only=True, tag="tool.hosted_completed"):
    """What that use gave."""

    tool_name: str
    call_id: str
    provider_call_id: str | None = None
    response_id: str | None = None
    status: str | None = None
    failed: bool = False
    """The provider named an error."""
    result: str
    """What the tool gave, or else the error."""
    truncated: bool = False
    original_bytes: int = 0
    """As in `HostedToolInvoked`."""


class TurnCompleted(SessionEvent, frozen=True, kw_only=True, tag="response.turn_completed"):
    """A turn is over, however it ended. Exactly one for each turn that was started."""

    turn: int
    call_id: str = ""
    response_id: str
    """Empty when the provider told none."""
    previous_response_id: str | None = None
    connection: int = 0
    """The session's socket that carried it last, from 1; 0 without one."""
    status: str
    """The provider's terminal status, or `error` or `send_error`; never one that was only on the way (R-W4)."""
    reason: str | None = None
    """Why there is no terminal status: `superseded`, `closed`, `transport_error`, or the kind of the failure."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens_in: int | None = None
    reasoning_tokens: int | None = None
    certainty: Certainty
    cost_nano_units: int | None = None
    currency: str | None = None
    hosted_tool_calls: int = 0
    duration_ms: int
    replayed: bool = False
    """It was answered from the journal or shared: its figures stand in another turn or call, and in no sum here."""


class SessionEnded(SessionEvent, frozen=True, kw_only=True, tag="response.session_ended"):
    """The session is over. The last event, and one only."""

    reason: str
    turns: int
    turns_completed: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens_in: int | None = None
    reasoning_tokens: int | None = None
    certainty: Certainty
    cost_nano_units: dict[str, int] = {}
    """By currency."""
    cost_certainty: Certainty = Certainty.NONE
    hosted_tool_calls: int = 0


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn came to."""

    usage: Usage | None = None
    certainty: Certainty
    cost: Cost | None = None
    response_id: str = ""
    """As an ordinary call told it; a socket's frames tell it themselves."""
    hosted_tool_calls: int = 0
    """As an ordinary call told them; a socket's frames tell them themselves."""
    replayed: bool = False
    """Nothing was bought for this turn."""


class SessionTotals(msgspec.Struct, kw_only=True):
    """What all ended turns of a session came to. A sum with an unknown part is a lower bound and says so."""

    turns: int = 0
    completed: int = 0
    """Turns whose status is `completed`."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens_in: int | None = None
    reasoning_tokens: int | None = None
    hosted_tool_calls: int = 0
    nano_units: dict[str, int] = {}
    """Cost by currency."""
    _certainties: set[Certainty] = set()
    _cost_certainties: set[Certainty] = set()

    def add(self, status: str, bill: Bill, hosted_tool_calls: int = 0) -> None:
        """Add a turn that has ended; one that was replayed is counted and adds nothing else."""
        self.turns += 1
        self.completed += status == "completed"
        if bill.replayed:
            return
        usage = bill.usage or Usage()
        self.hosted_tool_calls += hosted_tool_calls
        self.tokens_in = _sum(self.tokens_in, usage.input_tokens)
        self.tokens_out = _sum(self.tokens_out, usage.output_tokens)
        self.cached_tokens_in = _sum(self.cached_tokens_in, usage.cache_read_tokens)
        self.reasoning_tokens = _sum(self.reasoning_tokens, usage.reasoning_tokens)
        self._certainties.add(bill.certainty)
        if bill.cost is not None:
            currency = bill.cost.currency
            self.nano_units[currency] = saturating_add(self.nano_units.get(currency, 0), bill.cost.nano_units)
            self._cost_certainties.add(bill.cost.certainty)
        elif bill.certainty is not Certainty.NONE:
            self._cost_certainties.add(Certainty.UNKNOWN)

    @property
    def certainty(self) -> Certainty:
        """Say how far the sums of tokens can be trusted."""
        return _weakest(self._certainties)

    @property
    def cost_certainty(self) -> Certainty:
        """Say how far the sums of money can be trusted."""
        return _weakest(self._cost_certainties)


def _sum(so_far: int | None, told: int | None) -> int | None:
    return so_far if told is None else saturating_add(so_far or 0, told)


def _weakest(certainties: set[Certainty]) -> Certainty:
    """Return what a sum of such figures is: something known and something unknown is a lower bound."""
    told = certainties - {Certainty.NONE}
    if not told:
        return Certainty.NONE
    return told.pop() if len(told) == 1 else Certainty.AT_LEAST
