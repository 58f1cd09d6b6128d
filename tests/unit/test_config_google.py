"""`credentials = "google"`: who may have it, what else it needs, and what it makes of an instance."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.drivers import google_credentials
from modelmeter_server.drivers.google_credentials import GoogleCredentials
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.parts import make_driver
from tests.support.google_account import account_file

PROVIDER = '[providers.v]\nkind = "{kind}"\nallow_direct_models = true\n'
GOOGLE = 'credentials = "google"\n'
FILE = 'credentials_file = "account.json"\n'


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a provider beside the file of an account."""
    account_file(tmp_path, "http://127.0.0.1:1")

    def write_and_load(text, kind="gemini", **options):
        file = tmp_path / "m.toml"
        file.write_text(PROVIDER.format(kind=kind) + text)
        return load(file, {"KEY": "k"}, **options)

    return write_and_load


def mistakes_of(loaded, text, kind="gemini") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, kind)
    return [f"{each.path}: {each.problem}; {each.fix}" for each in caught.value.mistakes]


@pytest.mark.parametrize("kind", ["gemini", "chat_completions"])
@pytest.mark.parametrize("file", ["", FILE])
async def test_an_instance_with_googles_credentials_needs_no_key(loaded, kind, file):
    (provider,) = loaded(GOOGLE + file, kind).providers
    assert provider.keys == ()
    driver = make_driver(provider)
    assert isinstance(driver, HttpDriver)
    assert isinstance(driver._authenticator, GoogleCredentials)
    assert driver._authenticator._file == provider.credentials_file
    await driver.aclose()


def test_without_either_there_is_no_key(loaded):
    assert mistakes_of(loaded, "")[0].startswith("providers.v: has no key")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai_responses", "replay"])
def test_other_kinds_have_none(loaded, kind):
    assert any("providers.v.credentials: unknown key" in each for each in mistakes_of(loaded, GOOGLE, kind))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('credentials = "googl"\n', 'providers.v.credentials: "googl" is not a known value; did you mean "google"?'),
        (GOOGLE + 'api_key_env = "KEY"\n', "providers.v.credentials: there are two ways to authenticate"),
        ('api_key_env = "KEY"\n' + FILE, "providers.v.credentials_file: goes with credentials; write"),
        (GOOGLE + 'credentials_file = "none.json"\n', "providers.v.credentials_file: cannot read "),
        (GOOGLE + 'credentials_file = "m.toml"\n', "providers.v.credentials_file: holds no service account ("),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(loaded, text, told):
    (mistake,) = mistakes_of(loaded, text)
    assert mistake.startswith(told)


def test_a_file_with_a_broken_key_is_told_without_its_text(loaded, tmp_path):
    file = tmp_path / "account.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "private_key": "sk-not-a-key"}))
    (told,) = mistakes_of(loaded, GOOGLE + FILE)
    assert "holds no service account" in told
    assert "sk-not-a-key" not in told


def test_without_google_auth_the_mistake_names_the_extra(loaded, monkeypatch):
    monkeypatch.setattr(google_credentials, "can_fetch", lambda: False)
    (told,) = mistakes_of(loaded, GOOGLE)
    assert 'pip install "modelmeter-server[google]"' in told


def test_a_file_is_not_opened_where_keys_are_not_read(loaded, monkeypatch):
    monkeypatch.setattr(google_credentials, "can_fetch", lambda: False)
    (provider,) = loaded(GOOGLE + FILE, read_keys=False).providers
    assert provider.credentials == "google"
