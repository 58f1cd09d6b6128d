"""Models by the names that callers use."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.models import Capabilities, ModelSpec
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.requests import SchemaMode
from modelmeter_server.engine.catalog import MAX_DIRECT_NAME, Catalog

PRICE = PriceTable(currency="USD", tiers=(Tier(input=1, output=2),))
ALIAS = ModelSpec(
    name="claude",
    provider="anthropic",
    provider_kind="anthropic",
    provider_model="claude-opus-5",
    price=PRICE,
)
DIRECT = {
    "router": ("chat_completions", Capabilities(media=("image",))),
    "anthropic": ("anthropic", Capabilities()),
}


def test_an_alias_is_found_by_its_exact_name():
    catalog = Catalog([ALIAS])
    assert catalog.find("claude") is ALIAS
    assert catalog.find("Claude") is None
    assert catalog.find("") is None


def test_a_direct_name_is_split_at_its_first_slash():
    model = Catalog([], DIRECT).find("router/meta/llama-4")
    assert model is not None
    assert (model.name, model.provider, model.provider_model) == (
        "router/meta/llama-4",
        "router",
        "meta/llama-4",
    )
    assert (model.provider_kind, model.capabilities.media) == ("chat_completions", ("image",))


@pytest.mark.parametrize(
    "name",
    [
        "router/",
        "router",
        "/x",
        "other/x",
        "router/a b",
        "router/a\n",
        "router/" + "x" * (MAX_DIRECT_NAME + 1),
    ],
)
def test_what_no_provider_could_serve_is_not_found(name):
    assert Catalog([ALIAS], DIRECT).find(name) is None


def test_direct_names_need_the_providers_permission():
    assert Catalog([ALIAS]).find("anthropic/claude-opus-5") is None


@pytest.mark.parametrize(
    ("able", "mode"),
    [
        ((SchemaMode.NATIVE, SchemaMode.FORCED_TOOL), SchemaMode.NATIVE),
        ((SchemaMode.FORCED_TOOL,), SchemaMode.FORCED_TOOL),
        ((), SchemaMode.NATIVE),
    ],
)
def test_a_direct_name_answers_in_a_mode_that_its_provider_has(able, mode):
    model = Catalog([], {"p": ("chat_completions", Capabilities(schema_modes=able))}).find("p/m")
    assert model is not None
    assert model.schema_mode is mode


def test_an_alias_that_looks_like_a_direct_name_wins():
    alias = msgspec.structs.replace(ALIAS, name="router/x")
    assert Catalog([alias], DIRECT).find("router/x") is alias


def test_a_direct_name_has_the_price_of_the_alias_for_the_same_model():
    model = Catalog([ALIAS], DIRECT).find("anthropic/claude-opus-5")
    assert model is not None
    assert model.price == PRICE


def test_prices_are_kept_apart_by_provider():
    other = msgspec.structs.replace(ALIAS, name="b", provider="other", price=None)
    catalog = Catalog([ALIAS, other])
    assert catalog.price_tables("anthropic") == {"claude-opus-5": PRICE}
    assert catalog.price_tables("other") == {}


def test_two_models_cannot_have_one_name():
    with pytest.raises(ValueError, match='two models are called "claude"'):
        Catalog([ALIAS, ALIAS])


@given(st.sets(st.text(max_size=3), max_size=20), st.integers(1, 7))
def test_pages_hold_every_model_once_in_order(names, size):
    catalog = Catalog([msgspec.structs.replace(ALIAS, name=name) for name in names if name])
    listed: list[str] = []
    after: str | None = ""
    while after is not None:
        models, after = catalog.page(after, size)
        assert len(models) <= size
        listed += [model.name for model in models]
    assert listed == sorted(name for name in names if name)
