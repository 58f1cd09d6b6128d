"""`price = "genai-prices"`: rates of the installed package; what a table cannot hold is refused or a lower bound."""

from __future__ import annotations

import sys
from datetime import date, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import types
from genai_prices.data import providers

from modelmeter_server.config import price_collection
from modelmeter_server.config.price_collection import NotInstalled, Unpriced, find_price
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.pricing import APART, PriceTable, price
from modelmeter_server.core.usage import Usage

ADDRESS = "https://models.example"
TODAY = date(2026, 5, 1)
BASE = {"input_mtok": Decimal("3"), "output_mtok": Decimal("15")}


def prices(**changes: Any) -> types.ModelPrice:
    return types.ModelPrice(**{**BASE, **changes})


def listed(standing: Any, *variants: types.PriceVariant, provider: str = "acme") -> types.Provider:
    model = types.ModelInfo(
        id="m-1", match=types.ClauseEquals("m-1"), prices=standing, price_variants=list(variants)
    )
    return types.Provider(id=provider, name="Acme", api_pattern="https://models", models=[model])


@pytest.fixture
def found(monkeypatch):
    """Return what a model costs whose prices are these."""

    fresh = price_collection._snapshot

    def find(standing: Any, *variants: types.PriceVariant, **options: Any) -> PriceTable:
        listing = [listed(standing, *variants, provider=options.pop("provider", "acme"))]
        snapshot = fresh()
        snapshot.providers = listing
        monkeypatch.setattr(price_collection, "_snapshot", lambda: snapshot)
        return find_price(options.pop("address", ADDRESS), options.pop("model", "m-1"), TODAY, **options)

    return find


def tiered(base: str, *steps: tuple[int, str]) -> types.TieredPrices:
    return types.TieredPrices(Decimal(base), [types.Tier(start, Decimal(rate)) for start, rate in steps])


def cost(table: PriceTable, **usage: Any) -> tuple[int, Certainty]:
    told = price(table, Usage(**{"input_tokens": 1000, "output_tokens": 10, **usage}), Certainty.EXACT)
    return told.nano_units, told.certainty


def test_every_rate_is_taken_over(found):
    table = found(
        prices(
            cache_read_mtok=Decimal("0.3"),
            cache_write_mtok=Decimal("3.75"),
            cache_write_1h_mtok=Decimal("6"),
            input_audio_mtok=Decimal("7"),
            output_audio_mtok=Decimal("20"),
        )
    )
    (tier,) = table.tiers
    assert (tier.input, tier.output, tier.cache_read) == (3 * 10**9, 15 * 10**9, 3 * 10**8)
    assert (tier.cache_write, tier.cache_write_1h) == (3_750_000_000, 6 * 10**9)
    assert (tier.input_audio, tier.output_audio) == (7 * 10**9, 20 * 10**9)
    assert (table.currency, table.source, table.source_entry) == ("USD", "genai-prices", "acme/m-1")
    assert table.source_version
    assert cost(table) == (3_150_000, Certainty.EXACT)


def test_long_prompts_and_service_tiers_have_rows_of_their_own(found):
    standing = prices(input_mtok=tiered("3", (200, "6")), output_mtok=tiered("15", (200, "20"), (500, "30")))
    flex = types.PriceVariant({"service_tier": "flex"}, types.ModelPrice(input_mtok=Decimal("1")))
    default = types.PriceVariant({"service_tier": "default"}, types.ModelPrice())
    table = found(standing, default, flex)
    rows = [
        (tier.service_tier, tier.above_input_tokens, tier.input // 10**9, tier.output // 10**9)
        for tier in table.tiers
    ]
    assert rows == [
        (None, 0, 3, 15),
        (None, 200, 6, 20),
        (None, 500, 6, 30),
        ("flex", 0, 1, 15),
        ("flex", 200, 1, 20),
        ("flex", 500, 1, 30),
    ]


def test_the_last_price_that_has_begun_stands(found):
    begun = types.ConditionalPrice(types.StartDateConstraint(TODAY), prices=prices(input_mtok=Decimal("2")))
    table = found([types.ConditionalPrice(prices=prices()), begun])
    assert table.tiers[0].input == 2 * 10**9


def test_a_fee_for_a_search_is_anthropics_alone(found):
    standing = prices(web_searches_kcount=Decimal("10"))
    ours, others = found(standing, provider="anthropic"), found(standing)
    assert ours.hosted_tool_requests == {"web_search": 10_000_000}
    assert others.hosted_tool_requests == {}
    assert cost(others, hosted_tool_requests={"web_search": 1})[1] is Certainty.AT_LEAST


def test_an_embedding_model_needs_no_price_of_output(found):
    standing = types.ModelPrice(input_mtok=Decimal("0.02"))
    assert found(standing, has_output=False).tiers[0].input == 20_000_000
    with pytest.raises(Unpriced, match="something else than tokens"):
        found(standing)


# What a table cannot hold: more than it says is a lower bound

DEARER: list[tuple[dict[str, str], str, dict[str, Any], dict[str, Any]]] = [
    ({"requests_kcount": "5"}, "call", {}, {"output_tokens": 0, "input_tokens": 0}),
    ({"input_image_mtok": "4"}, "input", {}, {}),
    ({"output_image_mtok": "30"}, "output", {}, {}),
    (
        {"cache_read_mtok": "1", "cache_image_read_mtok": "2"},
        "cache_read",
        {"cache_read_tokens": 0},
        {"cache_read_tokens": 9},
    ),
    (
        {"cache_read_mtok": "1", "cache_audio_read_mtok": "2"},
        "cached_audio",
        {"cache_read_tokens": 9},
        {"cache_read_tokens": 9, "input_audio_tokens": 5},
    ),
]


@pytest.mark.parametrize(("rates", "apart", "without", "using"), DEARER, ids=lambda each: str(each)[:24])
def test_what_costs_more_than_the_table_says_makes_a_lower_bound(found, rates, apart, without, using):
    table = found(prices(**{key: Decimal(rate) for key, rate in rates.items()}))
    assert table.apart == {apart}
    assert cost(table, **using)[1] is Certainty.AT_LEAST
    if without:
        assert cost(table, **without)[1] is Certainty.EXACT


def test_a_part_at_the_price_of_the_whole_changes_nothing(found):
    assert found(prices(input_image_mtok=Decimal("3"))).apart == frozenset()


# What would make it too high, or changes it with time, is refused

LATER = types.StartDateConstraint(date(2026, 5, 2))
NIGHT = types.TimeOfDateConstraint(time(0), time(6))
REFUSED: list[tuple[Any, tuple[Any, ...], str]] = [
    (prices(output_reasoning_mtok=Decimal("3")), (), "lower than the rest"),
    (
        [types.ConditionalPrice(prices=prices()), types.ConditionalPrice(LATER, prices=prices())],
        (),
        "2026-05-02",
    ),
    ([types.ConditionalPrice(NIGHT, prices=prices())], (), "time of day"),
    (prices(), (types.PriceVariant({"service_tier": "flex"}, prices(), LATER),), "2026-05-02"),
    (prices(), (types.PriceVariant({"route": "eu"}, prices()),), "change with route"),
    (
        prices(),
        (types.PriceVariant({"service_tier": "flex", "route": "eu"}, prices()),),
        "route, service_tier",
    ),
    (types.ModelPrice(audio_hours=Decimal("1")), (), "something else than tokens"),
    (prices(input_mtok=Decimal("0.0000000001")), (), "nine decimal places"),
    ([], (), "no price for the model yet"),
]


@pytest.mark.parametrize(("standing", "variants", "why"), REFUSED, ids=[why for _, _, why in REFUSED])
def test_what_could_be_wrong_is_refused(found, standing, variants, why):
    with pytest.raises(Unpriced, match=why):
        found(standing, *variants)


@pytest.mark.parametrize(
    "when", [{"processing": "batch"}, {"processing": "batch", "service_tier": "flex"}, {"speed": "fast"}]
)
def test_what_this_service_does_not_ask_for_or_hears_of_is_left_out(found, when):
    cheap = types.PriceVariant(when, prices(input_mtok=Decimal("1")), LATER)
    assert [tier.input for tier in found(prices(), cheap).tiers] == [3 * 10**9]


def test_a_name_or_an_address_that_is_not_there_is_refused_with_what_is_near(found):
    with pytest.raises(Unpriced) as missing:
        found(prices(), model="m-2")
    assert missing.value.near == ("m-1",)
    with pytest.raises(Unpriced, match="address"):
        found(prices(), address="https://elsewhere.example")


def test_vertex_in_a_region_costs_more_than_the_data_says():
    regional = find_price("https://europe-west1-aiplatform.googleapis.com", "claude-opus-4-5", TODAY)
    everywhere = find_price("https://aiplatform.googleapis.com", "claude-opus-4-5", TODAY)
    assert regional.apart == frozenset({"call"})
    assert everywhere.apart == frozenset()


def test_without_the_package_nothing_is_priced(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data", None)
    with pytest.raises(NotInstalled):
        find_price("https://api.openai.com/v1", "gpt-4.1", TODAY)


# The data as it is installed: what stands in it is priced as the package prices it, or refused

ADDRESSES = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com",
    "aws": "https://bedrock-runtime.us-east-1.amazonaws.com",
    "groq": "https://api.groq.com/openai/v1",
    "x-ai": "https://api.x.ai/v1",
}
USAGES = [
    {"input_tokens": 300_001, "output_tokens": 7_003},
    {"input_tokens": 30_000, "output_tokens": 7_000, "cache_read_tokens": 20_000},
]


@pytest.mark.parametrize("usage", USAGES, ids=["long", "cached"])
@pytest.mark.parametrize("provider", ADDRESSES)
def test_a_cost_is_the_packages_own_or_a_bound_below_it(provider, usage):
    listing = next(each for each in providers if each.id == provider)
    at, exact = date.today(), 0
    for model in listing.models:
        try:
            table = find_price(ADDRESSES[provider], model.id, at)
        except Unpriced:
            continue
        assert table.apart <= set(APART)
        chosen = listing.find_model(model.id, all_providers=list(providers))
        assert chosen is not None
        theirs = chosen.calc_price(types.Usage(**usage), listing).total_price
        ours, certainty = cost(table, **usage)
        assert ours <= -(-theirs * 10**9 // 1)
        if certainty is Certainty.EXACT:
            exact += 1
            assert abs(ours - theirs * 10**9) <= 1
    assert exact
