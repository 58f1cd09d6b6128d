"""What the writer is told to do. Times are microseconds since the epoch, UTC.

A command is data: the book-keeper turns a batch of them into changed rows and replies, and the store writes the rows
in one transaction.
"""

from __future__ import annotations

import msgspec

from modelmeter_server.core.ceilings import Amount, Ceiling, Halt, Subject
from modelmeter_server.core.journal import CallKey, Effect

from .rows import AttemptRow, End, Figures, Hold


class Reserve(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Hold room for a call, or answer for it from the journal. Reply: see `replies.ReserveReply`."""

    call: CallKey
    owner: int
    at: int
    operation: str
    model: str
    identity: str
    target: str
    digest: str
    field_digests: dict[str, str]
    effect: Effect | None = None
    replay_only: bool = False
    hold: Hold
    ceiling: Amount | None = None
    """The call's own ceiling: 0 in a field that is bounded admits nothing; see the two flags."""
    bounds_tokens: bool = False
    """Whether `ceiling.tokens` is a bound."""
    bounds_money: bool = False
    """Whether `ceiling.nano_units` is a bound."""
    least_output: int | None = None
    """Clamp the output to what is left, down to this many tokens; `None` refuses instead."""
    labels: dict[str, str] = {}


class CallRef(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was admitted, as its server refers to it."""

    call: CallKey
    generation: int
    dispatch: int
    owner: int


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that a provider request leaves now. Reply: True, or False when this server was fenced off: do not send."""

    ref: CallRef
    at: int
    number: int
    """Of the attempt."""
    target: str


class Resend(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that a request leaves once more, because its connection died. Reply: True, or `Denied`.

    What the first one may have cost stays booked beside what is held. The reply is `Denied`, and nothing is changed, as
    with `Again`.
    """

    ref: CallRef
    at: int
    number: int
    """Of the request that leaves now."""
    target: str
    ceiling: Amount | None = None
    """The call's own; see `Reserve`."""
    bounds_tokens: bool = False
    bounds_money: bool = False


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say what a running call has told so far. No reply; an older one that still waits is replaced."""

    ref: CallRef
    at: int
    generated: bool
    figures: Figures
    model_served: str = ""
    provider_request_id: str = ""
    provider_response_id: str = ""


class Again(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Book an attempt that failed, because another one is to follow. Reply: True, or `Denied`.

    What it cost or may have cost stays booked, beside what is held for the next one. Without room for both under every
    ceiling, under a halt of either mode, and for a server that lost its lease the reply is `Denied` and nothing is
    changed: the call ends with what it has.
    """

    ref: CallRef
    at: int
    number: int
    """Of the last provider request that ended."""
    attempts: tuple[AttemptRow, ...]
    """What the attempt sent; the last row has the attempt's figures."""
    figures: Figures
    end: End
    generated: bool
    kind: str
    """What the call has come to so far; as what follows."""
    cause: str
    stage: str
    disposition: str
    code: int
    message: str
    ceiling: Amount | None = None
    """The call's own; see `Reserve`."""
    bounds_tokens: bool = False
    bounds_money: bool = False


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Book the outcome of a call. Reply: True."""

    ref: CallRef
    at: int
    kind: str
    """Of the failure; empty for an answer."""
    cause: str = ""
    stage: str = ""
    disposition: str
    code: int = 0
    message: str = ""
    finish: str = ""
    generated: bool
    written: bool
    """Whether the provider had the whole request."""
    refused_by_provider: bool = False
    """Whether the provider answered with an error before it generated."""
    figures: Figures
    model_served: str = ""
    http_status: int | None = None
    provider_code: str = ""
    provider_request_id: str = ""
    provider_response_id: str = ""
    number: int | None = None
    """Of the provider request that `figures` are about; `None`: of the newest. One that an `Again` has booked is not
    booked a second time."""
    end: End | None = None
    """How that one ended; `None`: as the call did."""
    attempts: tuple[AttemptRow, ...] = ()
    """Of the newest attempt; those of earlier ones came with their `Again`."""
    attempts_total: int = 0
    queue_seconds: float = 0.0
    first_token_seconds: float | None = None
    total_seconds: float = 0.0
    generating_seconds: float = 0.0
    """From the request's last byte to the end: what bounds the output of a call that ended in the dark."""
    landing: str = ""
    outcome_json: bytes = b""
    """Empty: nothing is kept."""
    provider_body: bytes = b""
    content_seconds: int = 0
    """How long the content is kept; 0 keeps none."""


class Reconcile(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Book a truer figure. Reply: `replies.Reconciled`, or None when there is no such call."""

    call: CallKey
    generation: int | None = None
    """`None` for the newest."""
    at: int
    figures: Figures
    by: str
    """`provider` or `operator`."""
    reason: str = ""


class CloseServer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Give up the calls of a server whose lease ran out, some at a time. Reply: how many were closed; 0 when none is
    left, and then the server is marked as closed."""

    owner: int
    at: int


class WriteOff(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write off what has expired, some at a time. Reply: how many were written off."""

    at: int


class PutCeiling(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Set a ceiling; one with the same subject, window and currency is replaced and keeps its id, else it has the id
    that stands here.

    Whether an admin orders it stands in the ceiling. Reply: the `Ceiling` as stored, or `replies.Guarded`.
    """

    ceiling: Ceiling


class DropCeiling(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a ceiling. Reply: whether there was one, or `replies.Guarded`."""

    tenant: str
    ceiling_id: str
    by_admin: bool = True
    """Whether an admin orders it."""


class PutHalt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Set a halt; whether an admin orders it stands in it. Reply: True, or `replies.Guarded`."""

    halt: Halt


class DropHalt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Clear a halt. Reply: whether there was one, or `replies.Guarded`."""

    subject: Subject
    by_admin: bool = True
    """Whether an admin orders it."""


class Erase(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete content by call, run or tenant, or what has expired; figures and digests stay. Reply: how many.

    Exactly one of the four is meant: `call_id`, `run_id`, neither (the whole tenant), or `expired_at`.
    """

    tenant: str = ""
    call_id: str = ""
    run_id: str = ""
    expired_at: int | None = None


Command = (
    Reserve
    | Dispatch
    | Resend
    | Again
    | Checkpoint
    | Settle
    | Reconcile
    | CloseServer
    | WriteOff
    | PutCeiling
    | DropCeiling
    | PutHalt
    | DropHalt
    | Erase
)
