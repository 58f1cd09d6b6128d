"""A provider of kind `bedrock`: region, key or AWS credentials, and how its models are told to think."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, Secret, load, providers
from modelmeter_server.core.requests import ReasoningEffort
from modelmeter_server.drivers.bedrock import CAPABILITIES
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.parts import make_driver

PROVIDER = '[providers.b]\nkind = "bedrock"\nallow_direct_models = true\n'
REGION = 'region = "eu-central-1"\n'
KEY = 'api_key_env = "KEY"\n'
MODEL = '[models.m]\nprovider = "b"\nmodel = "us.amazon.nova-2-lite-v1:0"\n'


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a document."""

    def write_and_load(text, environ=None, **options):
        file = tmp_path / "m.toml"
        file.write_text(text)
        return load(file, {"KEY": "k"} if environ is None else environ, **options)

    return write_and_load


def mistakes_of(loaded, text, **options) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, **options)
    return [f"{each.path}: {each.problem}; {each.fix}" for each in caught.value.mistakes]


def test_the_region_makes_the_address_and_needs_no_key(loaded):
    (provider,) = loaded(PROVIDER + REGION).providers
    assert provider.base_url == "https://bedrock-runtime.eu-central-1.amazonaws.com"
    assert (provider.region, provider.keys) == ("eu-central-1", ())


def test_a_base_url_takes_the_place_of_the_regions_address(loaded):
    (provider,) = loaded(PROVIDER + REGION + 'base_url = "https://vpce.example.test"\n').providers
    assert (provider.base_url, provider.region) == ("https://vpce.example.test", "eu-central-1")


def test_with_a_key_and_an_address_no_region_is_needed(loaded):
    (provider,) = loaded(PROVIDER + KEY + 'base_url = "http://127.0.0.1:1"\n').providers
    assert (provider.keys[0].value, provider.region) == (Secret("k"), None)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (PROVIDER, "providers.b", 'lacks "region"'),
        (PROVIDER + KEY, "providers.b", 'lacks "region"'),
        (PROVIDER + 'base_url = "https://x"', "providers.b", 'lacks "region"'),
        (PROVIDER + 'region = "Frankfurt"', "providers.b.region", "eu-central-1"),
        (PROVIDER + 'region = "x.evil.test/"', "providers.b.region", "not the name of a region"),
        (PROVIDER + REGION + KEY.replace("KEY", "NO"), "providers.b.api_key_env", "NO is not set"),
        ('[providers.b]\nkind = "anthropic"\nbase_url = "https://x"\n' + REGION, "providers.b.region", "unknown key"),
        (PROVIDER + REGION + MODEL + 'reasoning_dialect = "novo"', "models.m.reasoning_dialect", 'mean "nova"'),
        (
            PROVIDER.replace("bedrock", "replay") + MODEL.replace("us.amazon.nova-2-lite-v1:0", "answer")
            + 'reasoning_dialect = "nova"',
            "models.m.reasoning_dialect",
            'goes with models of a "bedrock" provider',
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_where_it_stands(loaded, text: str, where: str, words: str):
    told = [each for each in mistakes_of(loaded, text) if each.startswith(f"{where}: ")]
    assert len(told) == 1
    assert words in told[0]


def test_without_botocore_a_provider_that_signs_is_a_mistake_that_names_the_extra(loaded, monkeypatch):
    monkeypatch.setattr(providers, "can_sign", lambda: False)
    (told,) = mistakes_of(loaded, PROVIDER + REGION)
    assert 'pip install "modelmeter-server[bedrock]"' in told
    assert loaded(PROVIDER + REGION + KEY).providers, "a key needs no signature"
    assert loaded(PROVIDER + REGION, read_keys=False).providers, "the file is checked, not this machine"


@pytest.mark.parametrize(("text", "signs"), [(REGION, True), (REGION + KEY, False)])
async def test_a_provider_without_a_key_signs_its_requests(loaded, text: str, signs: bool):
    (provider,) = loaded(PROVIDER + text).providers
    driver = make_driver(provider)
    assert isinstance(driver, HttpDriver)
    assert (driver._authenticator is not None) is signs
    await driver.aclose()


def test_a_dialect_decides_which_efforts_a_model_has(loaded):
    settings = loaded(PROVIDER + REGION + MODEL + 'reasoning_dialect = "nova"\n').models[0]
    spec = settings.spec("bedrock", CAPABILITIES)
    assert ReasoningEffort.LOW in spec.capabilities.reasoning_efforts
    assert spec.reasoning_dialect == "nova"
    plain = loaded(PROVIDER + REGION + MODEL).models[0].spec("bedrock", CAPABILITIES)
    assert (plain.capabilities, plain.reasoning_dialect) == (CAPABILITIES, None)
