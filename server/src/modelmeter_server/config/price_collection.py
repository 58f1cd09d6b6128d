"""Prices of the package `genai-prices`, as it is installed: nothing is fetched.

Its data has more than a `PriceTable` holds. What only adds to a cost leaves a lower bound (`PriceTable.apart`); what
could make the table's figure too high, or changes it with time, is refused: `Unpriced`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from modelmeter_server.core.pricing import PriceTable, Tier, nanos_per_million

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date

NAME: Final = "genai-prices"
"""Of the package, and what stands for it in a configuration."""

EXTRA: Final = "modelmeter-server[prices]"

CURRENCY: Final = "USD"
"""Its data knows no other one."""

WEB_SEARCH: Final = "web_search"
"""Anthropic's tool has one price by this name. What others count by it has several, so that it stays without one."""

_RATES: Final = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "input_audio",
    "output_audio_mtok": "output_audio",
}
_SEARCHES: Final = "web_searches_kcount"
_TOOLS: Final = "tool_calls"
"""The family of units of the provider's own tools: a use without a price makes a cost a lower bound already."""
_REGIONAL: Final = re.compile(
    r"https://([a-z0-9-]+-aiplatform\.|aiplatform\.[a-z0-9-]+\.rep\.)", re.IGNORECASE
)
"""Addresses of Vertex AI in a region: they cost a tenth more than the global one, whose rates the data has."""


class Unpriced(Exception):
    """The collection has no price that could be used; the message says why."""

    def __init__(self, message: str, near: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.near = tuple(near)
        """Models of the provider with names like the one that is missing."""


class NotInstalled(Exception):
    """The package is not there."""


class _Unit(NamedTuple):
    family: str
    bucket: str
    """Which tokens of ours it is a part of."""


def find_price(address: str, model: str, today: date, *, has_output: bool = True) -> PriceTable:
    """Return what a model costs on a day, by the provider's address and the model in the provider's spelling.

    Without `has_output` it generates nothing. Raises NotInstalled and Unpriced.
    """
    snapshot = _snapshot()
    try:
        provider = snapshot.find_provider(None, None, address)
    except LookupError:
        message = "does not know the prices of this provider's address"
        raise Unpriced(message) from None
    found = provider.find_model(model, all_providers=snapshot.providers)
    if found is None:
        near = difflib.get_close_matches(model, [each.id for each in provider.models], n=3)
        message = f'has no model "{model}" of {provider.name}'
        raise Unpriced(message, near)
    table = _table(_standing(found, today), _tiers(found, today), has_output=has_output, provider=provider.id)
    apart = table.apart | {"call"} if _REGIONAL.match(address) else table.apart
    return msgspec.structs.replace(
        table,
        apart=apart,
        source=NAME,
        source_version=importlib.metadata.version(NAME),
        source_entry=f"{provider.id}/{found.id}",
    )


def _snapshot() -> Any:
    try:
        data = importlib.import_module("genai_prices.data")
        snapshots = importlib.import_module("genai_prices.data_snapshot")
    except ImportError:
        raise NotInstalled from None
    # Made here: the package's own could have been replaced by what it fetched.
    return snapshots.DataSnapshot(providers=data.providers, from_auto_update=False)


# Which prices stand today


def _standing(model: Any, today: date) -> dict[str, Any]:
    if not isinstance(model.prices, list):
        return _told(model.prices)
    standing: dict[str, Any] | None = None
    for each in model.prices:
        if _holds(each.constraint, today):
            standing = _told(each.prices)
    if standing is None:
        message = "has no price for the model yet"
        raise Unpriced(message)
    return standing


def _holds(constraint: Any, today: date) -> bool:
    """Say whether a price stands; a server that runs on would not notice that it falls."""
    if constraint is None:
        return True
    start = getattr(constraint, "start_date", None)
    if start is None:
        message = "has prices of the model that change with the time of day"
        raise Unpriced(message)
    if start > today:
        message = f"has a price of the model that changes on {start}, which a running server would not notice"
        raise Unpriced(message)
    return True


def _told(prices: Any) -> dict[str, Any]:
    return {
        key: value for key, value in vars(prices).items() if value is not None and not key.startswith("_")
    }


def _tiers(model: Any, today: date) -> dict[str, dict[str, Any]]:
    """Return by service tier what differs there. The first variant that fits wins, as in the package."""
    tiers: dict[str, dict[str, Any]] = {}
    for variant in model.price_variants or ():
        when: Mapping[str, str] = variant.when
        if when.get("processing") == "batch":
            continue  # this service sends no batches
        if when == {"speed": "fast"}:
            continue  # the answer tells its speed, and a cost at another speed is a lower bound
        if when.keys() != {"service_tier"}:
            message = f"has prices of the model that change with {', '.join(sorted(when))}"
            raise Unpriced(message)
        changed = _told(variant.prices)
        if not changed and when["service_tier"] == "default":
            continue  # the base rates have this name anyway
        if _holds(variant.constraint, today):
            tiers[when["service_tier"]] = {**changed, **tiers.get(when["service_tier"], {})}
    return tiers


# The table


def _table(
    base: dict[str, Any], service_tiers: dict[str, dict[str, Any]], *, has_output: bool, provider: str
) -> PriceTable:
    for key in ("input_mtok", "output_mtok") if has_output else ("input_mtok",):
        if key not in base:
            message = "prices the model by something else than tokens"
            raise Unpriced(message)
    rows: list[Tier] = []
    apart: set[str] = set()
    for name, changed in ((None, {}), *service_tiers.items()):
        prices = {**base, **changed}
        for start in sorted({0, *(tier.start for price in prices.values() for tier in _steps(price))}):
            row = Tier(
                **{ours: _rate(prices, theirs, start) for theirs, ours in _RATES.items() if theirs in prices},
                **({} if "output_mtok" in prices else {"output": 0}),
                above_input_tokens=start,
                service_tier=name,
            )
            rows.append(row)
            apart |= _apart(prices, start, row)
    searches = base.get(_SEARCHES)
    fees = {}
    if isinstance(searches, Decimal) and provider == "anthropic":
        fees[WEB_SEARCH] = _nanos(searches / 1000)
    return PriceTable(currency=CURRENCY, tiers=tuple(rows), hosted_tool_requests=fees, apart=frozenset(apart))


def _steps(price: Any) -> list[Any]:
    steps: list[Any] = getattr(price, "tiers", [])
    return steps


def _price(price: Any, start: int) -> Decimal:
    """Return the price of prompts of just more than `start` tokens."""
    if isinstance(price, Decimal):
        return price
    chosen: Decimal = price.base
    for step in price.tiers:
        if start >= step.start:
            chosen = step.price
    return chosen


def _rate(prices: Mapping[str, Any], key: str, start: int) -> int:
    return _nanos(_price(prices[key], start))


def _nanos(price: Decimal) -> int:
    try:
        return nanos_per_million(f"{price.normalize():f}")
    except ValueError:
        message = "has a price of the model with more than nine decimal places"
        raise Unpriced(message) from None


# What the table cannot hold


def _apart(prices: Mapping[str, Any], start: int, row: Tier) -> set[str]:
    """Return whose parts are dearer than the table says. Raises Unpriced when some are cheaper."""
    units = _units()
    apart = set()
    for key in prices.keys() - _RATES.keys():
        unit = units.get(key)
        if unit is None or (unit.family not in ("tokens", _TOOLS)):
            apart.add("call")
            continue
        if unit.family == _TOOLS:
            continue
        part, whole = _rate(prices, key, start), _at_most(row, unit.bucket)
        if part < whole:
            message = (
                f"prices a part of the model's tokens lower than the rest ({key}), which a price cannot say"
            )
            raise Unpriced(message)
        if part > whole:
            apart.add(unit.bucket)
    return apart


def _at_most(row: Tier, bucket: str) -> int:
    """Return what the table counts for a token of a bucket."""
    if bucket in ("cache_read", "cached_audio"):
        return row.cache_read or 0
    if bucket == "cache_write":
        return max(row.cache_write or row.input, row.cache_write_1h or 0)
    return row.output if bucket == "output" else row.input


def _units() -> dict[str, _Unit]:
    data: dict[str, dict[str, Any]] = importlib.import_module("genai_prices.data_units").unit_data
    return {
        unit["price_key"]: _Unit(unit["dimensions"]["family"], _bucket(unit["dimensions"]))
        for unit in data.values()
    }


def _bucket(dimensions: Mapping[str, str]) -> str:
    cache = dimensions.get("token_type", "")
    if cache == "cache_read":
        return "cached_audio" if dimensions.get("modality") == "audio" else "cache_read"
    return "cache_write" if cache == "cache_write" else dimensions.get("direction", "call")
