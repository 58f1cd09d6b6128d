"""What the ledger stores, one value for each row. Times are microseconds since the epoch, UTC."""

from __future__ import annotations

import msgspec

from modelmeter_server.core.journal import CallState
from modelmeter_server.core.reservation import Hold
from modelmeter_server.core.settlement import Booking, Carried, End, Figures, Tried, together

__all__ = (
    "AttemptRow",
    "Booking",
    "CallRow",
    "Carried",
    "CeilingWindowRow",
    "ContentRow",
    "End",
    "Figures",
    "Hold",
    "ServerRow",
    "SpendRow",
    "Tried",
)


class CallRow(msgspec.Struct, kw_only=True):
    """One generation of a call. Its key is (tenant, call_id, generation)."""

    tenant: str
    call_id: str
    generation: int = 1
    """Counts the purchases under one key; above 1 only after `OnLandedError.RETRY`."""
    dispatch: int = 1
    """Counts the tries of this generation: a call that did not happen is dispatched again under the same row."""
    run_id: str = ""
    effect_key: str = ""
    """Empty for a call without an effect."""
    state: int = CallState.RESERVED
    owner: int = 0
    """Fencing token of the server that runs it."""
    operation: str = "COMPLETE"
    model: str
    """As asked."""
    identity: str = ""
    """The model's declared identity, which the digest covers."""
    target: str = ""
    """The provider instance."""
    reserved_at: int
    """Its window, for ceilings and sums, is the one that holds this moment."""
    dispatched_at: int | None = None
    ended_at: int | None = None
    expires_at: int | None = None
    """When what is unsettled is written off."""
    digest: str = ""
    """Hex; empty when the call has none."""
    field_digests: dict[str, str] = {}
    labels: dict[str, str] = {}
    hold: Hold
    generated: bool = False
    """Whether generation is proven, by a checkpoint or the end."""
    figures: Figures = Figures()
    """Of the newest attempt; `told` has those of the call."""
    booking: Booking = Booking()
    """What the sums and the ceilings hold of this row now, earlier dispatches included."""
    carried: Carried | None = None
    """What earlier dispatches left; part of `booking`."""
    kind: str = ""
    """Of the failure; empty for an answer and for a call that is open."""
    cause: str = ""
    stage: str = ""
    disposition: str = ""
    """LANDED for an answer."""
    code: int = 0
    message: str = ""
    finish: str = ""
    model_served: str = ""
    http_status: int | None = None
    provider_code: str = ""
    provider_request_id: str = ""
    provider_response_id: str = ""
    attempts_total: int = 0
    queue_seconds: float = 0.0
    first_token_seconds: float | None = None
    total_seconds: float = 0.0
    landing: str = ""
    """What a caller's leaving did: empty, `aborted`, `drained` (the provider finished within the bound) or
    `drain_cut` (the bound ended first)."""
    reconciled_by: str = ""
    """`provider`, `operator` or `late` (the server itself, after it had been given up); empty for never."""
    reconcile_reason: str = ""
    content_expires_at: int | None = None
    """`None` when no content is kept."""
    content_gone: str = ""
    """`erased` or `expired`, once the content is no longer there."""

    @property
    def tried(self) -> Tried | None:
        """Return what earlier attempts of this dispatch came to; `None` without any."""
        return None if self.carried is None else self.carried.tried

    @property
    def told(self) -> Figures:
        """Return what all attempts of this dispatch told together."""
        return self.figures if self.tried is None else together(self.tried.figures, self.figures)


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One provider request of a call."""

    tenant: str
    call_id: str
    generation: int
    dispatch: int
    number: int
    target: str
    started_at: int
    elapsed: float | None = None
    """`None` while it runs, and for ever when its server died."""
    stage: str = ""
    kind: str = ""
    cause: str = ""
    figures: Figures = Figures()
    http_status: int | None = None
    provider_code: str = ""
    provider_request_id: str = ""
    wait: float = 0.0
    """Seconds since the attempt before ended."""


class ContentRow(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome consists of, kept for a while. Never holds a prompt."""

    tenant: str
    call_id: str
    generation: int
    outcome_json: bytes
    """`msgspec.json` of an `Answer` or a `Failure` (see `ledger.contents`)."""
    provider_body: bytes = b""
    """The error body as received, for the operator."""


class CeilingWindowRow(msgspec.Struct, kw_only=True):
    """What counts against one ceiling of one subject in one window, or in one step of a ROLLING window."""

    ceiling_id: str
    name: str
    """The subject's name: for a ceiling on every run, the run it is about."""
    starts_at: int
    settled_tokens: int = 0
    settled_nanos: int = 0
    held_tokens: int = 0
    held_nanos: int = 0
    unsettled_tokens: int = 0
    unsettled_nanos: int = 0
    soft_limit: int = 0
    """The highest of `SOFT_LIMITS` that was told in this window; for ROLLING, the one told during this step."""


class SpendRow(msgspec.Struct, kw_only=True):
    """Sums of the calls of a quarter of an hour that have one property.

    Its key is (tenant, dimension, name, value, quarter, currency).
    """

    tenant: str
    dimension: str
    """TENANT, RUN, MODEL, KIND or LABEL."""
    name: str
    """The label's key; empty for other dimensions."""
    value: str
    """The run id, the model as asked, the kind of the outcome (ANSWERED for an answer, OPEN while it runs), the
    label's value; empty for TENANT."""
    quarter: int
    """Start of the quarter of an hour in which the calls were reserved."""
    currency: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    settled_tokens: int = 0
    settled_nanos: int = 0
    held_tokens: int = 0
    held_nanos: int = 0
    unsettled_tokens: int = 0
    unsettled_nanos: int = 0
    written_off_tokens: int = 0
    written_off_nanos: int = 0
    possibly_billed_calls: int = 0


class ServerRow(msgspec.Struct, kw_only=True):
    """A server process and its lease. `owner` is its fencing token and rises with every registration."""

    owner: int
    lease_until: int
    closed: bool = False
    """Whether its calls were given up; it may not dispatch any more."""
