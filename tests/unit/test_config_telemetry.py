"""The section `[telemetry]`: what it refuses, and what becomes of it."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.config import telemetry as section
from modelmeter_server.config.telemetry import redaction_of, sampling_of
from modelmeter_server.core.events import Family
from modelmeter_server.core.redaction import ToolRule

PROVIDER = '[providers.x]\nkind = "replay"\nallow_direct_models = true\n'


@pytest.fixture
def read(tmp_path):
    def read(text: str, environ=None, **options):
        file = tmp_path / "m.toml"
        file.write_text(text + "\n" + PROVIDER)
        return load(file, environ or {}, **options).telemetry

    return read


def mistakes(read, text: str, environ=None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return str(caught.value)


def test_without_the_section_events_are_shown_and_nothing_is_exported(read):
    told = read("")
    assert (told.recent_events, told.sampling.rate, told.tool_payloads) == (10_000, 1.0, False)
    assert (told.otlp.endpoint, told.prometheus.listen) == ("", "")


def test_rates_of_families_stand_beside_the_common_one(read):
    sampling = sampling_of(read("[telemetry.sampling]\nrate = 0.5\ntool = 0\nkey = 'k'").sampling)
    assert (sampling.rate, sampling.rates, sampling.key) == (0.5, {Family.TOOL: 0}, b"k")


def test_rules_of_redaction_are_compiled_with_the_key_of_the_environment(read):
    text = "[telemetry.redaction]\ntools = { a = 'drop', b = 'hash' }\nhashed = ['x+']\nhash_key_env = 'K'"
    rules = redaction_of(read(text, {"K": "secret"}).redaction, ("own-key",))
    assert rules.tools == {"a": ToolRule.DROP, "b": ToolRule.HASH}
    assert (rules.hash_key, rules.secrets) == (b"secret", ("own-key",))
    assert rules.clean("xx").startswith("[hash:")


def test_a_key_of_hashes_is_not_shown(read):
    text = "[telemetry.redaction]\nhashed = ['x+']\nhash_key_env = 'K'"
    assert "hunter2" not in repr(read(text, {"K": "hunter2"}))


def test_a_file_can_be_checked_where_the_key_is_not(read):
    text = "[telemetry.redaction]\nhashed = ['x+']\nhash_key_env = 'K'"
    assert read(text, read_keys=False).redaction.hash_key_env is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[telemetry.sampling]\nrate = 1.5", "telemetry.sampling.rate: 1.5 is out of range"),
        ("[telemetry.sampling]\nledger = 0.1", "telemetry.sampling.ledger: unknown key"),
        ("[telemetry.redaction]\npatterns = ['(']", "is no regular expression"),
        ("[telemetry.redaction]\npatterns = ['x*']", "matches nothing at all"),
        ("[telemetry.redaction]\nhashed = ['x']", "hashes without a key"),
        ("[telemetry.redaction]\ntools = { a = 'hash' }", "hashes without a key"),
        ("[telemetry.redaction]\ntools = { a = 'hide' }", "is not a known value"),
        ("[telemetry.redaction]\nhash_key_env = 'K'", "the environment has no K"),
        ("[telemetry.prometheus]\nlisten = 'unix:/x'", "Prometheus fetches from a port"),
        ("[telemetry.prometheus]\nlisten = 'nowhere'", "is not an address to listen on"),
        ("[telemetry]\nmax_series = 1", "telemetry.max_series: 1 is out of range"),
        ("[telemetry]\nold_name = true", "unknown key"),
    ],
)
def test_what_is_wrong_is_told(read, text, told):
    assert told in mistakes(read, text)


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        ("[telemetry.otlp]\nendpoint = '127.0.0.1:4317'", "otlp"),
        ("[telemetry.prometheus]\nlisten = '127.0.0.1:0'", "prometheus"),
    ],
)
def test_an_exporter_whose_packages_are_not_there_is_a_mistake(read, monkeypatch, text, extra):
    assert read(text)
    monkeypatch.setattr(section, "_NEEDED", dict.fromkeys(("otlp", "prometheus"), "not.there"))
    assert f"modelmeter-server[{extra}]" in mistakes(read, text)
