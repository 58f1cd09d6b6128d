"""The one table of failures, and the value that carries a failure with its bill.

    did it happen?       kinds
    -------------------  ------------------------------------------------------------------------------
    no, nobody had it    UNREACHABLE
    no, judged wrong     REFUSED
    no, come back later  RATE_LIMITED  OVERLOADED  DRAINING  CEILING
    nobody can say       UNAVAILABLE
    yes, and it is lost  INTERRUPTED (cost told)  UNACCOUNTED (cost untold)  UNUSABLE (whole, not an answer)
    ours                 LEDGER_DOWN  HALTED  DIVERGED  OUTCOME_GONE  REPLAY_MISS  CALL_ID_CONFLICT  BUG

Server, client, documentation and tests all read `TABLE`; nothing else maps a kind to anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .ceilings import Standing
from .hosted import HostedTool
from .outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from .pricing import Cost
from .usage import AdditionalUsage, Usage


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that follows from a kind."""

    meaning: str
    """One line for the documentation."""
    disposition: Disposition | None
    """`None`: the ladder decides (BUG alone)."""
    code: Code
    """The gRPC code unless the cause overrides it; for REFUSED the default of its grounds."""
    retryable: bool
    """Whether repeating the same call can help and cannot buy the answer twice."""
    retry_condition: str = ""
    """When a retryable kind is worth repeating, for the documentation; the single failure says it for certain."""
    client_class: str
    """The exception that the client raises."""
    effect_outcome: str
    """What an effect runtime books when no spend was told: rejected, interrupted or performed."""
    certainties: tuple[Certainty, ...]
    """The certainties that the kind may carry; the first one is the default."""
    pushback: bool = False
    """Whether `grpc-retry-pushback-ms: -1` tells every gRPC client not to try again by itself."""


OWN_FAULT = "an internal fault of this service ended the call; its log tells more under the call id"
"""What a caller may read of a fault of ours: an exception's text may quote a key or a prompt."""

_NO = Disposition.DID_NOT_HAPPEN
_YES = Disposition.LANDED

TABLE: dict[Kind, Row] = {
    Kind.UNREACHABLE: Row(
        meaning="The provider cannot have had the whole request.",
        disposition=_NO,
        code=Code.UNAVAILABLE,
        retryable=True,
        retry_condition="not after a certificate or proxy-credential fault",
        client_class="UnreachableError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.REFUSED: Row(
        meaning="Judged wrong before generating, by the provider or by this service.",
        disposition=_NO,
        code=Code.INVALID_ARGUMENT,
        retryable=False,
        client_class="RefusedError",
        effect_outcome="rejected",
        # AT_LEAST: it named its usage, and an attempt before it may be billed as well.
        certainties=(Certainty.NONE, Certainty.EXACT, Certainty.AT_LEAST),
    ),
    Kind.RATE_LIMITED: Row(
        meaning="Throttled or overloaded before generating.",
        disposition=_NO,
        code=Code.RESOURCE_EXHAUSTED,
        retryable=True,
        retry_condition="after the named wait",
        client_class="RateLimitedError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.UNAVAILABLE: Row(
        meaning="The provider was reached; there is no evidence that it generated.",
        disposition=_NO,
        code=Code.UNAVAILABLE,
        retryable=True,
        retry_condition="if the provider answered",
        client_class="UnavailableError",
        effect_outcome="rejected",
        certainties=(Certainty.UNKNOWN, Certainty.NONE),  # NONE: a count, which is free
    ),
    Kind.INTERRUPTED: Row(
        meaning="It generated, then died; the cost is told in part or whole.",
        disposition=_YES,
        code=Code.ABORTED,
        retryable=False,
        client_class="CallInterruptedError",
        effect_outcome="interrupted",
        certainties=(Certainty.AT_LEAST, Certainty.EXACT),
    ),
    Kind.UNACCOUNTED: Row(
        meaning="It generated, then died; the cost was never told.",
        disposition=_YES,
        code=Code.ABORTED,
        retryable=False,
        client_class="UnaccountedError",
        effect_outcome="performed",
        certainties=(Certainty.UNKNOWN,),
    ),
    Kind.UNUSABLE: Row(
        meaning="It answered, and the answer cannot be used.",
        disposition=_YES,
        code=Code.ABORTED,
        retryable=False,
        client_class="UnusableError",
        effect_outcome="performed",
        certainties=(Certainty.EXACT, Certainty.AT_LEAST, Certainty.UNKNOWN),
    ),
    Kind.CEILING: Row(
        meaning="A ceiling has no room for the call.",
        disposition=_NO,
        code=Code.RESOURCE_EXHAUSTED,
        retryable=False,
        client_class="CeilingError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
        pushback=True,
    ),
    Kind.OVERLOADED: Row(
        meaning="This server has no room for the call.",
        disposition=_NO,
        code=Code.RESOURCE_EXHAUSTED,
        retryable=True,
        client_class="OverloadedError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.DRAINING: Row(
        meaning="This server is shutting down.",
        disposition=_NO,
        code=Code.UNAVAILABLE,
        retryable=True,
        client_class="DrainingError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.LEDGER_DOWN: Row(
        meaning="The ledger cannot be written, so nothing was sent.",
        disposition=_NO,
        code=Code.UNAVAILABLE,
        retryable=True,
        client_class="LedgerDownError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.HALTED: Row(
        meaning="An operator has stopped this tenant, run or model.",
        disposition=_NO,
        code=Code.FAILED_PRECONDITION,
        retryable=False,
        client_class="HaltedError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
        pushback=True,
    ),
    Kind.DIVERGED: Row(
        meaning="The journal holds another request under this effect key.",
        disposition=_NO,
        code=Code.FAILED_PRECONDITION,
        retryable=False,
        client_class="DivergedError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
        pushback=True,
    ),
    Kind.OUTCOME_GONE: Row(
        meaning="The outcome's content was erased or has expired; the bill remains.",
        disposition=_NO,
        code=Code.FAILED_PRECONDITION,
        retryable=False,
        client_class="OutcomeGoneError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.REPLAY_MISS: Row(
        meaning="Only replay was asked for, and the journal holds no such call.",
        disposition=_NO,
        code=Code.NOT_FOUND,
        retryable=False,
        client_class="ReplayMissError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.CALL_ID_CONFLICT: Row(
        meaning="The call id belongs to another request.",
        disposition=_NO,
        code=Code.ALREADY_EXISTS,
        retryable=False,
        client_class="CallIdConflictError",
        effect_outcome="rejected",
        certainties=(Certainty.NONE,),
    ),
    Kind.BUG: Row(
        meaning="A fault of this service.",
        disposition=None,
        code=Code.INTERNAL,
        retryable=False,
        client_class="BugError",
        effect_outcome="interrupted",
        certainties=(Certainty.UNKNOWN, Certainty.NONE, Certainty.AT_LEAST, Certainty.EXACT),
    ),
}

_OUTCOME_BY_DISPOSITION = {Disposition.DID_NOT_HAPPEN: "rejected", Disposition.LANDED: "performed"}

_CODE_BY_CAUSE = {Cause.DEADLINE: Code.DEADLINE_EXCEEDED, Cause.CALLER: Code.CANCELLED}


class FieldViolation(msgspec.Struct, frozen=True):
    """One mistake in a request: where it is and how to mend it."""

    field: str
    """Path of the field in the request, such as `messages[2].parts[0].image.media_type`."""
    description: str
    """What is wrong and what would be right."""


class Quota(msgspec.Struct, frozen=True):
    """A limit of this server that a call ran into."""

    subject: str
    """Whose limit: `server`, or `tenant:NAME`, `model:NAME`, `target:NAME`."""
    description: str
    """Which limit, and what it allows."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that gave no answer, with everything known about its bill.

    Build it with `failure`, which fills the fields that follow from the kind.
    """

    kind: Kind
    cause: Cause
    stage: Stage
    message: str
    """One sentence for a person. Never the caller's text, and the provider's only where the rules allow it."""
    code: Code
    disposition: Disposition
    certainty: Certainty
    retryable: bool
    usage: Usage | None = None
    """Absent when nothing was told; then `certainty` is NONE or UNKNOWN."""
    additional_usage: tuple[AdditionalUsage, ...] = ()
    estimated_output_tokens: int | None = None
    """Counted from the text that arrived; stands beside AT_LEAST and UNKNOWN, never inside `usage`."""
    cost: Cost | None = None
    model_served: str | None = None
    service_tier: str | None = None
    """The provider's tier that it was served in, which decides its price."""
    price_factor: str | None = None
    """What else the provider says changes the price; no price table knows it, so that the cost is a lower bound."""
    http_status: int | None = None
    provider_code: str | None = None
    """The provider's own machine-readable code or type, untouched."""
    provider_request_id: str | None = None
    provider_response_id: str | None = None
    retry_after: float | None = None
    """Seconds the provider or this server asked to wait, not capped."""
    violations: tuple[FieldViolation, ...] = ()
    reason: str = ""
    """A word for programs in place of the kind's name, such as NOT_RECONCILABLE; empty for the kind."""
    resource: str | None = None
    """Name of what was not found, for a NOT_FOUND answer."""
    resource_type: str = "modelmeter.v1.Model"
    """What the resource is."""
    standings: tuple[Standing, ...] = ()
    """For CEILING: every ceiling without room."""
    quotas: tuple[Quota, ...] = ()
    """For OVERLOADED by a limit on calls: which one."""
    differing_field: str = ""
    """For DIVERGED and CALL_ID_CONFLICT: the first field that differs from the recorded request."""
    hosted_tools: tuple[HostedTool, ...] = ()
    """What the provider ran before it failed; for those who watch, and not sent in the status."""
    may_have_generated: bool = False
    """True when the provider may bill for this call."""
    partial_text: str = ""
    """What had arrived; never an answer, kept for the record alone and not sent in the status."""
    provider_body: bytes = b""
    """The error body as received, for the operator's view; it may echo the prompt back."""

    @property
    def is_refused_by_provider(self) -> bool:
        """Say whether the provider answered with an error before it generated, so that nothing is held for the call."""
        return self.kind is Kind.UNAVAILABLE and self.retryable


def failure(
    kind: Kind,
    message: str,
    *,
    cause: Cause = Cause.PROVIDER,
    stage: Stage = Stage.NOT_WRITTEN,
    code: Code | None = None,
    certainty: Certainty | None = None,
    retryable: bool | None = None,
    disposition: Disposition | None = None,
    **details: Any,
) -> Failure:
    """Build a failure whose code, disposition, certainty and retry advice come from the table.

    `code` overrides the table for the grounds of a refusal only; a deadline or a leaving caller overrides both.
    `details` are the remaining fields of `Failure`. Raises ValueError if the certainty is not one that the
    kind may carry, or if a usage stands beside a certainty that denies it.
    """
    row = TABLE[kind]
    certain = certainty or row.certainties[0]
    if certain not in row.certainties:
        msg = f"{kind.name} cannot carry certainty {certain.name}"
        raise ValueError(msg)
    if details.get("usage") is not None and certain in (Certainty.NONE, Certainty.UNKNOWN):
        msg = f"usage was told, so its certainty cannot be {certain.name}"
        raise ValueError(msg)
    where = disposition or row.disposition or _disposition_by_evidence(certain, stage)
    return Failure(
        kind=kind,
        cause=cause,
        stage=stage,
        message=message,
        code=_CODE_BY_CAUSE.get(cause, code or row.code),
        disposition=where,
        certainty=certain,
        retryable=row.retryable if retryable is None else retryable,
        may_have_generated=where is not _NO or certain is not Certainty.NONE,
        **details,
    )


def _disposition_by_evidence(certainty: Certainty, stage: Stage) -> Disposition:
    if certainty is Certainty.NONE or stage < Stage.OUTPUT:
        return _NO
    return _YES


def effect_outcome(kind: Kind, disposition: Disposition, *, spend_told: bool) -> str:
    """Return what an effect runtime books: `metered` when spend was told, else by the table.

    Where the table leaves the disposition open, the single call's disposition decides.
    """
    if spend_told:
        return "metered"
    row = TABLE[kind]
    if row.disposition is not None:
        return row.effect_outcome
    return _OUTCOME_BY_DISPOSITION.get(disposition, row.effect_outcome)


def with_cause(failed: Failure, cause: Cause) -> Failure:
    """Return the failure as ended by someone else; a deadline or a leaving caller changes the code as well."""
    return msgspec.structs.replace(failed, cause=cause, code=_CODE_BY_CAUSE.get(cause, failed.code))
