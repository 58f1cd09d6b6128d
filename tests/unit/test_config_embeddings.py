"""Embedding models in a configuration: what goes with them and what does not, each mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelmeter_server.config import ConfigError, Settings, load
from modelmeter_server.core.models import Capabilities, Task

PROVIDERS = """
[providers.openai]
kind = "openai_responses"
api_key_env = "K"
[providers.claude]
kind = "anthropic"
api_key_env = "K"
[providers.aws]
kind = "bedrock"
region = "us-east-1"
api_key_env = "K"
[providers.replay]
kind = "replay"
[models.m]
"""


def read(folder: Path, model: str) -> Settings:
    file = folder / "m.toml"
    file.write_text(PROVIDERS + model)
    return load(file, {"K": "sk"})


def test_an_embedding_model_needs_no_price_of_output(tmp_path):
    (model,) = read(
        tmp_path,
        'provider = "openai"\nmodel = "e"\ntask = "embedding"\nprice = { currency = "USD", input = "0.02" }',
    ).models
    assert model.task is Task.EMBEDDING
    assert model.price is not None
    assert (model.price.tiers[0].input, model.price.tiers[0].output) == (20_000_000, 0)
    assert model.spec("openai_responses", Capabilities()).task is Task.EMBEDDING


def test_a_model_completes_unless_it_says_otherwise(tmp_path):
    (model,) = read(tmp_path, 'provider = "openai"\nmodel = "m"').models
    assert (model.task, model.embedding_dialect) == (Task.COMPLETION, None)


@pytest.mark.parametrize("dialect", ["titan", "cohere"])
def test_a_model_of_bedrock_names_its_family(tmp_path, dialect):
    text = f'provider = "aws"\nmodel = "e"\ntask = "embedding"\nembedding_dialect = "{dialect}"'
    (model,) = read(tmp_path, text).models
    assert model.spec("bedrock", Capabilities()).embedding_dialect == dialect


EMBEDDING = 'model = "e"\ntask = "embedding"\n'


@pytest.mark.parametrize(
    ("model", "key", "fix"),
    [
        ('provider = "claude"\n' + EMBEDDING, "provider", "no embeddings"),
        ('provider = "openai"\nmodel = "e"\ntask = "embeding"', "task", 'did you mean "embedding"?'),
        ('provider = "openai"\n' + EMBEDDING + "max_output_tokens = 5", "max_output_tokens", "remove it"),
        ('provider = "openai"\n' + EMBEDDING + 'hosted_tools = ["web_search"]', "hosted_tools", "remove it"),
        ('provider = "openai"\n' + EMBEDDING + 'schema_mode = "native"', "schema_mode", "remove it"),
        ('provider = "openai"\n' + EMBEDDING + 'embedding_dialect = "titan"', "embedding_dialect", "bedrock"),
        ('provider = "openai"\nmodel = "m"\nembedding_dialect = "titan"', "embedding_dialect", "task"),
        ('provider = "aws"\n' + EMBEDDING, "", 'lacks "embedding_dialect"'),
        ('provider = "aws"\n' + EMBEDDING + 'embedding_dialect = "nova"', "embedding_dialect", "cohere"),
        ('provider = "replay"\n' + EMBEDDING, "model", 'write "embedding"'),
        ('provider = "openai"\n' + EMBEDDING + 'price = { currency = "USD" }', "price", 'lacks "input"'),
        (
            'provider = "openai"\n' + EMBEDDING + 'max_sensitivity = "secrets"',
            "max_sensitivity",
            'did you mean "secret"?',
        ),
    ],
)
def test_a_mistake_of_an_embedding_model_is_told_with_its_key(tmp_path, model, key, fix):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, model)
    (mistake,) = str(caught.value).splitlines()
    assert f"models.m{'.' if key else ''}{key}: " in mistake
    assert fix in mistake


def test_a_price_of_a_completion_still_needs_both_rates(tmp_path):
    with pytest.raises(ConfigError, match='lacks "output"'):
        read(tmp_path, 'provider = "openai"\nmodel = "m"\nprice = { currency = "USD", input = "1" }')
