"""What can be asked of the ledger, as values. The queries stand in `ledger.queries`, one function for each question:

    find_call(connection, key, generation)          -> CallRow | None
    find_attempts(connection, key, generation)      -> list[AttemptRow]
    find_content(connection, key, generation)       -> ContentRow | None
    list_calls(connection, CallsAsked)              -> list[CallRow]
    get_spend(connection, SpendAsked)               -> list[SpendSum]
    find_ceiling(connection, tenant, ceiling_id)    -> Ceiling | None
    list_ceilings(connection, tenant, after, limit) -> list[Ceiling]
    find_standings(connection, ceiling, at)         -> list[Standing]
    list_halts(connection, tenant)                  -> list[Halt]

Times are microseconds since the epoch, UTC.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Annotated

import msgspec

Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]*\Z")]
"""What both databases can compare with: a position comes back from a caller, who may have made it up."""


class CallPosition(msgspec.Struct, frozen=True, order=True):
    """Where a page of calls ends: calls are listed by these three, the newest first."""

    reserved_at: Time
    call_id: Name
    generation: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class CallsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls, the newest first. What is left empty does not narrow."""

    tenant: str
    run_id: str = ""
    effect_key: str = ""
    model: str = ""
    states: frozenset[int] = frozenset()
    kinds: frozenset[str] = frozenset()
    """Of failures; ANSWERED for an answer."""
    operations: frozenset[str] = frozenset()
    labels: dict[str, str] = {}
    """All of them."""
    reserved_from: int | None = None
    """At or after."""
    reserved_before: int | None = None
    after: CallPosition | None = None
    """Go on after this one."""
    limit: int


@unique
class Dimension(Enum):
    """By what spend is told apart."""

    TENANT = "TENANT"
    """Not at all: one sum for the tenant."""
    RUN = "RUN"
    MODEL = "MODEL"
    KIND = "KIND"
    LABEL = "LABEL"
    """By the values of one label."""


@unique
class Period(Enum):
    """Into which stretches of time spend is cut."""

    ALL = "ALL"
    HOUR = "HOUR"
    DAY = "DAY"
    MONTH = "MONTH"


class SpendPosition(msgspec.Struct, frozen=True, order=True):
    """Where a page of sums ends: sums are listed by these three."""

    starts_at: Time
    value: Name
    currency: Name


class SpendAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which sums. Calls count in the quarter of an hour in which they were reserved."""

    tenant: str
    dimension: Dimension = Dimension.TENANT
    label: str = ""
    """The label's key, for LABEL."""
    values: frozenset[str] = frozenset()
    """Of the dimension; empty for all."""
    period: Period = Period.ALL
    time_zone: str = "UTC"
    """An IANA name, for DAY and MONTH."""
    starts_at: int | None = None
    """On a quarter of an hour; at or after."""
    ends_at: int | None = None
    """On a quarter of an hour; before."""
    after: SpendPosition | None = None
    limit: int


class SpendSum(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one value, period and currency consumed."""

    value: str
    """Empty for TENANT."""
    starts_at: int
    """Of the period; 0 for ALL."""
    currency: str
    """Empty for models without a price."""
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
