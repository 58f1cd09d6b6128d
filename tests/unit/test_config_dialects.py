"""The key `dialect`: profiles by name, tables with what differs, and every mistake with its line."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.core.dialects import COMPATIBLE, DIALECTS, OPENAI, Dialect
from modelmeter_server.core.requests import ReasoningEffort, SchemaMode
from modelmeter_server.core.stop_reasons import Stop

ENVIRON = {"KEY": "sk-1"}
OWN = 'base_url = "http://localhost:1"\n'


@pytest.fixture
def load_text(tmp_path):
    """Return a function that loads a document with one chat provider in it."""

    def load_it(provider, models=""):
        file = tmp_path / "m.toml"
        head = '[providers.p]\nkind = "chat_completions"\nallow_direct_models = true\n'
        file.write_text(head + provider + models)
        return load(file, ENVIRON)

    return load_it


@pytest.fixture
def dialect_of(load_text):
    """Return a function that gives the dialect of a provider of one's own."""

    def read(value: str) -> Dialect:
        dialect = load_text(f"{OWN}dialect = {value}\n").providers[0].dialect
        assert dialect is not None
        return dialect

    return read


@pytest.fixture
def mistakes_of(load_text):
    """Return a function that gives the mistakes of a provider, without the folder's name."""

    def catch(provider, models=""):
        with pytest.raises(ConfigError) as caught:
            load_text(provider, models)
        return [each.split("m.toml:")[1] for each in str(caught.value).splitlines()]

    return catch


@pytest.mark.parametrize("name", DIALECTS)
def test_a_profile_is_named_by_a_string_or_as_the_base_of_a_table(dialect_of, name):
    assert dialect_of(f'"{name}"') == dialect_of(f'{{ base = "{name}" }}') == DIALECTS[name]


def test_a_provider_that_names_none_is_openais_or_a_server_of_ones_own(load_text):
    assert load_text('api_key_env = "KEY"\n').providers[0].dialect == OPENAI
    assert load_text(OWN).providers[0].dialect == COMPATIBLE
    assert load_text('api_key_env = "KEY"\n').providers[0].base_url == "https://api.openai.com/v1"


def test_the_address_of_a_known_server_is_known(load_text):
    provider = load_text('dialect = "groq"\napi_key_env = "KEY"\n').providers[0]
    assert provider.base_url == "https://api.groq.com/openai/v1"


def test_a_table_changes_what_it_names_and_nothing_else(dialect_of):
    table = (
        '{ base = "vllm", hidden_output = true, no_finish_reason = true, media = [], sampling = "seed",'
        ' reasoning_efforts = ["high", "low"], stop_reasons = { gone = "outside" }, path = "/x/chat",'
        ' api_version = "2026-01-01", auth_header = "X-Key", reasoning_fields = ["thoughts"] }'
    )
    read = dialect_of(table)
    assert (read.hidden_output, read.no_finish_reason, read.media, read.sampling) == (
        True,
        True,
        (),
        ("seed",),
    )
    assert read.reasoning_efforts == (ReasoningEffort.LOW, ReasoningEffort.HIGH)
    assert read.stop_reasons == {"gone": Stop.OUTSIDE}
    assert (read.path, read.api_version, read.auth_header) == ("/x/chat", "2026-01-01", "x-key")
    assert read.reasoning_fields == ("thoughts",)
    assert (read.name, read.max_tokens_field, read.tool_choice) == ("vllm", "max_tokens", True)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"grok"', 'p.dialect: "grok" is not a known value; did you mean "groq"?'),
        ("5", "p.dialect: is an integer; write "),
        ('{ base = "opnai" }', 'p.dialect.base: "opnai" is not a known value; did you mean "openai"?'),
        ("{ hiden_output = true }", 'p.dialect.hiden_output: unknown key; did you mean "hidden_output"?'),
        ('{ hidden_output = "yes" }', "p.dialect.hidden_output: is a string; write true or false"),
        ("{ max_stop_sequences = -1 }", "p.dialect.max_stop_sequences: -1 is out of range"),
        (
            '{ max_tokens_field = "n_predict" }',
            'p.dialect.max_tokens_field: "n_predict" is not a known value',
        ),
        ('{ media = ["video"] }', 'p.dialect.media: "video" is not a known value; known are image, audio'),
        ('{ reasoning_efforts = ["ultra"] }', 'p.dialect.reasoning_efforts: "ultra" is not a known value'),
        ('{ cache_marks = "all" }', 'p.dialect.cache_marks: "all" is not a known value'),
        ('{ end_user_field = "uid" }', 'p.dialect.end_user_field: "uid" is not a known value'),
        ('{ stop_reasons = { x = "over" } }', 'p.dialect.stop_reasons.x: "over" is not a known value'),
        ('{ path = "chat" }', 'p.dialect.path: "chat" cannot be sent'),
        ('{ path = "/a?b=c" }', 'p.dialect.path: "/a?b=c" cannot be sent'),
        ('{ api_version = "a&b" }', 'p.dialect.api_version: "a&b" cannot be sent'),
        ('{ auth_header = "a b" }', 'p.dialect.auth_header: "a b" cannot be sent'),
        ('{ auth_header = "Host" }', 'p.dialect.auth_header: "Host" cannot be sent'),
        ('{ reasoning_fields = ["a b"] }', 'p.dialect.reasoning_fields: "a b" is no member of a message'),
        ("{ strict = false, strict_schemas = true }", "p.dialect.strict_schemas: a server without `strict`"),
        (
            "{ tool_choice = false }",
            "p.dialect: a server that leaves the choice of tools to the model has no",
        ),
        ('{ effort_field = "reasoning.effort" }', "p.dialect.effort_field: there is no effort to send"),
        ('{ sampling = [], seed_field = "random_seed" }', "p.dialect.seed_field: there is no seed to send"),
        ("{ sampling = [], max_stop_sequences = 4 }", "p.dialect.max_stop_sequences: there are no stop"),
    ],
)
def test_a_mistake_is_told_with_its_line(mistakes_of, value, said):
    (mistake,) = mistakes_of(f"{OWN}dialect = {value}\n")
    assert mistake.startswith(f"5: providers.{said}")


def test_a_server_without_a_common_address_needs_one(mistakes_of):
    (mistake,) = mistakes_of('dialect = "snowflake"\napi_key_env = "KEY"\n')
    assert "has no base_url" in mistake


def test_other_kinds_have_no_dialects(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(
        '[providers.p]\nkind = "anthropic"\nallow_direct_models = true\ndialect = "openai"\n' + OWN
    )
    with pytest.raises(ConfigError, match=r"m\.toml:4: providers\.p\.dialect: unknown key"):
        load(file, ENVIRON)


def test_a_model_answers_in_a_mode_that_its_dialect_has(load_text, mistakes_of):
    model = '[models.m]\nprovider = "p"\nmodel = "x"\n'
    deepseek = 'dialect = "deepseek"\napi_key_env = "KEY"\n'
    assert load_text(deepseek, model).models[0].schema_mode is SchemaMode.FORCED_TOOL
    assert load_text(OWN, model).models[0].schema_mode is SchemaMode.NATIVE
    (mistake,) = mistakes_of(deepseek, model + 'schema_mode = "native"\n')
    assert mistake == (
        '9: models.m.schema_mode: the dialect of "p" cannot do "native"; write "forced_tool", or remove it'
    )


def test_a_tier_is_refused_for_a_server_that_has_none(load_text, mistakes_of):
    model = '[models.m]\nprovider = "p"\nmodel = "x"\nservice_tier = "flex"\n'
    (mistake,) = mistakes_of(f'{OWN}dialect = "vllm"\n{model}')
    assert 'models.m.service_tier: the dialect of "p" has no tiers' in mistake
    settings = load_text(f"{OWN}dialect = {{ service_tier = true }}\n{model}")
    assert settings.models[0].service_tier == "flex"
