"""Ceilings that the configuration declares, and addresses on which nobody is asked who they are."""

from __future__ import annotations

import pytest
import trustme

from modelmeter_server.config import ConfigError, load
from modelmeter_server.core.ceilings import Subject, Window, WindowKind
from tests.support.certificates import write_server

START = """
[providers.p]
kind = "replay"
allow_direct_models = true
[identity]
tokens_file = "tokens.json"
[tenants.acme]
"""


@pytest.fixture
def read(tmp_path):
    """Return a function that loads a document and returns the settings, or its mistakes as text."""

    def load_text(text, environ=None):
        file = tmp_path / "m.toml"
        file.write_text(text)
        try:
            return load(file, environ or {})
        except ConfigError as error:
            return "\n".join(map(str, error.mistakes))

    return load_text


def test_every_sort_of_ceiling_is_read(read):
    ceilings = read(f"""{START}ceilings = [
        {{ tokens = 1000 }},
        {{ money = "12.5", currency = "USD", window = "month", time_zone = "Europe/Berlin" }},
        {{ scope = "model", name = "claude", tokens = 5, window = "rolling", seconds = 7200 }},
        {{ scope = "run", tokens = 0, window = "day" }},
    ]""").identity.ceilings
    assert [each.subject for each in ceilings] == [
        Subject("acme", "TENANT", ""),
        Subject("acme", "TENANT", ""),
        Subject("acme", "MODEL", "claude"),
        Subject("acme", "RUN", ""),
    ]
    assert [(each.tokens, each.nano_units, each.currency) for each in ceilings] == [
        (1000, None, ""),
        (None, 12_500_000_000, "USD"),
        (5, None, ""),
        (0, None, ""),
    ]
    assert [each.window for each in ceilings] == [
        Window(),
        Window(kind=WindowKind.MONTH, time_zone="Europe/Berlin"),
        Window(kind=WindowKind.ROLLING, seconds=7200),
        Window(kind=WindowKind.DAY),
    ]
    assert all(each.by_admin for each in ceilings)


@pytest.mark.parametrize(
    ("ceiling", "words"),
    [
        ("", "bounds nothing"),
        ("tokens = -1", "out of range"),
        ('money = "1"', "money needs its currency"),
        ('money = "1", currency = "usd"', "money needs its currency"),
        ('tokens = 1, currency = "USD"', "goes with money"),
        ('money = "x", currency = "USD"', "is no amount of money"),
        ('money = "inf", currency = "USD"', "is no amount of money"),
        ('money = "-1", currency = "USD"', "is no amount of money"),
        ('money = "0.0000000001", currency = "USD"', "is no amount of money"),
        ('money = 1.5, currency = "USD"', "write a string in quotes"),
        ('tokens = 1, scope = "everything"', "is not a known value"),
        ('tokens = 1, scope = "model"', 'lacks "name"'),
        ('tokens = 1, name = "claude"', "goes with the scopes"),
        (f'tokens = 1, scope = "run", name = "{"r" * 129}"', "is too long"),
        ('tokens = 1, window = "week"', "is not a known value"),
        ('tokens = 1, window = "rolling"', 'lacks "seconds"'),
        ('tokens = 1, window = "rolling", seconds = 60', "out of range"),
        ("tokens = 1, seconds = 7200", "goes with the window rolling"),
        ('tokens = 1, time_zone = "UTC"', "goes with the windows day and month"),
        ('tokens = 1, window = "day", time_zone = "Mars/Base"', "is no time zone"),
        ("tokens = 1, most = 2", "unknown key"),
        ("tokens = 1 }, { tokens = 2", "is there twice"),
    ],
)
def test_what_is_no_ceiling_is_a_mistake(read, ceiling, words):
    assert words in read(f"{START}ceilings = [{{ {ceiling} }}]")


@pytest.mark.parametrize(
    ("ceilings", "expected"),
    [
        ('{ tokens = 1 }, { tokens = 2, window = "week" }', "window"),
        ("{ money = 5.0 }, { tokens = 1 }", "money"),
    ],
)
def test_no_mistake_follows_from_another_one(read, ceilings, expected):
    told = read(f"{START}ceilings = [{ceilings}]")
    assert expected in told
    assert "is there twice" not in told
    assert "bounds nothing" not in told


def test_ceilings_need_a_ledger(read):
    assert "ceilings need a ledger" in read(f'{START}ceilings = [{{ tokens = 1 }}]\n[ledger]\nurl = "none"')


OPEN = '[providers.p]\nkind = "replay"\nallow_direct_models = true\n[server]\nallow_insecure = true\n'


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "host.example:1"])
def test_off_the_loopback_somebody_must_say_that_everybody_is_an_admin(read, address):
    found = read(f'{OPEN}listen = ["127.0.0.1:1", "{address}"]')
    assert f"other machines can reach {address}" in found
    assert "everybody there is an admin" in found
    assert read(f'{OPEN}listen = "{address}"\nallow_anonymous = true').server.allow_anonymous
    named = {"MODELMETER_ALLOW_ANONYMOUS": "true"}
    assert read(f'{OPEN}listen = "{address}"', named).server.allow_anonymous
    asked = f'{START}[server]\nallow_insecure = true\nlisten = "{address}"'
    assert not read(asked).server.allow_anonymous


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/x"])
def test_on_the_loopback_nothing_need_be_said(read, address):
    assert read(f'{OPEN}listen = "{address}"').server.listen == (address,)


def test_the_embedded_provider_alone_may_be_served_to_anybody(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load(None, {"MODELMETER_LISTEN": "0.0.0.0:1", "MODELMETER_ALLOW_INSECURE": "true"})
    assert settings.server.listen == ("0.0.0.0:1",)


@pytest.mark.parametrize(
    "pair",
    [
        ('scope = "modle", name = "a", tokens = 1', 'tokens = 1, scope = "modle", name = "b"'),
        ('window = "week", tokens = 1', 'window = "year", tokens = 2'),
        ('money = "1", currency = "usd"', 'money = "1", currency = "usd", scope = 5'),
        ('scope = "run", nmae = "a", tokens = 1', 'scope = "run", nmae = "b", tokens = 1'),
        ('scope = "model", tokens = 1', 'scope = "model", tokens = 1'),
    ],
)
def test_ceilings_that_cannot_be_read_are_not_told_to_be_there_twice(read, pair):
    found = read(f"{START}ceilings = [{{ {pair[0]} }}, {{ {pair[1]} }}]")
    assert "ceilings[0]" in found
    assert "ceilings[1]" in found
    assert "twice" not in found
    assert "is there twice" in read(
        f"{START}ceilings = [{{ {pair[0]} }}, {{ tokens = 1 }}, {{ tokens = 2 }}]"
    )


def test_the_private_listener_lets_no_strangers_in_unless_that_is_said(read, tmp_path):
    """Whoever reaches it would be an admin."""
    write_server(tmp_path, trustme.CA())
    start = (
        '[providers.p]\nkind = "replay"\nallow_direct_models = true\n[server]\nprivate_listen = "0.0.0.0:9"\n'
        'tls = { certificate = "server.pem", key = "server.key" }\n'
    )
    assert "server.private_listen: other machines can reach 0.0.0.0:9" in read(start)
    for said in ("allow_anonymous", "private_allow_insecure"):
        assert read(f"{start}{said} = true").server.private_listen == "0.0.0.0:9"
    assert read(start.replace("0.0.0.0", "127.0.0.1")).server.private_listen == "127.0.0.1:9"
