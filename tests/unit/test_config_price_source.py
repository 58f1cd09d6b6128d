"""`price = "genai-prices"` and `recoverable` of a model: what they become, each mistake with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelmeter.v1 import model_service_pb2
from modelmeter_server.commands.config import config
from modelmeter_server.config import ConfigError, Settings, load
from modelmeter_server.core.models import Capabilities
from modelmeter_server.rpc.convert_model import fill_model

PROVIDERS = """
[providers.openai]
kind = "openai_responses"
api_key_env = "K"
[providers.groq]
kind = "chat_completions"
dialect = "groq"
api_key_env = "K"
[providers.own]
kind = "anthropic"
base_url = "https://models.example"
api_key_env = "K"
[providers.replay]
kind = "replay"
[models.m]
"""
LINE = PROVIDERS.count("\n") + 3
"""Where the third line of a model stands."""


def read(folder: Path, *lines: str) -> Settings:
    file = folder / "m.toml"
    file.write_text(PROVIDERS + "\n".join(lines))
    return load(file, {"K": "sk"})


def mistakes(folder: Path, *lines: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, *lines)
    return [str(each).removeprefix(f"{folder}/") for each in caught.value.mistakes]


PRICED = ('provider = "openai"', 'model = "gpt-4.1"', 'price = "genai-prices"')


def test_a_model_is_priced_by_its_providers_address_and_its_name(tmp_path):
    (model,) = read(tmp_path, *PRICED).models
    assert model.price is not None
    assert (model.price.source, model.price.source_entry) == ("genai-prices", "openai/gpt-4.1")
    assert model.price.tiers[0].input > 0


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ('provider = "openai"', 'model = "text-embedding-3-small"', 'task = "embedding"'),
            "openai/text-embedding-3-small",
        ),
        (
            ('provider = "groq"', 'model = "llama-3.3-70b-versatile"', "buffered = true"),
            "groq/llama-3.3-70b-versatile",
        ),
    ],
)
def test_embeddings_and_compatible_servers_are_priced_alike(tmp_path, lines, told):
    (model,) = read(tmp_path, *lines, 'price = "genai-prices"').models
    assert model.price is not None
    assert model.price.source_entry == told


def test_what_the_rates_are_dated_by_is_told_by_the_model_and_by_config_check(tmp_path):
    (model,) = read(tmp_path, *PRICED).models
    assert model.price is not None
    message = model_service_pb2.Model()
    fill_model(message, model.spec("openai_responses", Capabilities()))
    assert (message.price.source, message.price.source_version, message.price.source_entry) == (
        "genai-prices",
        model.price.source_version,
        "openai/gpt-4.1",
    )
    assert not message.price.partial
    shown = CliRunner().invoke(config, ["check", str(tmp_path / "m.toml"), "--no-keys"])
    assert f"m is priced by openai/gpt-4.1 of genai-prices {model.price.source_version}\n" in shown.stdout


@pytest.mark.parametrize(
    ("provider", "model", "problem", "fix"),
    [
        (
            "openai",
            "gpt-4.11",
            'genai-prices has no model "gpt-4.11" of OpenAI',
            "its names near it: gpt-4.1",
        ),
        (
            "own",
            "claude-opus-5",
            "genai-prices does not know the prices of this provider's address",
            "write a table",
        ),
        ("replay", "answer", 'genai-prices knows no prices of "replay"', "write a table"),
    ],
)
def test_a_model_without_a_price_is_a_mistake_with_its_line(tmp_path, provider, model, problem, fix):
    (mistake,) = mistakes(
        tmp_path, f'provider = "{provider}"', f'model = "{model}"', 'price = "genai-prices"'
    )
    assert mistake.startswith(f"m.toml:{LINE}: models.m.price: {problem}; {fix}")


def test_another_collection_is_a_mistake(tmp_path):
    (mistake,) = mistakes(tmp_path, *PRICED[:2], 'price = "genai-price"')
    assert mistake.endswith('did you mean "genai-prices"?')


def test_without_the_package_the_mistake_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data", None)
    (mistake,) = mistakes(tmp_path, *PRICED)
    assert 'pip install "modelmeter-server[prices]"' in mistake


def test_a_price_that_is_neither_a_table_nor_a_name_is_a_mistake(tmp_path):
    (mistake,) = mistakes(tmp_path, *PRICED[:2], "price = 3")
    assert (
        mistake == f'm.toml:{LINE}: models.m.price: is an integer; write a table of rates, or "genai-prices"'
    )


# What cutting a request does to its bill


@pytest.mark.parametrize(
    ("lines", "stops"),
    [
        ((), True),
        (("recoverable = true",), False),
        (("recoverable = true", "abort_stops_billing = true"), True),
        (("abort_stops_billing = false",), False),
    ],
)
def test_what_runs_in_the_background_is_billed_after_a_cut(tmp_path, lines, stops):
    (model,) = read(tmp_path, *PRICED[:2], *lines).models
    assert model.abort_stops_billing is stops


def test_only_the_responses_api_keeps_answers(tmp_path):
    (mistake,) = mistakes(tmp_path, 'provider = "groq"', 'model = "m"', "recoverable = true")
    assert mistake.startswith(f"m.toml:{LINE}: models.m.recoverable: goes with models of an")


def test_an_embedding_model_says_how_it_is_booked_and_not_how_it_generates(tmp_path):
    lines = ('provider = "openai"', 'model = "e"', 'task = "embedding"')
    (model,) = read(tmp_path, *lines, 'identity = "e-1"', "reserve_factor = 2", 'on_cancel = "drain"').models
    assert (model.identity, model.reserve_factor, model.on_cancel.value) == ("e-1", 2, "drain")
    told = mistakes(tmp_path, *lines, "clamp_output = 1", "max_tokens_per_second = 1", "recoverable = true")
    assert [mistake.split(": ")[1] for mistake in told] == [
        "models.m.clamp_output",
        "models.m.max_tokens_per_second",
        "models.m.recoverable",
    ]
