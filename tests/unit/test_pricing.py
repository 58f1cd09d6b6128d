"""What a usage costs: once rounded, upwards; unpriced dimensions are lower bounds and never free."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.pricing import Cost, CostSource, PriceTable, Tier, nanos_per_million, price
from modelmeter_server.core.usage import AdditionalUsage, Usage

EXACT, AT_LEAST = Certainty.EXACT, Certainty.AT_LEAST
MILLION = 10**6


def table(*tiers: Tier, currency: str = "USD", **fees: int) -> PriceTable:
    return PriceTable(currency=currency, tiers=tiers, hosted_tool_requests=fees)


def usd(**rates: str) -> Tier:
    """Return a tier of these rates, in dollars per million tokens."""
    nanos: dict[str, Any] = {name: nanos_per_million(rate) for name, rate in rates.items()}
    return Tier(**{"input": 0, "output": 0, **nanos})


FULL = usd(
    input="3",
    output="15",
    cache_read="0.3",
    cache_write="3.75",
    cache_write_1h="6",
    input_audio="32",
    output_audio="64",
)


def used(**tokens: Any) -> Usage:
    """Return a usage in which input and output were told, as 0 unless named."""
    return Usage(**{"input_tokens": 0, "output_tokens": 0, **tokens})


def cost(tier: Tier, certainty: Certainty = EXACT, **tokens: Any) -> Cost:
    return price(table(tier), used(**tokens), certainty)


# Rates


@pytest.mark.parametrize(
    ("rate", "nanos"),
    [("5", 5 * 10**9), ("0.0375", 37_500_000), ("0", 0), ("0.000000001", 1), ("1.50", 1_500_000_000)],
)
def test_a_rate_is_a_decimal_string(rate: str, nanos: int):
    assert nanos_per_million(rate) == nanos


@given(st.integers(0, INT64_MAX))
def test_every_nano_can_be_said(nanos: int):
    assert nanos_per_million(f"{nanos // 10**9}.{nanos % 10**9:09}") == nanos


NO_RATES = [
    "",
    "free",
    "-1",
    "-0",
    "+1",
    "1e3",
    "9e999999",
    "1_000",
    " 5",
    "5\n",
    "1,5",
    "NaN",
    "Infinity",
    ".5",
    "5.",
]


@pytest.mark.parametrize("rate", NO_RATES)
def test_what_is_no_plain_decimal_is_no_rate(rate: str):
    with pytest.raises(ValueError, match="is not a decimal number"):
        nanos_per_million(rate)


@pytest.mark.parametrize(
    "rate", ["0.0000000001", "9223372036.854775808", "99999999999", "0." + "0" * 40 + "1"]
)
def test_a_rate_outside_what_can_be_held_is_refused(rate: str):
    with pytest.raises(ValueError, match="nine decimal places"):
        nanos_per_million(rate)


# What the table cannot know


def test_writes_that_nobody_told_the_ttl_of_cost_at_least_the_lower_rate():
    bill = cost(FULL, input_tokens=MILLION, cache_write_tokens=MILLION, cache_write_1h_tokens=400_000)
    assert (Fraction(bill.nano_units, 10**9), bill.certainty) == (Fraction("4.65"), AT_LEAST)
    dear = usd(input="3", cache_write="6", cache_write_1h="3.75")
    assert cost(dear, input_tokens=MILLION, cache_write_tokens=MILLION).nano_units == 3_750_000_000


@pytest.mark.parametrize("hour", [{}, {"cache_write_1h": "3.75"}])
def test_writes_of_one_rate_need_no_ttl(hour: dict[str, str]):
    one = usd(input="3", output="15", cache_write="3.75", **hour)
    bill = cost(one, input_tokens=MILLION, cache_write_tokens=MILLION)
    assert (bill.nano_units, bill.certainty) == (3_750_000_000, EXACT)


@pytest.mark.parametrize(
    ("told", "certainty"),
    [
        (None, EXACT),
        ("standard", EXACT),
        ("default", EXACT),
        ("auto", EXACT),
        ("ON_DEMAND", EXACT),
        ("flex", EXACT),
        ("priority", AT_LEAST),
    ],
)
def test_a_service_tier_without_rates_leaves_a_lower_bound(told: str | None, certainty: Certainty):
    rates = table(FULL, Tier(input=1, output=1, service_tier="flex"))
    assert price(rates, used(input_tokens=9), EXACT, service_tier=told).certainty is certainty


def test_another_price_factor_leaves_a_lower_bound():
    bill = price(table(FULL), used(input_tokens=MILLION), EXACT, price_factor="inference_geo=us")
    assert (bill.nano_units, bill.certainty) == (3 * 10**9, AT_LEAST)


# Rounding


def test_a_call_is_rounded_once_and_upwards():
    tier = usd(
        input="0.0000001", output="0.0000001"
    )  # 100 nanos a million: a token is a tenth of a micro-nano
    assert cost(tier, input_tokens=1).nano_units == 1
    assert cost(tier, input_tokens=5_000, output_tokens=5_000).nano_units == 1
    assert cost(tier, input_tokens=5_000, output_tokens=5_001).nano_units == 2
    assert cost(tier).nano_units == 0


def test_minor_units_are_rounded_up_from_the_sum():
    one = Cost(nano_units=1, currency="USD", source=CostSource.PRICE_TABLE, certainty=EXACT)
    assert one.minor_units == 1
    assert (
        Cost(nano_units=10**7, currency="USD", source=CostSource.PRICE_TABLE, certainty=EXACT).minor_units
        == 1
    )
    assert Cost(nano_units=0, currency="USD", source=CostSource.PRICE_TABLE, certainty=EXACT).minor_units == 0


def test_a_cost_says_where_it_comes_from():
    bill = cost(FULL, input_tokens=MILLION)
    assert (bill.nano_units, bill.currency, bill.source, bill.certainty) == (
        3 * 10**9,
        "USD",
        CostSource.PRICE_TABLE,
        EXACT,
    )


# Dimensions


@pytest.mark.parametrize(
    ("tokens", "dollars"),
    [
        ({"input_tokens": MILLION, "cache_read_tokens": MILLION}, Fraction("0.3")),
        (
            {"input_tokens": MILLION, "cache_write_tokens": MILLION, "cache_write_5m_tokens": MILLION},
            Fraction("3.75"),
        ),
        ({"input_tokens": MILLION, "cache_write_tokens": MILLION, "cache_write_1h_tokens": MILLION}, 6),
        (
            {
                "input_tokens": MILLION,
                "cache_write_tokens": MILLION,
                "cache_write_5m_tokens": 600_000,
                "cache_write_1h_tokens": 400_000,
            },
            Fraction("4.65"),
        ),
        ({"output_tokens": MILLION, "reasoning_tokens": 900_000}, 15),
        ({"input_tokens": MILLION, "input_audio_tokens": MILLION}, 32),
        ({"output_tokens": MILLION, "output_audio_tokens": 500_000}, Fraction("39.5")),
        ({"input_tokens": MILLION, "tool_prompt_tokens": MILLION, "input_image_tokens": MILLION}, 3),
    ],
)
def test_each_dimension_has_its_own_rate(tokens: dict[str, Any], dollars: Fraction):
    bill = cost(FULL, **tokens)
    assert (Fraction(bill.nano_units, 10**9), bill.certainty) == (dollars, EXACT)


@pytest.mark.parametrize(
    ("tokens", "dollars"),
    [
        ({"cache_read_tokens": MILLION}, 0),  # a read may be free
        ({"cache_write_tokens": MILLION}, 3),
        ({"cache_write_tokens": MILLION, "cache_write_1h_tokens": MILLION}, 3),
        ({"input_audio_tokens": MILLION}, 3),
        ({"output_tokens": MILLION, "output_audio_tokens": MILLION}, 18),
    ],
)
def test_an_unpriced_dimension_makes_the_cost_a_lower_bound(tokens: dict[str, Any], dollars: int):
    used_tokens: dict[str, Any] = {"input_tokens": MILLION, **tokens}
    bill = cost(usd(input="3", output="15"), **used_tokens)
    assert (bill.nano_units, bill.certainty) == (dollars * 10**9, AT_LEAST)


def test_a_one_hour_write_without_a_rate_costs_at_least_a_short_one():
    tokens: dict[str, Any] = dict.fromkeys(
        ("input_tokens", "cache_write_tokens", "cache_write_1h_tokens"), MILLION
    )
    bill = cost(usd(input="3", output="15", cache_write="3.75"), **tokens)
    assert (bill.nano_units, bill.certainty) == (3_750_000_000, AT_LEAST)
    free = cost(usd(input="3", output="15", cache_write="0"), **tokens)
    assert (free.nano_units, free.certainty) == (0, AT_LEAST)


def test_an_unpriced_dimension_that_was_not_used_costs_no_certainty():
    assert cost(usd(input="3", output="15"), input_tokens=5, cache_read_tokens=0).certainty is EXACT


def test_a_figure_that_was_never_told_leaves_a_lower_bound():
    for usage in (Usage(input_tokens=5), Usage(output_tokens=5), Usage()):
        assert price(table(FULL), usage, EXACT).certainty is AT_LEAST


@pytest.mark.parametrize("certainty", [AT_LEAST, Certainty.UNKNOWN, Certainty.NONE])
def test_the_certainty_of_the_usage_is_the_costs(certainty: Certainty):
    assert cost(FULL, certainty, input_tokens=5).certainty is certainty
    assert (
        cost(usd(input="3", output="15"), certainty, input_tokens=5, cache_read_tokens=5).certainty
        is certainty
    )


def test_a_subset_larger_than_its_whole_is_clamped():
    read = cost(FULL, input_tokens=7, cache_read_tokens=161)
    assert read.nano_units == cost(FULL, input_tokens=7, cache_read_tokens=7).nano_units
    both = cost(FULL, input_tokens=10, cache_read_tokens=8, cache_write_tokens=8)
    assert (
        both.nano_units == cost(FULL, input_tokens=10, cache_read_tokens=8, cache_write_tokens=2).nano_units
    )
    hour = cost(FULL, input_tokens=10, cache_write_tokens=4, cache_write_1h_tokens=9)
    assert (
        hour.nano_units
        == cost(FULL, input_tokens=10, cache_write_tokens=4, cache_write_1h_tokens=4).nano_units
    )
    loud = cost(FULL, output_tokens=3, output_audio_tokens=9)
    assert loud.nano_units == cost(FULL, output_tokens=3, output_audio_tokens=3).nano_units


# Tiers


LONG = Tier(input=6, output=6, above_input_tokens=200_000)
BATCH = Tier(input=1, output=1, service_tier="batch")
LONG_BATCH = Tier(input=2, output=2, above_input_tokens=200_000, service_tier="batch")
BASE = Tier(input=3, output=3)


@pytest.mark.parametrize(
    ("input", "service", "tier"),
    [
        (0, None, BASE),
        (200_000, None, BASE),
        (200_001, None, LONG),
        (0, "batch", BATCH),
        (200_000, "batch", BATCH),
        (200_001, "batch", LONG_BATCH),
        (200_001, "priority", LONG),
        (5, "priority", BASE),
    ],
)
def test_the_most_specific_tier_holds(input: int, service: str | None, tier: Tier):
    assert table(BASE, LONG, BATCH, LONG_BATCH).tier_for(input, service) == tier


def test_a_named_service_tier_wins_over_a_longer_prompt():
    assert table(BASE, LONG, BATCH).tier_for(300_000, "batch") == BATCH


def test_the_whole_call_goes_by_one_tier():
    tiers = table(usd(input="3", output="15"), Tier(input=6 * 10**9, output=0, above_input_tokens=200_000))
    assert price(tiers, Usage(input_tokens=MILLION, output_tokens=MILLION), EXACT).nano_units == 6 * 10**9


# Beside the tokens of the call


BESIDE = AdditionalUsage(kind="advisor", model="m-adv", usage=used(input_tokens=MILLION))


def bill_with(*additional: AdditionalUsage, **tables: PriceTable) -> Cost:
    usage = used(input_tokens=MILLION)
    models = {name.replace("_", "-"): each for name, each in tables.items()}
    return price(table(FULL), usage, EXACT, additional=additional, tables=models)


def test_additional_work_goes_at_its_own_models_price():
    bill = bill_with(BESIDE, m_adv=table(usd(input="9", output="1")))
    assert (bill.nano_units, bill.certainty) == (12 * 10**9, EXACT)


def test_additional_work_without_a_model_goes_at_the_calls_price():
    own = AdditionalUsage(kind="compaction", usage=used(input_tokens=MILLION))
    assert (bill_with(own).nano_units, bill_with(own).certainty) == (6 * 10**9, EXACT)


def test_additional_work_without_a_price_leaves_a_lower_bound():
    for bill in (bill_with(BESIDE), bill_with(BESIDE, m_adv=table(FULL, currency="EUR"))):
        assert (bill.nano_units, bill.currency, bill.certainty) == (3 * 10**9, "USD", AT_LEAST)


def test_additional_work_without_figures_leaves_a_lower_bound():
    assert bill_with(AdditionalUsage(kind="compaction", usage=Usage())).certainty is AT_LEAST


def test_all_work_of_a_call_is_rounded_together():
    tier = usd(input="0.0000001", output="0")
    own = AdditionalUsage(kind="compaction", usage=used(input_tokens=5_000))
    bill = price(table(tier), used(input_tokens=5_000), EXACT, additional=(own,))
    assert bill.nano_units == 1


def test_requests_to_hosted_tools_are_billed_apiece():
    usage = used(hosted_tool_requests={"web_search": 3})
    assert price(table(FULL, web_search=10_000_000), usage, EXACT).nano_units == 30_000_000
    unpriced = price(table(FULL), usage, EXACT)
    assert (unpriced.nano_units, unpriced.certainty) == (0, AT_LEAST)


def test_a_cost_saturates_and_says_so():
    bill = cost(FULL, output_tokens=INT64_MAX)
    assert (bill.nano_units, bill.certainty) == (INT64_MAX, AT_LEAST)


# Against an independent computation

COUNT = st.integers(0, 10**7)
RATE = st.integers(0, 10**12)
RATES = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "input_audio", "output_audio")
TIERS = st.fixed_dictionaries(dict.fromkeys(RATES, RATE)).map(lambda rates: msgspec.convert(rates, Tier))
COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)
USAGES = st.fixed_dictionaries(dict.fromkeys(COUNTERS, COUNT))


@given(TIERS, USAGES, COUNT, RATE)
def test_a_cost_equals_an_independent_computation(tier: Tier, told: dict[str, Any], searches: int, fee: int):
    read = min(told["cache_read_tokens"], told["input_tokens"])
    write = min(told["cache_write_tokens"], told["input_tokens"] - read)
    hour = min(told["cache_write_1h_tokens"], write)
    unknown = max(0, write - hour - told["cache_write_5m_tokens"])
    fresh = told["input_tokens"] - read - write
    heard, said = (
        min(told["input_audio_tokens"], fresh),
        min(told["output_audio_tokens"], told["output_tokens"]),
    )
    rated = [
        (fresh - heard, tier.input),
        (heard, tier.input_audio),
        (read, tier.cache_read),
        (write - hour - unknown, tier.cache_write),
        (unknown, min(tier.cache_write or 0, tier.cache_write_1h or 0)),
        (hour, tier.cache_write_1h),
        (told["output_tokens"] - said, tier.output),
        (said, tier.output_audio),
    ]
    exact = sum(Fraction(tokens * (rate or 0), MILLION) for tokens, rate in rated) + searches * fee
    usage = used(**told, hosted_tool_requests={"search": searches})
    bill = price(table(tier, search=fee), usage, EXACT)
    assert bill.nano_units == min(INT64_MAX, ceil(exact))
    is_known = unknown == 0 or tier.cache_write == tier.cache_write_1h
    assert (bill.certainty is EXACT) == (exact <= INT64_MAX and is_known)


@given(USAGES, st.sampled_from(["input_tokens", "output_tokens"]), COUNT)
def test_more_tokens_never_cost_less(told: dict[str, Any], counter: str, more: int):
    few, many = cost(FULL, **told), cost(FULL, **{**told, counter: told[counter] + more})
    assert few.nano_units <= many.nano_units


@given(USAGES, st.sampled_from(COUNTERS[3:]), COUNT)
def test_a_larger_dear_part_never_costs_less(told: dict[str, Any], counter: str, more: int):
    # FULL prices writes, long writes and audio above what they are a part of.
    told = {**told, "cache_read_tokens": 0, "input_audio_tokens": 0} if counter.startswith("cache") else told
    few, many = cost(FULL, **told), cost(FULL, **{**told, counter: told[counter] + more})
    assert few.nano_units <= many.nano_units


@given(USAGES, COUNT)
def test_more_cache_reads_never_cost_more(told: dict[str, Any], more: int):
    few, many = (
        cost(FULL, **told),
        cost(FULL, **{**told, "cache_read_tokens": told["cache_read_tokens"] + more}),
    )
    assert many.nano_units <= few.nano_units
