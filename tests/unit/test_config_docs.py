"""docs/configuration.md and the examples say what the code does."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import trustme

from modelmeter_server.config import (
    ConfigError,
    IdentitySettings,
    JwtSettings,
    LedgerSettings,
    ModelSettings,
    ProviderSettings,
    RouteSettings,
    ServerSettings,
    load,
)
from modelmeter_server.config.environment import CONFIG_VARIABLE, OVERRIDES
from modelmeter_server.config.settings import (
    OtlpSettings,
    PrometheusSettings,
    RedactionSettings,
    SamplingSettings,
    TelemetrySettings,
)
from modelmeter_server.core.call_limits import CallLimits
from modelmeter_server.core.dialects import COMPATIBLE, DIALECTS, Dialect
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.drivers.http.limits import Limits, Timeouts
from modelmeter_server.engine.breaker import BreakerRules
from modelmeter_server.identity.jwt_verifier import JwtRules
from modelmeter_server.rpc.listen import TlsFiles
from tests.support import ROOT
from tests.support.google_account import account_file

TEXT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "examples" / "replay-scripts.toml"
EXAMPLES = sorted(set((ROOT / "examples").glob("*.toml")) - {SCRIPTS})
ENVIRON = {
    f"{name}_API_KEY": f"sk-{number}"
    for number, name in enumerate(
        ("ANTHROPIC", "ANTHROPIC_EU", "AZURE", "GEMINI", "GROQ", "OPENAI", "OPENROUTER"), start=1
    )
}
ENVIRON["MODELMETER_HASH_KEY"] = "a-key-for-hashes"
HEADINGS = {
    "server": "`[server]`",
    "server.tls": "`tls` of the server",
    "ledger": "`[ledger]`",
    "telemetry": "`[telemetry]`",
    "telemetry.sampling": "`sampling` of events",
    "telemetry.redaction": "`redaction` of events",
    "telemetry.otlp": "`otlp` of telemetry",
    "telemetry.prometheus": "`prometheus` of telemetry",
    "providers.p": "`[providers.NAME]`",
    "providers.p.timeouts": "`timeouts` of a provider",
    "providers.p.limits": "`limits` of a provider",
    "providers.p.dialect": "`dialect` of a provider",
    "models.m": '`[models."NAME"]`',
    "providers.p.breaker": "`breaker` of a provider",
    "models.r": "Targets of a model",
    "models.m.limits": "`limits` of a model",
    "models.m.price": "`price` of a model",
    "models.m.price.tiers": "`tiers` of a price",
    "identity": "`[identity]`",
    "identity.jwt": "`jwt` of the identity",
    "tenants.t": "`[tenants.NAME]`",
    "tenants.t.limits": "`limits` of a tenant",
    "tenants.t.ceilings": "`ceilings` of a tenant",
    "egress": "`[egress]`",
}


def rows(heading: str) -> dict[str, str]:
    """Return the keys that the first table under a heading lists, with their defaults."""
    section = TEXT.split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    found = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", section, re.MULTILINE)
    return {key: default.strip("` ") for key, default in found}


# Judged while reading, and then of no further interest.
KEPT_NOWHERE = {
    ("providers.p", "allow_insecure"),
    ("providers.p", "dialect"),
    ("providers.p", "api_key_ttl"),
    ("providers.p.dialect", "base"),
    ("models.m", "max_sensitivity"),
}
DOCUMENTED = {path: rows(heading) for path, heading in HEADINGS.items()}


OF_COLLECTIONS = {"apart", "source", "source_entry", "source_version"}
"""What a price says that nobody writes into a table."""


def names(*types: type) -> set[str]:
    return {
        name
        for each in types
        for name in getattr(each, "__struct_fields__", None) or (field.name for field in fields(each))
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with every file that the examples name."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "authorities.pem")
    account_file(tmp_path, "https://oauth2.googleapis.com").rename(tmp_path / "vertex-account.json")
    (tmp_path / "openai.key").write_text("sk-3\n")
    (tmp_path / SCRIPTS.name).write_bytes(SCRIPTS.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("server", names(ServerSettings)),
        ("server.tls", names(TlsFiles)),
        ("ledger", names(LedgerSettings)),
        ("telemetry", names(TelemetrySettings)),
        ("telemetry.sampling", names(SamplingSettings)),
        ("telemetry.redaction", names(RedactionSettings)),
        ("telemetry.otlp", names(OtlpSettings)),
        ("telemetry.prometheus", names(PrometheusSettings)),
        ("providers.p", names(ProviderSettings) - {"name", "keys", "wire", "settings"}),
        ("providers.p.timeouts", names(Timeouts)),
        ("providers.p.limits", names(Limits)),
        ("providers.p.dialect", (names(Dialect) - {"name", "base_url"}) | {"base"}),
        ("models.m", names(ModelSettings) - {"name"}),
        ("models.r", names(RouteSettings) - {"name"}),
        ("providers.p.breaker", names(BreakerRules)),
        ("models.m.limits", names(CallLimits) - {"queued"}),
        ("tenants.t.limits", names(CallLimits)),
        ("models.m.price", names(PriceTable, Tier) - {"above_input_tokens", "service_tier"} - OF_COLLECTIONS),
        ("models.m.price.tiers", {"above_input_tokens", "service_tier"}),
        ("identity", names(IdentitySettings) - {"tenants", "certificates", "ceilings"}),
        ("identity.jwt", (names(JwtSettings) - {"rules"}) | names(JwtRules)),
        ("tenants.t", (names(Tenant) - {"name", "is_admin"}) | {"admin", "certificates"}),
    ],
)
def test_every_setting_is_documented(path, keys):
    assert keys - DOCUMENTED[path].keys() == set()


def default_of(path: str, key: str) -> object:
    owners = {
        "server": ServerSettings(),
        "ledger": LedgerSettings(),
        "telemetry": TelemetrySettings(),
        "telemetry.sampling": SamplingSettings(),
        "telemetry.otlp": OtlpSettings(),
        "providers.p": ProviderSettings(name="", kind=""),
        "providers.p.timeouts": Timeouts(),
        "providers.p.limits": Limits(),
        "providers.p.dialect": Dialect(),
        "providers.p.breaker": BreakerRules(),
        "models.m": ModelSettings(name="", provider="", model=""),
        "identity": IdentitySettings(),
        "identity.jwt": JwtRules(issuer="", audience=""),
    }
    value = getattr(owners[path], key)
    return getattr(value, "value", value)


@pytest.mark.parametrize(
    ("path", "key", "told"),
    [
        (path, key, default)
        for path in (
            "server",
            "ledger",
            "telemetry",
            "telemetry.sampling",
            "telemetry.otlp",
            "providers.p",
            "providers.p.timeouts",
            "providers.p.limits",
            "providers.p.breaker",
            "providers.p.dialect",
            "models.m",
            "identity",
            "identity.jwt",
        )
        for key, default in DOCUMENTED[path].items()
        if re.fullmatch(r'[\d.]+|true|false|"[^"]*"', default) and (path, key) not in KEPT_NOWHERE
    ],
)
def test_every_documented_default_is_the_real_one(path, key, told):
    value = tomllib.loads(f"value = {told}")["value"]
    assert default_of(path, key) == ((value,) if key == "listen" else value)


def test_every_variable_is_documented_and_no_other():
    table = re.findall(r"^\| `(MODELMETER_\w+)` \| `([\w. -]+)`", TEXT, re.MULTILINE)
    real = {each.variable: ".".join(map(str, each.path)) for each in OVERRIDES}
    assert dict(table) == {CONFIG_VARIABLE: "serve --config", **real}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_loads(folder, file):
    (folder / file.name).write_bytes(file.read_bytes())
    assert load(folder / file.name, ENVIRON).providers


def test_the_full_example_holds_every_documented_key_and_so_proves_it_known():
    text = (ROOT / "examples" / "full.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    present = {
        "server": document["server"],
        "server.tls": document["server"]["tls"],
        "ledger": document["ledger"],
        "telemetry": document["telemetry"],
        "telemetry.sampling": document["telemetry"]["sampling"],
        "telemetry.redaction": document["telemetry"]["redaction"],
        "telemetry.otlp": document["telemetry"]["otlp"],
        "telemetry.prometheus": document["telemetry"]["prometheus"],
        "providers.p": {key: 1 for provider in document["providers"].values() for key in provider},
        "providers.p.timeouts": document["providers"]["anthropic"]["timeouts"],
        "providers.p.limits": document["providers"]["anthropic"]["limits"],
        "providers.p.dialect": document["providers"]["own"]["dialect"],
        "providers.p.breaker": document["providers"]["anthropic"]["breaker"],
        "models.m": {
            key: 1 for model in document["models"].values() for key in model if "targets" not in model
        },
        "models.r": {key: 1 for key in document["models"]["smart"] if key != "price"} | {"weight": 1},
        "models.m.limits": document["models"]["claude"]["limits"],
        "models.m.price": document["models"]["claude"]["price"],
        "identity": document["identity"],
        "identity.jwt": document["identity"]["jwt"] | {"jwks_file": 1},
        "tenants.t": {key: 1 for tenant in document["tenants"].values() for key in tenant},
        "tenants.t.limits": document["tenants"]["acme"]["limits"],
        "tenants.t.ceilings": {key: 1 for each in document["tenants"]["acme"]["ceilings"] for key in each},
        "egress": document["egress"],
    }
    present["models.m.price.tiers"] = {key: 1 for tier in present["models.m.price"]["tiers"] for key in tier}
    assert present.keys() == DOCUMENTED.keys()
    missing = {path: DOCUMENTED[path].keys() - keys.keys() for path, keys in present.items()}
    assert not {path: keys for path, keys in missing.items() if keys}


OF_OTHER_THINGS = {"development.md", "replay.md"}
"""Pages whose TOML is no configuration, or has tests of its own."""
KINDS = ("anthropic",)
"""Providers that a block may name without declaring them, as a page does that has shown one above."""
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.name not in OF_OTHER_THINGS
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_of_the_pages_loads(folder, block):
    provider = '[providers.x]\nkind = "replay"\nallow_direct_models = true\n'
    named = {
        name: f'[providers.{name}]\nkind = "{name}"\napi_key_env = "ANTHROPIC_API_KEY"\n' for name in KINDS
    }
    needed = "" if "[providers" in block else provider
    needed += "".join(
        text
        for name, text in named.items()
        if f'provider = "{name}"' in block and f"[providers.{name}]" not in block
    )
    if ".price]" in block and "provider =" not in block:
        name = re.search(r"\[(models\..*)\.price\]", block)
        assert name is not None
        needed += f'[{name[1]}]\nprovider = "x"\nmodel = "answer"\n'
    elif "[models" not in block and not needed:
        needed = provider
    for secret in ("/run/secrets/openai", "/run/secrets/anthropic"):
        block = block.replace(secret, "openai.key")
    block = block.replace("/usr/local/bin/openai-key", sys.executable)
    (folder / "m.toml").write_text(needed + block)
    load(folder / "m.toml", ENVIRON)


def test_the_mistakes_that_the_document_shows_are_told_like_that(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("modelmeter.toml").write_text(
        "[server]\n\ndrain_second = 3\n\n[providers.anthropic]\nkind = 'anthropic'\n"
        "api_key_env = 'ANTHROPIC_API_KEY'\n\n[models.claude]\nprovider = 'antropic'\nmodel = 'm'\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(Path("modelmeter.toml"), {})
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    assert str(caught.value) == shown[1].strip()


def test_the_table_of_profiles_says_where_each_is_and_in_what_it_differs():
    told = dict(re.findall(r"^\| `(\w+)` \| (?:`(?:https://[^`]+)`|yours) \| (.*) \|$", TEXT, re.MULTILINE))
    for name, dialect in DIALECTS.items():
        compared = names(Dialect) - {"name", "base_url"}
        differing = {field for field in compared if getattr(dialect, field) != getattr(COMPATIBLE, field)}
        assert set(re.findall(r"`(\w+)`", told[name])) == differing, name
        assert f"| `{name}` | {f'`{dialect.base_url}`' if dialect.base_url else 'yours'} |" in TEXT
    assert told.keys() == DIALECTS.keys()
