"""`modelmeter tokens`, on the file and through a server that runs with it."""

from __future__ import annotations

import json
import stat

import pytest

from tests.support.command_line import run

CONFIG = """
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


async def made(*where: str, tenant: str = "acme") -> str:
    result = await run("tokens", "create", "--tenant", tenant, *where)
    assert result.code == 0, result.err
    return result.out.strip()


async def test_tokens_are_kept_without_a_server(tmp_path):
    where = ("--file", str(tmp_path / "t.json"))
    first = await run("tokens", "create", "--tenant", "acme", "--name", "ci", "--expires-in", "90d", *where)
    token = first.out.strip()
    assert token.startswith("mm_")
    assert "shown this once" in first.err
    assert token not in first.err
    assert stat.S_IMODE((tmp_path / "t.json").stat().st_mode) == 0o600
    second = (await run("tokens", "rotate", token, "--overlap", "1h", *where)).out.strip()
    assert (await run("tokens", "revoke", second.split("_")[1], *where)).code == 0
    listed = await run("tokens", "list", "--json", *where)
    rows = json.loads(listed.out)["tokens"]
    assert [(row["tenant"], row["name"], row["state"]) for row in rows] in (
        [("acme", "ci", "ACTIVE"), ("acme", "ci", "REVOKED")],
        [("acme", "ci", "REVOKED"), ("acme", "ci", "ACTIVE")],
    )
    for secret in (token, second):
        assert secret.split("_")[2] not in listed.out


async def test_a_mistake_ends_with_1_and_changes_nothing(config, tmp_path):
    unknown = await run("tokens", "create", "--tenant", "nobody", "--config", str(config))
    assert (unknown.code, unknown.out) == (1, "")
    assert 'no tenant "nobody"; the configuration has acme, ops' in unknown.err
    missing = await run("tokens", "revoke", "abc", "--config", str(config))
    assert (missing.code, missing.err) == (1, "there is no token abc\n")
    (tmp_path / "t.json").write_text("text")
    damaged = await run("tokens", "list", "--file", str(tmp_path / "t.json"))
    assert damaged.code == 1
    assert "is no file of tokens" in damaged.err
    both = await run("tokens", "list", "--file", "a", "--config", "b")
    assert both.code == 2
    assert (await run("tokens", "create", "--tenant", "a", "--expires-in", "soon", "--file", "t")).code == 2


async def test_a_server_lets_in_who_has_a_token_and_manages_tokens_for_admins(config, served):
    where = ("--config", str(config))
    ops, acme = await made(*where, tenant="ops"), await made(*where)
    async with served("--config", str(config)) as server:
        at = ("--address", server.address, "--timeout", "20")
        nobody = await run("call", "m", "Hi", *at)
        assert nobody.code == 3
        assert "send `authorization: Bearer TOKEN`" in nobody.err
        models = await run("models", *at, env={"MODELMETER_TOKEN": acme})
        assert "secret" not in models.out
        assert (await run("call", "m", "Hi", *at, env={"MODELMETER_TOKEN": acme})).code == 0
        assert (await run("tokens", "list", *at, env={"MODELMETER_TOKEN": acme})).code == 3
        key = config.parent / "ops.token"
        key.write_text(ops + "\n")
        held = ("--token-file", str(key))
        new = await run("tokens", "create", "--tenant", "acme", *at, *held)
        assert (await run("call", "m", "Hi", *at, env={"MODELMETER_TOKEN": new.out.strip()})).code == 0
        assert (await run("tokens", "revoke", new.out.strip(), *at, *held)).code == 0
        assert (await run("call", "m", "Hi", *at, env={"MODELMETER_TOKEN": new.out.strip()})).code == 3
        assert (await run("healthcheck", "--address", server.address)).code == 1
        assert (await run("healthcheck", "--address", server.address, *held)).code == 0
        unknown = await run("tokens", "revoke", "abc", *at, *held)
        assert unknown.code == 3


async def test_a_token_is_not_sent_to_another_machine_in_the_clear(tmp_path):
    key = tmp_path / "t"
    key.write_text("mm_secret_of_mine")
    refused = await run("models", "--address", "example.test:1", "--token-file", str(key))
    assert refused.code == 2
    assert "needs TLS" in refused.err
    assert "mm_secret" not in refused.err
    allowed = ("--allow-insecure-token", "--timeout", "1")
    sent = await run("models", "--address", "192.0.2.1:1", "--token-file", str(key), *allowed)
    assert sent.code not in (0, 2)
