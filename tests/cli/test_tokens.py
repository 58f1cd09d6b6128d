"""`modelmeter tokens`, on the file and through a server that runs with it."""

from __future__ import annotations

import asyncio
import json
import stat
import time

import pytest
from click.testing import CliRunner

from modelmeter_server.commands.tokens import tokens
from modelmeter_server.identity.token_file import TokenFile
from tests.support.command_line import Result, run
from tests.support.identities import age_tokens

CONFIG = """
[ledger]
url = "none"
[identity]
tokens_file = "tokens.json"
[tenants.ops]
admin = true
[tenants.acme]
models = ["m"]
[providers.p]
kind = "replay"
[models.m]
provider = "p"
model = "answer"
[models.secret]
provider = "p"
model = "answer"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(CONFIG)
    return path


def alone(*arguments: str) -> Result:
    """Run `modelmeter tokens` in this process."""
    result = CliRunner().invoke(tokens, arguments)
    return Result(result.exit_code, result.stdout, result.stderr)


def test_tokens_are_kept_without_a_server(tmp_path):
    where = ("--file", str(tmp_path / "t.json"))
    first = alone("create", "--tenant", "acme", "--name", "ci", "--expires-in", "90d", *where)
    token = first.out.strip()
    assert token.startswith("mm_")
    assert "shown this once" in first.err
    assert token not in first.err
    assert stat.S_IMODE((tmp_path / "t.json").stat().st_mode) == 0o600
    assert "ends 20" in alone("expire", token, "--in", "1d", *where).out


def test_a_token_is_rotated_revoked_and_listed_without_its_secret(tmp_path):
    where = ("--file", str(tmp_path / "t.json"))
    record, token = TokenFile(tmp_path / "t.json").create("acme", name="ci")
    second = alone("rotate", token, "--overlap", "1h", *where).out.strip()
    assert alone("revoke", second.split("_")[1], *where).code == 0
    listed = alone("list", "--json", *where).out
    assert {row["token_id"]: row["state"] for row in json.loads(listed)["tokens"]} == {
        record.token_id: "ACTIVE",
        second.split("_")[1]: "REVOKED",
    }
    table = alone("list", *where).out
    for secret in (token, second):
        assert secret.split("_")[2] not in listed + table


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_rotated_token_has_an_end_if_the_old_one_had(place, config, held, served):
    path = config.parent / "tokens.json"
    for name, life in (("endless", ()), ("ends", ("--expires-in", "90d"))):
        held[name] = alone("create", "--tenant", "acme", *life, "--file", str(path)).out.strip()
    age_tokens(path, 30 * 24 * 60 * 60)
    begun = int(time.time())
    if place == "file":
        rotated = [alone("rotate", held[name], "--file", str(path)) for name in ("endless", "ends")]
    else:
        key = config.parent / "ops.token"
        key.write_text(held["ops"])
        async with served("--config", str(config)) as server:
            to = ("--address", server.address, "--timeout", "20", "--token-file", str(key))
            rotated = [
                await asyncio.to_thread(alone, "rotate", held[name], *to) for name in ("endless", "ends")
            ]
    endless, ends = (TokenFile(path).find(each.out.split("_")[1]) for each in rotated)
    assert endless is not None
    assert ends is not None
    assert ends.expires_at is not None
    assert begun <= ends.expires_at - 90 * 24 * 60 * 60 <= int(time.time())
    assert (endless.expires_at, "has no end" in rotated[0].err) == (None, True)
    assert "acme ends 20" in rotated[1].err


def test_a_mistake_ends_with_1_and_changes_nothing(config, tmp_path):
    unknown = alone("create", "--tenant", "nobody", "--config", str(config))
    assert (unknown.code, unknown.out) == (1, "")
    assert 'no tenant "nobody"; the configuration has acme, ops' in unknown.err
    missing = alone("revoke", "abc", "--config", str(config))
    assert (missing.code, missing.err) == (1, "there is no token abc\n")
    (tmp_path / "t.json").write_text("text")
    damaged = alone("list", "--file", str(tmp_path / "t.json"))
    assert damaged.code == 1
    assert "is no file of tokens" in damaged.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--file", "a", "--config", "b"),
        ("create", "--tenant", "a", "--expires-in", "soon", "--file", "t"),
        ("create", "--tenant", "a", "--expires-in", "999999999d", "--file", "t"),
        ("create", "--file", "t"),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert alone(*arguments).code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def held(config):
    """Return a token of the admin's and one of a tenant, in the file that the configuration names."""
    file = TokenFile(config.parent / "tokens.json")
    return {name: file.create(name)[1] for name in ("ops", "acme")}


async def test_a_server_lets_in_who_has_a_token(config, held, served):
    acme = {"MODELMETER_TOKEN": held["acme"]}
    async with served("--config", str(config)) as server:
        at = ("--address", server.address, "--timeout", "20")
        nobody, models, called = await asyncio.gather(
            run("call", "m", "Hi", *at), run("models", *at, env=acme), run("call", "m", "Hi", *at, env=acme)
        )
    assert nobody.code == 3
    assert "send `authorization: Bearer TOKEN`" in nobody.err
    assert "secret" not in models.out
    assert called.code == 0


async def test_an_admin_manages_tokens_through_a_server(config, held, served):
    path = config.parent / "ops.token"
    path.write_text(held["ops"] + "\n")
    async with served("--config", str(config)) as server:
        at = ("--address", server.address, "--timeout", "20")
        key = ("--token-file", str(path))
        made = await asyncio.to_thread(alone, "create", "--tenant", "acme", *at, *key)
        new = made.out.strip()
        ended = await asyncio.to_thread(alone, "revoke", new, *at, *key)
        path.write_text(held["acme"])
        denied = await asyncio.to_thread(alone, "create", "--tenant", "acme", *at, *key)
        refused = await run("call", "m", "Hi", *at, env={"MODELMETER_TOKEN": new})
    assert (denied.code, denied.out) == (3, "")
    assert (made.code, ended.code, refused.code) == (0, 0, 3)
    assert "is revoked" in refused.err


async def test_a_probe_sends_its_token(config, held, served):
    key = config.parent / "t"
    key.write_text(held["acme"])
    async with served("--config", str(config)) as server:
        probe = ("healthcheck", "--address", server.address)
        without, with_token = await asyncio.gather(run(*probe), run(*probe, "--token-file", str(key)))
    assert (without.code, with_token.code) == (1, 0)


def test_a_token_is_not_sent_to_another_machine_in_the_clear(tmp_path):
    key = tmp_path / "t"
    key.write_text("mm_secret_of_mine")
    to = ("list", "--address", "192.0.2.1:1", "--timeout", "0.2", "--token-file", str(key))
    refused = alone(*to)
    assert refused.code == 2
    assert "needs TLS" in refused.err
    assert "mm_secret" not in refused.err
    assert alone(*to, "--allow-insecure-token").code not in (0, 2)
