"""Prices and what a call costs by them, in integers.

Rates come as decimal strings in currency units per million tokens and are held as nano units per million tokens,
so that no float ever touches money. A call is rounded once, upwards: a ceiling must not leak through rounding.
"""

from __future__ import annotations

import re
from enum import Enum, unique
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .counters import INT64_MAX
from .outcomes import Certainty

if TYPE_CHECKING:
    from .usage import AdditionalUsage, Usage

NANOS_PER_UNIT = 1_000_000_000
TOKENS_PER_RATE = 1_000_000

# Written out because `Decimal` also reads "1_000", exponents and full-width digits, which nobody means as a price.
# The tier that the base rates are for, in the words of the providers: what was asked for may be told as well.
_STANDARD = frozenset(("", "standard", "default", "auto", "on_demand"))

_RATE = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,9}))?")


APART = ("call", "input", "output", "cache_read", "cache_write", "cached_audio")
"""What parts of a call can be priced apart: `call` for what every one may have; audio that a cache served."""


@unique
class CostSource(Enum):
    """Who worked the cost out."""

    PROVIDER = "PROVIDER"
    PRICE_TABLE = "PRICE_TABLE"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Money, in nano units of a currency."""

    nano_units: int
    currency: str
    source: CostSource
    certainty: Certainty

    @property
    def minor_units(self) -> int:
        """Return hundredths of the currency, rounded up. Derived at the end of a sum, never summed itself."""
        return -(-self.nano_units // 10_000_000)


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Rates in nano units per million tokens; `None` means that the dimension has no price here."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    above_input_tokens: int = 0
    """The tier holds for prompts of more than this many input tokens."""
    service_tier: str | None = None
    """The tier holds for answers served in this provider tier; `None` for any."""


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """What one model costs."""

    currency: str
    tiers: tuple[Tier, ...]
    """At least one; the first one is the base."""
    hosted_tool_requests: dict[str, int] = {}
    """Nano units for each request to a provider's own tool, by the tool's name."""
    apart: frozenset[str] = frozenset()
    """Of `APART`: what has parts that cost more than the table says; a cost that has it is AT_LEAST."""
    source: str = ""
    """The collection that the rates come from; empty for the deployment's own."""
    source_version: str = ""
    source_entry: str = ""
    """What the collection has them under: `provider/model`."""

    def tier_for(self, input_tokens: int, service_tier: str | None) -> Tier:
        """Return the most specific tier: the named service tier first, then the highest prompt bound passed."""
        fitting = [
            tier
            for tier in self.tiers
            if tier.service_tier in (None, service_tier)
            and (input_tokens > tier.above_input_tokens or tier.above_input_tokens == 0)
        ]
        chosen = max(
            fitting,
            key=lambda tier: (tier.service_tier is not None, tier.above_input_tokens),
            default=None,
        )
        return chosen or self.tiers[0]

    def knows(self, service_tier: str | None) -> bool:
        """Say whether answers of a service tier have rates here: a row of their own, or the standard ones."""
        if service_tier is None or service_tier.lower() in _STANDARD:
            return True
        return any(tier.service_tier == service_tier for tier in self.tiers)


def nanos_per_million(rate: str) -> int:
    """Read a rate such as "0.0375" (currency units per million tokens) as nano units per million tokens.

    Raises ValueError unless it is a plain non-negative decimal of at most nine places after the point.
    """
    match = _RATE.fullmatch(rate)
    nanos = int(match[1]) * NANOS_PER_UNIT + int((match[2] or "0").ljust(9, "0")) if match else INT64_MAX + 1
    if nanos > INT64_MAX:
        msg = (
            f'"{rate}" is not a decimal number such as "0.0375", '
            "between 0 and 9,223,372,036 with at most nine decimal places"
        )
        raise ValueError(msg)
    return nanos


def price(
    table: PriceTable,
    usage: Usage,
    certainty: Certainty,
    *,
    service_tier: str | None = None,
    price_factor: str | None = None,
    additional: tuple[AdditionalUsage, ...] = (),
    tables: dict[str, PriceTable] | None = None,
) -> Cost:
    """Return what a usage costs by the table, rounded up once.

    Work billed beside the call goes by its own model's table in `tables`. The cost is AT_LEAST if a dimension that
    was used has no price or has parts that are priced apart, if input or output was never told, if additional work is
    of a model without a table or in another currency, if a service tier or another price factor was told that the
    table has no rates for, and if the sum saturates.
    """
    total, complete = _scaled(table, usage, service_tier)
    complete = complete and price_factor is None
    for extra in additional:
        own = table if extra.model is None else (tables or {}).get(extra.model)
        if own is None or own.currency != table.currency:
            complete = False
            continue
        more, whole = _scaled(own, extra.usage, service_tier)
        total, complete = total + more, complete and whole
    nanos = -(-total // TOKENS_PER_RATE)
    if certainty is Certainty.EXACT and (not complete or nanos > INT64_MAX):
        certainty = Certainty.AT_LEAST
    return Cost(
        nano_units=min(INT64_MAX, nanos),
        currency=table.currency,
        source=CostSource.PRICE_TABLE,
        certainty=certainty,
    )


def _scaled(table: PriceTable, usage: Usage, service_tier: str | None) -> tuple[int, bool]:
    """Return nano units times a million, and whether everything that was used was told and had a price."""
    inside = _clamped(usage)
    tier = table.tier_for(usage.input_tokens or 0, service_tier)
    writes = _writes(usage, inside.write)
    # Each dimension with its rate, and the rate that bounds it from below while it has none of its own.
    parts = [
        (inside.uncached - inside.input_audio, tier.input, 0),
        (inside.input_audio, tier.input_audio, tier.input),
        (writes.short, tier.cache_write, tier.input),
        (writes.long, tier.cache_write_1h, tier.input if tier.cache_write is None else tier.cache_write),
        (writes.unknown, *_rate_of_unknown_writes(tier)),
        (inside.read, tier.cache_read, 0),
        (inside.output - inside.output_audio, tier.output, 0),
        (inside.output_audio, tier.output_audio, tier.output),
    ]
    is_told = usage.input_tokens is not None and usage.output_tokens is not None
    total, complete = 0, is_told and table.knows(service_tier)
    for tokens, rate, at_least in parts:
        complete = complete and (rate is not None or tokens == 0)
        total += tokens * (at_least if rate is None else rate)
    complete = complete and not _has_apart(table.apart, inside)
    for tool, requests in usage.hosted_tool_requests.items():
        fee = table.hosted_tool_requests.get(tool)
        complete = complete and (fee is not None or requests == 0)
        total += requests * (fee or 0) * TOKENS_PER_RATE
    return total, complete


def _has_apart(apart: frozenset[str], inside: _Clamped) -> bool:
    """Say whether some of what was used may be priced apart."""
    used = {
        "call": True,
        "input": inside.uncached > 0,
        "output": inside.output > 0,
        "cache_read": inside.read > 0,
        "cache_write": inside.write > 0,
        "cached_audio": inside.read > 0 and inside.has_audio,
    }
    return any(used[each] for each in apart)


class _Writes(NamedTuple):
    short: int
    long: int
    unknown: int
    """Writes of which nobody told how long they are kept."""


def _writes(usage: Usage, write: int) -> _Writes:
    long = min(usage.cache_write_1h_tokens or 0, write)
    short = min(usage.cache_write_5m_tokens or 0, write - long)
    return _Writes(short, long, write - long - short)


def _rate_of_unknown_writes(tier: Tier) -> tuple[int | None, int]:
    """Return the one rate that writes have however long they are kept, and what they cost at least."""
    if tier.cache_write is None or tier.cache_write_1h in (None, tier.cache_write):
        return tier.cache_write, tier.input
    return None, min(tier.cache_write, tier.cache_write_1h)


class _Clamped(msgspec.Struct, frozen=True):
    uncached: int
    write: int
    read: int
    output: int
    input_audio: int
    output_audio: int
    has_audio: bool
    """Whether there was any audio in the input, cached or not."""


def _clamped(usage: Usage) -> _Clamped:
    """Cut parts that are larger than their whole, as compatible servers report them (R-U7).

    Seen: 161 cached of a prompt of 7 from an Azure-hosted model.
    """
    whole = usage.input_tokens or 0
    read = min(usage.cache_read_tokens or 0, whole)
    write = min(usage.cache_write_tokens or 0, whole - read)
    uncached = whole - read - write
    output = usage.output_tokens or 0
    return _Clamped(
        uncached=uncached,
        write=write,
        read=read,
        output=output,
        input_audio=min(usage.input_audio_tokens or 0, uncached),
        output_audio=min(usage.output_audio_tokens or 0, output),
        has_audio=bool(usage.input_audio_tokens),
    )
