"""A server process reads its configuration again: on SIGHUP, when a file has changed, and never by half."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import modelmeter
from modelmeter_server.identity.token_file import TokenFile
from tests.e2e import hostile
from tests.support.fault_server import FaultServer, Reply
from tests.support.logged_server import LoggedServer, logged_server

RELOADED, REFUSED = (
    "the configuration was reloaded",
    "the configuration is not reloaded; the one before still holds",
)
RESTART = "a restart is needed for these; they are as they were"

ANSWER = hostile.answer("anthropic", "Hello.")


def document(url: str, *, model: str = "m", server: str = "", rest: str = "") -> str:
    return (
        f'[server]\nlisten = "127.0.0.1:0"\n{server}\n[ledger]\nurl = "none"\n'
        f'[providers.p]\nkind = "anthropic"\nbase_url = "{url}"\napi_key_file = "p.key"\n'
        f'[models.{model}]\nprovider = "p"\nmodel = "m-test"\n{rest}'
    )


@asynccontextmanager
async def serving(folder: Path, server: str = "") -> AsyncIterator[tuple[LoggedServer, FaultServer, Path]]:
    async with FaultServer(Reply(chunks=[ANSWER])) as provider:
        file = folder / "m.toml"
        (folder / "p.key").write_text("sk-first-key")
        file.write_text(document(provider.url, server=server))
        async with logged_server("--config", str(file)) as running:
            yield running, provider, file


async def names(server: LoggedServer) -> list[str]:
    async with modelmeter.AsyncClient(server.address) as client:
        return [each.name for each in await client.models()]


QUIET = "reload_on_change = false"
"""Only the signal counts then, so that a test knows what it was that counted."""


async def test_sighup_takes_over_what_has_changed_and_names_it(tmp_path):
    async with serving(tmp_path, QUIET) as (server, provider, file):
        file.write_text(document(provider.url, model="n", server=QUIET + "\ndrain_seconds = 7"))
        server.send(signal.SIGHUP)
        line = await server.told(RELOADED, why="SIGHUP")
        assert line["changed"] == ["models.m", "models.n", "server.drain_seconds"]
        assert await names(server) == ["n"]
        assert await server.end() == 0
        assert server.find("draining", seconds=7.0)


async def test_mistakes_are_logged_with_their_lines_and_nothing_of_the_file_is_taken_over(tmp_path):
    async with serving(tmp_path, QUIET) as (server, provider, file):
        wrong = document(provider.url, model="n", server=QUIET + "\ndrain_second = 7", rest='pride = "1"\n')
        file.write_text(wrong)
        server.send(signal.SIGHUP)
        line = await server.told(REFUSED)
        assert [each.split(": ")[:2] for each in line["mistakes"]] == [
            [f"{file}:4", "server.drain_second"],
            [f"{file}:14", "models.n.pride"],
        ]
        assert await names(server) == ["m"]
        server.send(signal.SIGHUP)
        await server.told(REFUSED, count=2)
        file.write_text(document(provider.url, model="n", server=QUIET))
        server.send(signal.SIGHUP)
        await server.told(RELOADED)
        assert await names(server) == ["n"]


async def test_what_needs_a_restart_is_said_and_the_rest_taken_over(tmp_path):
    async with serving(tmp_path, QUIET) as (server, provider, file):
        text = document(
            provider.url, model="n", server=QUIET + '\nworkers = 3\nprivate_listen = "127.0.0.1:0"'
        )
        file.write_text(text.replace('url = "none"', 'url = "sqlite:///other.db"'))
        server.send(signal.SIGHUP)
        line = await server.told(RESTART)
        assert line["keys"] == ["ledger.url", "server.private_listen", "server.workers"]
        assert await names(server) == ["n"]
        assert not (tmp_path / "other.db").exists()


async def test_a_file_that_has_changed_is_read_without_a_signal(tmp_path):
    async with serving(tmp_path) as (server, provider, file):
        file.write_text(document(provider.url, model="n"))
        line = await server.told(RELOADED, why="change of a file")
        assert line["changed"] == ["models.m", "models.n"]
        assert await names(server) == ["n"]


async def test_a_key_file_that_is_replaced_counts_and_its_key_is_in_no_log(tmp_path):
    async with serving(tmp_path) as (server, provider, _), modelmeter.AsyncClient(server.address) as client:
        await client.complete("m", "Hi")
        (tmp_path / "next").write_text("sk-second-key")
        (tmp_path / "next").replace(tmp_path / "p.key")
        line = await server.told(RELOADED)
        assert "providers.p.api_key_file" in line["changed"]
        await client.complete("m", "Hi")
        assert [each.headers["x-api-key"] for each in provider.requests] == ["sk-first-key", "sk-second-key"]
        assert "sk-" not in server.text


async def test_a_mistake_in_a_file_that_changes_is_logged_and_mended_by_the_file_that_was_missing(tmp_path):
    async with serving(tmp_path) as (server, provider, file):
        text = document(provider.url, model="n").replace("p.key", "q.key")
        # An old file: one that was written just now is read again in any case.
        (tmp_path / "next").write_text(text)
        os.utime(tmp_path / "next", (1, 1))
        (tmp_path / "next").replace(file)
        line = await server.told(REFUSED, why="change of a file")
        assert "q.key" in line["mistakes"][0]
        assert await names(server) == ["m"]
        (tmp_path / "q.key").write_text("sk-third-key")
        await server.told(RELOADED)
        assert await names(server) == ["n"]
        assert len(server.find(REFUSED)) == 1


async def test_a_link_that_is_turned_is_a_change(tmp_path):
    """Kubernetes replaces a mounted configuration by turning one symbolic link."""
    async with FaultServer(Reply(chunks=[ANSWER])) as provider:
        for folder, model in (("one", "m"), ("two", "n")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "p.key").write_text("sk-key")
            (tmp_path / folder / "m.toml").write_text(document(provider.url, model=model))
        (tmp_path / "data").symlink_to("one")
        async with logged_server("--config", str(tmp_path / "data" / "m.toml")) as server:
            (tmp_path / "next").symlink_to("two")
            (tmp_path / "next").replace(tmp_path / "data")
            await server.told(RELOADED, why="change of a file")
            assert await names(server) == ["n"]


async def test_the_level_of_the_log_changes_with_the_configuration(tmp_path):
    async with serving(tmp_path, QUIET) as (server, provider, file):
        async with modelmeter.AsyncClient(server.address) as client:
            await client.complete("m", "Hi")
            await server.told("call")
            file.write_text(document(provider.url, server=QUIET + '\nlog_level = "warning"\nworkers = 2'))
            server.send(signal.SIGHUP)
            await server.told(RESTART)
            await client.complete("m", "Hi")
        assert await server.end() == 0
    assert len(server.find("call")) == 1
    assert not server.find("draining")


async def test_sighup_without_a_configuration_ends_nothing(tmp_path):
    async with logged_server("--listen", "127.0.0.1:0", cwd=tmp_path) as server:
        server.send(signal.SIGHUP)
        await server.told("there is no configuration file to read again")
        assert "replay/answer" in await names(server)


@pytest.mark.parametrize("way", ["SIGHUP", "change of a file"])
async def test_ceilings_that_a_reload_declares_bind_the_next_calls(tmp_path, way):
    """They are set right after the log has told of the reload: the second wait is for that."""
    _, token = TokenFile(tmp_path / "tokens.json").create("acme")
    tenant = '[identity]\ntokens_file = "tokens.json"\n[tenants.acme]\n'
    price = 'price = { currency = "USD", input = "1", output = "1" }\n'

    def with_ledger(url: str, ceilings: str = "") -> str:
        text = document(url, server=QUIET if way == "SIGHUP" else "", rest=price + tenant + ceilings)
        return text.replace('url = "none"', 'url = "sqlite:///ledger.db"')

    async with FaultServer(Reply(chunks=[ANSWER])) as provider:
        file = tmp_path / "m.toml"
        (tmp_path / "p.key").write_text("sk-first-key")
        file.write_text(with_ledger(provider.url))
        async with (
            logged_server("--config", str(file)) as server,
            modelmeter.AsyncClient(server.address, token=token) as client,
        ):
            assert (await client.complete("m", "Hi")).text
            assert await client.ledger.ceilings() == []
            file.write_text(with_ledger(provider.url, "ceilings = [{ tokens = 1 }]\n"))
            if way == "SIGHUP":
                server.send(signal.SIGHUP)
            await server.told(RELOADED, why=way)
            async with asyncio.timeout(10):
                while not (found := await client.ledger.ceilings()):  # noqa: ASYNC110 - nobody tells of it
                    await asyncio.sleep(0.01)
            with pytest.raises(modelmeter.CeilingError):
                await client.complete("m", "Hi")
            assert [(each.tokens, each.by_admin) for each in found] == [(1, True)]
            assert len(provider.requests) == 1


@pytest.mark.parametrize("word", ["server", "models"])
async def test_half_a_file_is_no_configuration(tmp_path, word):
    """An editor that writes in place is read in the middle: what holds meanwhile is what held before."""
    async with serving(tmp_path) as (server, provider, file):
        whole = document(provider.url, model="n")
        file.write_text(whole[: whole.index(f"[{word}") + len(word)])
        await server.told(REFUSED)
        assert await names(server) == ["m"]
        file.write_text(whole)
        await server.told(RELOADED)
        assert await names(server) == ["n"]
