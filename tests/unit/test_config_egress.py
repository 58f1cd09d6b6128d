"""The section `[egress]`: every address of the file is judged at start."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.core.egress import Egress

PROVIDER = '[providers.a]\nkind = "anthropic"\napi_key_env = "K"\nallow_direct_models = true\n'


@pytest.fixture
def mistakes(tmp_path):
    """Return a function that loads a document and returns its mistakes as text."""

    def read(text):
        file = tmp_path / "m.toml"
        file.write_text(text)
        try:
            load(file, {"K": "sk"})
        except ConfigError as error:
            return "\n".join(map(str, error.mistakes))
        return ""

    return read


def test_without_the_section_every_host_is_allowed(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(PROVIDER)
    assert load(file, {"K": "sk"}).egress is None


def test_the_list_is_read_in_normal_form(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(f'{PROVIDER}[egress]\nallow = ["API.Anthropic.com.", "[::1]:80"]')
    assert load(file, {"K": "sk"}).egress == Egress(
        hosts=frozenset({("api.anthropic.com", None), ("::1", 80)})
    )


def test_an_empty_list_is_kept_and_a_missing_one_is_a_mistake(mistakes, tmp_path):
    (tmp_path / "r.toml").write_text(
        '[providers.p]\nkind = "replay"\nallow_direct_models = true\n[egress]\nallow = []'
    )
    assert load(tmp_path / "r.toml", {}).egress == Egress(hosts=frozenset())
    assert 'lacks "allow"' in mistakes(f"{PROVIDER}[egress]")
    assert "is no host" in mistakes(f'{PROVIDER}[egress]\nallow = ["api.anthropic.com", "*.openai.com"]')


@pytest.mark.parametrize(
    ("more", "where", "entry"),
    [
        ('[providers.b]\nkind = "openai_responses"\napi_key_env = "K"', "providers.b", '"api.openai.com"'),
        (
            '[providers.b]\nkind = "openai_responses"\napi_key_env = "K"\nbase_url = "https://x.test:8443/v1"',
            "providers.b.base_url",
            '"x.test:8443"',
        ),
        (
            '[providers.b]\nkind = "anthropic"\napi_key_env = "K"\nproxy = "http://u:pw@p.test:3128"',
            "providers.b.proxy",
            '"p.test:3128"',
        ),
        ('[ledger]\nwebhook_url = "https://hook.test/secret"', "ledger.webhook_url", '"hook.test"'),
        (
            '[telemetry.otlp]\nendpoint = "http://c.test:4317"',
            "telemetry.otlp.endpoint",
            '"c.test:4317"',
        ),
        ('[telemetry.otlp]\nendpoint = "c.test:4317"', "telemetry.otlp.endpoint", '"c.test:4317"'),
        (
            '[identity.jwt]\nissuer = "i"\naudience = "a"\njwks_url = "https://i.test/jwks"\n[tenants.t]',
            "identity.jwt.jwks_url",
            '"i.test"',
        ),
    ],
)
def test_an_address_off_the_list_is_a_mistake_that_names_the_entry(mistakes, more, where, entry):
    found = mistakes(f'{PROVIDER}[egress]\nallow = ["api.anthropic.com"]\n{more}')
    assert f" {where}: " in found
    assert f"add {entry} to egress.allow" in found
    assert not any(secret in found for secret in ("pw", "secret"))
    assert found.count("is not on the list") == 1


def test_the_token_endpoint_of_a_service_account_is_judged(mistakes, tmp_path):
    (tmp_path / "account.json").write_text(json.dumps({"token_uri": "https://tokens.test/token"}))
    vertex = (
        '[providers.v]\nkind = "gemini"\nbase_url = "https://v.test/v1"\ncredentials = "google"\n'
        'credentials_file = "account.json"\nallow_direct_models = true\n'
    )
    found = mistakes(f'{vertex}[egress]\nallow = ["v.test"]')
    assert 'add "tokens.test" to egress.allow' in found


def test_the_built_in_configuration_connects_nowhere_and_is_not_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load(None, {}).egress is None


ODD = (
    "h:port",
    "http://h:99999",
    "https://[::1",
    "http://h x",
    "unix:/run/c",
    "dns:///h:4317",
    "//h:1",
    "https://",
)


@pytest.mark.parametrize("gate", ["", '[egress]\nallow = ["api.anthropic.com"]\n'])
@pytest.mark.parametrize("address", ODD)
def test_what_is_no_address_is_a_mistake_and_no_crash(mistakes, gate, address):
    places = {
        "telemetry.otlp.endpoint": f'[telemetry.otlp]\nendpoint = "{address}"',
        "ledger.webhook_url": f'[ledger]\nwebhook_url = "{address}"',
        "identity.jwt.jwks_url": (
            f'[identity.jwt]\nissuer = "i"\naudience = "a"\njwks_url = "{address}"\n[tenants.t]'
        ),
        "providers.b.base_url": f'[providers.b]\nkind = "anthropic"\napi_key_env = "J"\nbase_url = "{address}"',
        "providers.b.proxy": f'[providers.b]\nkind = "anthropic"\napi_key_env = "J"\nproxy = "{address}"',
    }
    for where, text in places.items():
        assert f" {where}: " in mistakes(f"{PROVIDER}{gate}{text}")


@pytest.mark.parametrize("address", ["http://u:p@h:1", "h:1/path", "https://h:1?x", "dns://h/evil.test:1"])
def test_a_collector_is_a_host_and_a_port(mistakes, address):
    assert " telemetry.otlp.endpoint: " in mistakes(f'{PROVIDER}[telemetry.otlp]\nendpoint = "{address}"')


@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize(
    "address", ["c.test", "c.test:4317", "[::1]:4317", "http://c.test:4317/", "https://c.test"]
)
def test_a_collector_may_be_named_without_its_scheme_and_not_with_a_wrong_one(mistakes, address, insecure):
    found = mistakes(
        f'{PROVIDER}[telemetry.otlp]\nendpoint = "{address}"\ninsecure = {str(insecure).lower()}\n'
    )
    scheme, named, _ = address.rpartition("://")
    agrees = not named or (scheme or address.partition(":")[0]) == ("http" if insecure else "https")
    assert ("something else than insecure" in found) is not agrees
    assert bool(found) is not agrees


@pytest.mark.parametrize("address", ["https://h:port/", "https://[::1", "https://h:99999"])
def test_a_token_endpoint_that_is_no_address_is_a_mistake_and_no_crash(mistakes, tmp_path, address):
    account = {"type": "service_account", "token_uri": address, "client_email": "e", "private_key": "k"}
    (tmp_path / "account.json").write_text(json.dumps(account))
    text = (
        '[providers.b]\nkind = "gemini"\nbase_url = "https://api.anthropic.com"\nallow_direct_models = true\n'
        'credentials = "google"\ncredentials_file = "account.json"\n[egress]\nallow = ["api.anthropic.com"]'
    )
    assert "providers.b.credentials_file: names an address" in mistakes(f"{PROVIDER}{text}")
