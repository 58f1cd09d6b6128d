"""What it means when a stream dies: the ladder (rules A1, C2, E1, H5; section "When did it generate").

    not wholly written                  UNREACHABLE   NONE
    final usage told                    INTERRUPTED   EXACT
    some usage seen                     INTERRUPTED   AT_LEAST
    generated, no usage                 UNACCOUNTED   UNKNOWN
    no evidence                         UNAVAILABLE   UNKNOWN

A pure function of what arrived; no I/O, no clock.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import Failure, failure
from .outcomes import Cause, Certainty, Ending, Kind, Stage
from .pricing import Cost, CostSource
from .usage import AdditionalUsage, Usage


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream had told by the time it ended."""

    generated: bool = False
    usage: Usage | None = None
    """Absent unless a counter above 0 was told (R-U6)."""
    usage_is_final: bool = False
    """The output was told together with or after the stop reason."""
    additional_usage: tuple[AdditionalUsage, ...] = ()
    reported_nanos: int | None = None
    """What the provider itself says that the call cost, in nano units of US dollars."""
    cost_is_final: bool = False
    """That was told together with or after the stop reason."""
    estimated_output_tokens: int | None = None
    model_served: str | None = None
    service_tier: str | None = None
    price_factor: str | None = None
    """What else the provider says changes the price, such as the place of inference; no price table knows it."""
    response_id: str | None = None
    partial_text: str = ""

    @property
    def certainty(self) -> Certainty:
        """Return how far the usage can be trusted; UNKNOWN when none was seen.

        An input that was never told leaves a lower bound, however late the output came.
        """
        if self.usage is None:
            return Certainty.UNKNOWN
        is_exact = self.usage_is_final and self.usage.input_tokens is not None
        return Certainty.EXACT if is_exact else Certainty.AT_LEAST

    @property
    def cost(self) -> Cost | None:
        """Return the provider's own figure: a lower bound if it was told before the end, or without exact usage.

        It is never of unknown certainty, because an unknown cost is an absent one.
        """
        if self.reported_nanos is None:
            return None
        is_exact = self.cost_is_final and self.certainty is Certainty.EXACT
        return Cost(
            nano_units=self.reported_nanos,
            currency="USD",
            source=CostSource.PROVIDER,
            certainty=Certainty.EXACT if is_exact else Certainty.AT_LEAST,
        )

    @property
    def estimate(self) -> int | None:
        """Return the estimate, which stands only beside figures that are not exact."""
        return None if self.certainty is Certainty.EXACT else self.estimated_output_tokens


def severed(evidence: Evidence, ending: Ending, message: str, **details: Any) -> Failure:
    """Judge a call that ended without a whole answer.

    `details` are further fields of `Failure`. A fault of our own keeps the ladder's bill under the kind BUG.
    """
    generated = evidence.generated or evidence.usage is not None
    if generated:
        kind, certainty = _landed(evidence)
    elif ending.stage < Stage.WRITTEN:
        kind, certainty = Kind.UNREACHABLE, Certainty.NONE
    else:
        kind, certainty = Kind.UNAVAILABLE, Certainty.UNKNOWN
    return failure(
        Kind.BUG if ending.cause is Cause.BUG else kind,
        message,
        cause=ending.cause,
        stage=Stage.OUTPUT if generated else ending.stage,
        certainty=certainty,
        retryable=_retryable(kind, ending),
        usage=evidence.usage,
        additional_usage=evidence.additional_usage,
        estimated_output_tokens=evidence.estimate if generated else None,
        cost=evidence.cost,
        model_served=evidence.model_served,
        service_tier=evidence.service_tier,
        price_factor=evidence.price_factor,
        provider_response_id=evidence.response_id,
        partial_text=evidence.partial_text,
        **details,
    )


def _landed(evidence: Evidence) -> tuple[Kind, Certainty]:
    kind = Kind.UNACCOUNTED if evidence.usage is None else Kind.INTERRUPTED
    return kind, evidence.certainty


def _retryable(kind: Kind, ending: Ending) -> bool | None:
    """Silence after a written request may have been a generation: repeating could buy it twice."""
    if kind in (Kind.INTERRUPTED, Kind.UNACCOUNTED) or ending.cause in (Cause.BUG, Cause.CALLER):
        return False
    if kind is Kind.UNAVAILABLE and ending.cause is not Cause.PROVIDER:
        return False
    return ending.retryable
