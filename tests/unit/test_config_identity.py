"""`[identity]` and `[tenants]`: what is read, and every mistake that could let in whom nobody meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme

from modelmeter_server import parts
from modelmeter_server.config import ConfigError, load
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.identity.token_file import TokenFile
from tests.support.certificates import write_server
from tests.support.identities import Issuer

MODELS = """
[providers.p]
kind = "replay"
allow_direct_models = true
[models.m]
provider = "p"
model = "answer"
"""
TENANT = "[tenants.acme]\n"
TOKENS = '[identity]\ntokens_file = "t.json"\n'
JWT = '[identity.jwt]\nissuer = "i"\naudience = "a"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with certificates and a key set."""
    path: Path = tmp_path_factory.mktemp("identity")
    write_server(path, trustme.CA(), trustme.CA())
    (path / "keys.json").write_bytes(Issuer().document)
    (path / "text").write_text("nothing")
    return path


def read(folder: Path, text: str):
    (folder / "m.toml").write_text(text + MODELS)
    return load(folder / "m.toml", {})


def mistakes(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return str(caught.value)


def test_without_the_section_nobody_is_asked(folder):
    assert read(folder, "").identity is None


def test_every_key_arrives(folder):
    identity = read(
        folder,
        """
        [server]
        reflection = false
        tls = { certificate = "server.pem", key = "server.key", client_ca = "clients.pem", require_client_cert = true }
        [identity]
        tokens_file = "t.json"
        open_health = true
        open_reflection = true
        [identity.jwt]
        issuer = "https://issuer.test"
        audience = "modelmeter"
        jwks_url = "https://issuer.test/keys"
        ca_file = "clients.pem"
        tenant_claim = "https://issuer.test/tenant"
        leeway = 5
        [tenants.ops]
        admin = true
        [tenants.acme]
        models = ["m", "p/*"]
        max_sensitivity = "confidential"
        default_sensitivity = "internal"
        certificates = ["uri:spiffe://acme/agent", "dns:acme.test", "cn:acme agent"]
        """,
    ).identity
    assert identity is not None
    assert identity.tenants == (
        Tenant(name="ops", is_admin=True),
        Tenant(
            name="acme",
            models=("m", "p/*"),
            max_sensitivity=Sensitivity.CONFIDENTIAL,
            default_sensitivity=Sensitivity.INTERNAL,
        ),
    )
    assert set(identity.certificates.values()) == {"acme"}
    assert (identity.open_health, identity.open_reflection) == (True, True)
    assert identity.tokens_file == folder / "t.json"
    assert identity.jwt is not None
    assert (identity.jwt.rules.tenant_claim, identity.jwt.rules.leeway) == ("https://issuer.test/tenant", 5)
    gate = parts.make_authenticator(identity)
    assert gate.tenants.keys() == {"ops", "acme"}
    assert gate.by_certificate(["dns:acme.test"]).tenant.name == "acme"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TENANT, "tenants need [identity]"),
        (TOKENS, "there is no tenant"),
        ("[identity]\n" + TENANT, "there is no way to prove who one is"),
        (TOKENS + "tokens = 1\n" + TENANT, "unknown key"),
        (TOKENS + TENANT + "admins = true", 'did you mean "admin"?'),
        (TOKENS + '[tenants."a b"]', "is no name for a tenant"),
        (TOKENS + '[tenants."../etc"]', "is no name for a tenant"),
        (TOKENS + TENANT + 'models = ["mm"]', 'there is no model "mm"; did you mean "m"?'),
        (
            TOKENS + TENANT + 'max_sensitivity = "public"\ndefault_sensitivity = "secret"',
            "above max_sensitivity",
        ),
        (TOKENS + TENANT + 'certificates = ["dns:a"]', "clients are not asked for certificates"),
        (TOKENS.replace("t.json", "none/t.json") + TENANT, "there is no folder"),
        (TOKENS.replace("t.json", "text") + TENANT, "is no file of tokens"),
        (JWT + TENANT, "give jwks_url or jwks_file"),
        (JWT + 'jwks_url = "https://h/k"\njwks_file = "keys.json"\n' + TENANT, "give jwks_url or jwks_file"),
        (JWT + 'jwks_file = "text"\n' + TENANT, "holds no key"),
        (JWT + 'jwks_file = "missing.json"\n' + TENANT, "cannot read"),
        (JWT + 'jwks_url = "http://issuer.test/keys"\n' + TENANT, "is no https address"),
        (JWT + 'jwks_url = "https://user:word@issuer.test/keys"\n' + TENANT, "is no https address"),
        (JWT + 'jwks_url = "file:///etc/passwd"\n' + TENANT, "is no https address"),
        (JWT + 'jwks_url = "https://[bad/keys"\n' + TENANT, "is no https address"),
        (JWT + 'jwks_file = "keys.json"\nleeway = 900\n' + TENANT, "out of range"),
        (JWT + 'jwks_file = "keys.json"\ntenant_claim = "a b"\n' + TENANT, "no name of a claim"),
        (JWT + 'jwks_file = "keys.json"\nca_file = "text"\n' + TENANT, "holds no PEM certificate"),
        (
            '[identity.jwt]\njwks_file = "keys.json"\n' + TENANT,
            'lacks "issuer"',
        ),
    ],
)
def test_a_mistake_is_told_and_the_server_does_not_start(folder, text, told):
    assert told in mistakes(folder, text)


TLS = 'server.tls = {{ certificate = "server.pem", key = "server.key", {} }}\n'


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("require_client_cert = true", "needs the authorities of the clients"),
        ('client_ca = "clients.pem", require_client_cert = false', "cannot be false beside client_ca"),
        ('client_ca = "text"', "holds no PEM certificate"),
        ('client_ca = "missing.pem"', "cannot read"),
    ],
)
def test_client_certificates_are_asked_for_or_they_are_not(folder, keys, told):
    assert told in mistakes(folder, TLS.format(keys))


def test_a_name_of_a_certificate_has_a_sort_and_one_tenant(folder):
    text = TLS.format('client_ca = "clients.pem"') + "[identity]\n" + TENANT + 'certificates = ["NAME"]\n'
    assert read(folder, text.replace("NAME", "dns:a.test")).identity is not None
    for name in ("a.test", "ip:1.2.3.4", "dns:", "cn:a\\nb"):
        assert "is no name of a certificate" in mistakes(folder, text.replace("NAME", name))
    twice = text.replace("NAME", "dns:a.test") + '[tenants.b]\ncertificates = "dns:a.test"\n'
    assert 'is of tenant "acme" already' in mistakes(folder, twice)


def test_a_file_of_tokens_that_others_may_write_is_refused(tmp_path):
    TokenFile(tmp_path / "t.json").create("acme")
    assert read(tmp_path, TOKENS + TENANT).identity is not None
    (tmp_path / "t.json").chmod(0o666)
    assert "others may write" in mistakes(tmp_path, TOKENS + TENANT)


def test_no_mistake_quotes_what_a_named_file_holds(tmp_path):
    """A path may lead to any file that the server can read: what stands in it stays there."""
    planted = {"tokens": [{"sha256": "planted-secret"}], "keys": [{"kty": "planted-secret"}]}
    (tmp_path / "secret").write_text(json.dumps(planted) + "planted-secret")
    (tmp_path / "folder").mkdir()
    outside = "folder/../secret"
    texts = [
        TOKENS.replace("t.json", outside) + TENANT,
        JWT + f'jwks_file = "{outside}"\n' + TENANT,
        JWT + f'jwks_url = "https://h/k"\nca_file = "{outside}"\n' + TENANT,
        f'server.tls = {{ certificate = "{outside}", key = "{outside}", client_ca = "{outside}" }}\n',
        f'[providers.q]\nkind = "replay"\nscripts = "{outside}"\n',
        '[providers.q]\nkind = "gemini"\ncredentials = "google"\nbase_url = "https://h/v1"\n'
        f'credentials_file = "{outside}"\n',
    ]
    for text in texts:
        assert "planted-secret" not in mistakes(tmp_path, text)
