"""The key `price` of a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modelmeter_server.core.pricing import PriceTable, Tier, nanos_per_million

if TYPE_CHECKING:
    from .tables import Table

_CURRENCY = re.compile(r"[A-Z]{3}")
_OPTIONAL_RATES = ("cache_read", "cache_write", "cache_write_1h", "input_audio", "output_audio")
_MOST_TOKENS = 2**63 - 1


def read_price(table: Table, *, has_output: bool = True) -> PriceTable:
    """Read a price table. The base tier comes first, then the tiers in the order of the file.

    Without `has_output` a model generates nothing, so that nobody need say what that costs.
    """
    required = ("input", "output") if has_output else ("input",)
    currency = table.required_text("currency", 'write currency = "USD"')
    if currency is not None and not _CURRENCY.fullmatch(currency):
        table.mistake("currency", "is not a currency code", 'write three capital letters, such as "USD"')
    tiers = [_read_rates(table, required)]
    for more in table.tables("tiers"):
        tier = _read_tier(more, required)
        if any(_scope(tier) == _scope(other) for other in tiers):
            more.mistake(
                None,
                "holds for the same calls as a tier before it",
                "give it another above_input_tokens or service_tier",
            )
        tiers.append(tier)
    fees = table.table("hosted_tool_requests")
    hosted = {name: _read_rate(fees, name) or 0 for name in fees}
    table.close()
    return PriceTable(currency=currency or "", tiers=tuple(tiers), hosted_tool_requests=hosted)


def _read_tier(table: Table, required: tuple[str, ...]) -> Tier:
    above = table.integer("above_input_tokens", 0, least=0, most=_MOST_TOKENS)
    tier = _read_rates(table, required, above_input_tokens=above, service_tier=table.text("service_tier"))
    table.close()
    return tier


def _read_rates(
    table: Table,
    required: tuple[str, ...],
    *,
    above_input_tokens: int = 0,
    service_tier: str | None = None,
) -> Tier:
    for key in required:
        if key not in table:
            table.mistake(
                None, f'lacks "{key}"', f'write {key} = "3.00", in units of the currency per million tokens'
            )
    return Tier(
        input=_read_rate(table, "input") or 0,
        output=_read_rate(table, "output") or 0,
        above_input_tokens=above_input_tokens,
        service_tier=service_tier,
        **{key: _read_rate(table, key) for key in _OPTIONAL_RATES},
    )


def _read_rate(table: Table, key: str) -> int | None:
    rate = table.get(key, str, 'a decimal number as a string, such as "0.30": no float ever touches money')
    return nanos_per_million(rate) if table.checked(key, rate, nanos_per_million) else None


def _scope(tier: Tier) -> tuple[int, str | None]:
    return tier.above_input_tokens, tier.service_tier
