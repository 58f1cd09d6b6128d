"""What the ledger keeps and bounds: calls, spend, ceilings, halts; and what a call says of them. Immutable values.

Absent is not zero: what nobody told is None. Times are aware datetimes in UTC, money is in billionths of a unit.
`proto` is the message as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import grpc

from .enums import (
    CallState,
    Cause,
    Certainty,
    ContentState,
    Disposition,
    ErrorKind,
    Finish,
    HaltMode,
    Landing,
    OnLandedError,
    Operation,
    Reconciler,
    Scope,
    Stage,
    WindowKind,
)
from .results import AdditionalUsage, Attempt, Completion, Cost, Embeddings, Standing, Timings, Usage
from .v1 import ledger_service_pb2


@dataclass(frozen=True)
class Effect:
    """How a call stands in a run of an effect runtime: under one key of a run an answer is bought once."""

    run_id: str
    """The run, 1 to 128 characters."""
    key: str
    """The call's key, unique in the run, 1 to 256 characters."""
    on_landed_error: OnLandedError | str = OnLandedError.REPLAY
    """What a repetition does about a recorded error that landed."""


@dataclass(frozen=True)
class CallCeiling:
    """A limit on what one call may consume; give one bound at least."""

    tokens: int | None = None
    """Most tokens, input and output together. 0 admits nothing."""
    nano_units: int | None = None
    """Most money, in billionths of a unit of `currency`."""
    currency: str = ""
    """ISO 4217 code; required with `nano_units`."""


@dataclass(frozen=True)
class Amount:
    """Tokens and money; the currency stands beside it."""

    tokens: int
    """Input and output together."""
    nano_units: int
    """Billionths of a unit of the currency; 0 where there is no price."""


@dataclass(frozen=True)
class Booking:
    """What the ceilings and the sums hold of one call. The four amounts never overlap."""

    currency: str
    """ISO 4217 code; empty when the model has no price."""
    settled: Amount
    """Known to be billed."""
    held: Amount
    """Held while the call runs."""
    unsettled: Amount
    """The bound on what nobody has told yet."""
    written_off: Amount
    """What was unsettled until it expired."""
    possibly_billed: bool
    """True when the provider answered with an error before it generated: nothing is held, and it may bill."""


@dataclass(frozen=True)
class LedgerCall:
    """One generation of a call, as the ledger knows it."""

    call_id: str
    """The call's id."""
    generation: int
    """Counts the purchases under one id, from 1."""
    dispatch: int
    """Counts the tries of this generation, from 1."""
    state: CallState
    """How far it has come."""
    operation: Operation
    """What was asked."""
    run_id: str
    """The run that it belongs to; empty for none."""
    effect_key: str
    """Its key in the run; empty for none."""
    model_asked: str
    """The model as the caller asked for it."""
    model_served: str
    """The model that the provider says served it."""
    target: str
    """The provider instance that was asked."""
    labels: Mapping[str, str] = field(hash=False)
    """The caller's labels."""
    reserved_at: datetime | None
    """When room was held for it; windows and periods go by this time."""
    dispatched_at: datetime | None
    """When its first provider request left."""
    ended_at: datetime | None
    """When it ended; None while it runs."""
    expires_at: datetime | None
    """When what is unsettled is written off."""
    kind: ErrorKind
    """How it failed; UNSPECIFIED for an answer and for a call that runs."""
    cause: Cause
    """Who ended it."""
    stage: Stage
    """How far it got."""
    disposition: Disposition
    """Whether it generated: LANDED for an answer, IN_DOUBT when its server died."""
    code: grpc.StatusCode
    """The gRPC code that it ended with; OK for an answer and for a call that runs."""
    message: str
    """How it failed, in one sentence."""
    finish: Finish
    """Why the model stopped; UNSPECIFIED unless it answered."""
    usage: Usage
    """What it consumed; while it runs, what was told so far."""
    additional_usage: tuple[AdditionalUsage, ...]
    """What was billed beside `usage`."""
    certainty: Certainty
    """How far `usage` can be trusted; never falls."""
    estimated_output_tokens: int | None
    """Output tokens counted from the text; never part of `usage`."""
    cost: Cost | None
    """What the known usage costs."""
    booking: Booking
    """What ceilings and sums hold of it."""
    http_status: int | None
    """HTTP status the provider answered with."""
    provider_code: str
    """The provider's own error code or type."""
    provider_request_id: str
    """The provider's id of the request."""
    provider_response_id: str
    """The provider's id of the answer."""
    attempts_total: int
    """How many provider requests it made, over all tries."""
    timings: Timings
    """Where the time went."""
    landing: Landing
    """What a caller's leaving did."""
    reconciled_by: Reconciler
    """Who told a figure after the end."""
    reconcile_reason: str
    """The operator's reason for a figure."""
    content: ContentState
    """What became of the content."""
    content_expires_at: datetime | None
    """Until when the content is kept."""
    attempts: tuple[Attempt, ...]
    """The provider requests, over all tries; empty unless asked for in full."""
    completion: Completion | None
    """The answer, when asked for in full and not too large; else see `read_answer`."""
    embeddings: Embeddings | None
    """The vectors of an embedding, on the same terms; else see `read_embeddings`."""
    partial_text: str
    """What had arrived of an answer that never became whole; when asked for in full."""
    provider_body: bytes = field(repr=False)
    """The provider's error answer as received; when asked for in full. It may repeat the prompt."""
    proto: ledger_service_pb2.CallRecord = field(repr=False, compare=False)
    """The message as it came."""

    @property
    def answered(self) -> bool:
        """Say whether it ended with an answer."""
        return self.kind is ErrorKind.UNSPECIFIED and self.finish is not Finish.UNSPECIFIED


@dataclass(frozen=True)
class Spend:
    """What the calls of one value, one period and one currency consumed. The four amounts never overlap."""

    value: str
    """The run, model, kind or value of the label; empty when calls are not told apart."""
    starts_at: datetime | None
    """When the period begins; None when the time is not cut."""
    currency: str
    """ISO 4217 code; empty for models without a price. Currencies are never added up."""
    calls: int
    """How many calls."""
    possibly_billed_calls: int
    """Calls that the provider answered with an error before it generated; it may bill them."""
    input_tokens: int
    """Input tokens that were told."""
    output_tokens: int
    """Output tokens that were told."""
    settled: Amount
    """Known to be billed."""
    held: Amount
    """Held for calls that run."""
    unsettled: Amount
    """The bounds on what nobody has told yet."""
    written_off: Amount
    """Bounds that expired: perhaps billed, in no ceiling any more."""


@dataclass(frozen=True)
class Subject:
    """Whom a ceiling or a halt is about."""

    scope: Scope | str
    """TENANT, RUN or MODEL."""
    name: str = ""
    """The run id or the model; empty for TENANT, and in a ceiling for every run by itself."""


@dataclass(frozen=True)
class Window:
    """Over which time a ceiling counts."""

    kind: WindowKind | str = WindowKind.TOTAL
    """How it is cut."""
    time_zone: str = ""
    """IANA name for DAY and MONTH; empty: UTC."""
    seconds: int = 0
    """Length of a ROLLING window, an hour to 366 days."""


@dataclass(frozen=True)
class Ceiling:
    """A bound on what a subject may consume in a window."""

    ceiling_id: str
    """The ledger's id of it."""
    subject: Subject
    """Whom it is about."""
    window: Window
    """Over which time it counts."""
    tokens: int | None
    """Most tokens; None for no bound."""
    nano_units: int | None
    """Most money; None for no bound."""
    currency: str
    """ISO 4217 code of `nano_units`."""
    created_at: datetime | None
    """When it was set."""
    standings: tuple[Standing, ...]
    """Where its subject stands, one for each bound; for a ceiling on every run the one that has used most of it."""
    by_admin: bool = False
    """Whether an admin or the configuration set it: nobody else may replace or delete it."""


@dataclass(frozen=True)
class Halt:
    """An operator's stop."""

    subject: Subject
    """Who is stopped."""
    mode: HaltMode
    """How calls under way are treated."""
    reason: str
    """Why."""
    created_at: datetime | None
    """Since when."""
    by_admin: bool = False
    """Whether an admin set it: nobody else may replace or clear it."""


@dataclass(frozen=True)
class Figure:
    """What an operator says that a call consumed."""

    usage: Usage
    """Input, output or both."""
    reason: str
    """Where the figure is from; kept for ever."""
    certainty: Certainty | str = Certainty.EXACT
    """EXACT, from the provider's own record, or AT_LEAST."""
    nano_units: int | None = None
    """What it cost; None: by the price table."""
    currency: str = ""
    """ISO 4217 code; required with `nano_units`."""


@dataclass(frozen=True)
class Reconciliation:
    """What a reconciliation did."""

    call: LedgerCall
    """The call as it stands now."""
    raised: bool
    """True when the figure was taken; an equal or a less certain one is not."""
