"""How the outcome of a call is booked: what is known to be spent, and the smallest bound on the rest."""

from __future__ import annotations

import msgspec


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was told about a call's consumption. JSON fields hold `msgspec.json` of the core's values."""

    usage_json: bytes = b""
    """A `core.usage.Usage`; empty when nothing was told."""
    additional_json: bytes = b""
    """A list of `core.usage.AdditionalUsage`; empty for none."""
    certainty: str = "UNKNOWN"
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int = 0
    """Input and output of usage and additional usage together; 0 when nothing was told."""
    nano_units: int | None = None
    currency: str = ""
    cost_source: str = ""
    cost_certainty: str = ""
    estimated_output_tokens: int | None = None


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an amount is spread over the columns of the sums; all in tokens and in nano units of the call's currency."""

    settled_tokens: int = 0
    settled_nanos: int = 0
    held_tokens: int = 0
    held_nanos: int = 0
    unsettled_tokens: int = 0
    unsettled_nanos: int = 0
    written_off_tokens: int = 0
    written_off_nanos: int = 0
    possibly_billed: int = 0
    """1 for a call that the provider answered with an error before it generated: nothing is held for it."""


class Carried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What earlier dispatches of a call left in its booking, which a later one adds to and never replaces."""

    booking: Booking = Booking()
    input_tokens: int = 0
    output_tokens: int = 0
