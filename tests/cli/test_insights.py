"""`modelmeter insights`: what the latest calls looked like, from a server that made them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner

from modelmeter import Client
from modelmeter.cli.insights import rows_of
from modelmeter.cli.program import program
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.command_line import run_on_terminal
from tests.support.identities import gated
from tests.support.ledgers import ledger_in
from tests.support.running_server import MODEL, serving
from tests.support.scripted_driver import Broken, ScriptedDriver, Step, Written, answering, opening, text

PRICED = msgspec.structs.replace(
    MODEL, price=PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
)
CUT: list[Step] = [Written(), opening(), text("He"), Broken()]


async def shown(address: str, *arguments: str, token: str = ""):
    words = ["insights", "--address", address, "--timeout", "10", *arguments]
    env = {"MODELMETER_TOKEN": token}
    return await asyncio.to_thread(CliRunner(env=env).invoke, program, words)


def rows(told: str) -> dict[str, str]:
    """Return the lines with a label."""
    lines = [line.strip().partition("  ") for line in told.splitlines() if line.startswith("  ")]
    return {label: words.strip() for label, _, words in lines}


async def test_calls_are_summed_up_and_a_doubt_says_so():
    driver = ScriptedDriver(answering(), CUT)
    async with serving(driver, models=[PRICED], telemetry=Telemetry()) as running:
        await running.ask(labels={"conversation_id": "chat-1"})
        exact = await shown(running.address, "--last", "15m")
        await running.error(labels={"conversation_id": "chat-2"})
        doubted = await shown(running.address)
    assert (exact.exit_code, doubted.exit_code) == (0, 0)
    assert exact.stdout.startswith("seen by process ")
    told = rows(exact.stdout)
    assert told["calls"] == "1: 1 answered, 0 failed"
    assert told["looks back"] == "at most 10,000 calls of this process"
    assert (told["tokens"], told["cost"]) == ("input 25, output 9", "0.00035 USD")
    assert all(told[label].startswith("p50 ") for label in ("latency", "first token"))
    assert "failed" not in told
    assert "at least" not in exact.stdout
    assert "conversation\tchat-1\t1\t25\t9\t0.00035\tUSD\t\n" in exact.stdout
    told = rows(doubted.stdout)
    assert (told["calls"], told["failed"]) == ("2: 1 answered, 1 failed", "INTERRUPTED 1")
    assert told["tokens"] == "at least input 50, output 10"
    assert told["cost"] == "at least 0.0005 USD"
    assert told["certainty"].startswith("at least: 1 call told in part;")
    assert "conversation\tchat-2\t1\t25\t1\t0.00015\tUSD\tat least\n" in doubted.stdout
    assert "conversation\tchat-1\t1\t25\t9\t0.00035\tUSD\t\n" in doubted.stdout
    assert "model\tclaude\t2\t50\t10\t0.0005\tUSD\tat least\n" in doubted.stdout


async def test_money_of_any_currency_is_a_lower_bound_beside_a_call_of_which_nothing_was_told():
    driver = ScriptedDriver(answering(), [Written(), Broken()])
    async with serving(driver, models=[PRICED], telemetry=Telemetry()) as running:
        await running.ask(labels={"conversation_id": "chat-1"})
        await running.error(labels={"conversation_id": "chat-1"})
        result = await shown(running.address)
    assert rows(result.stdout)["cost"] == "at least 0.00035 USD; 1 call without a price"
    assert "conversation\tchat-1\t1\t25\t9\t0.00035\tUSD\t\n" in result.stdout
    assert "conversation\tchat-1\t1\t0\t0\t\t\tat least\n" in result.stdout


async def test_money_is_doubted_in_its_own_currency_alone():
    async with serving(ScriptedDriver(CUT), models=[PRICED], telemetry=Telemetry()) as running:
        await running.error()
        with Client(running.address) as client:
            found = await asyncio.to_thread(client.events.insights, timeout=10)
    (dollars,) = found.total
    euros = replace(dollars, currency="EUR", at_least=0)
    unpriced = replace(dollars, currency="", nano_units=0)
    told = dict(rows_of(replace(found, total=(dollars, euros, unpriced))))
    assert told["cost"] == "at least 0.00015 USD, 0.00015 EUR; 1 call without a price"


@pytest.mark.parametrize(
    ("narrow", "calls"),
    [
        (("--conversation", "chat-1"), 1),
        (("--run", "nightly"), 1),
        (("--model", "claude"), 2),
        (("--model", "gpt"), 0),
        (("--conversation", "chat-1", "--run", "nightly"), 0),
    ],
)
async def test_it_narrows_to_what_is_named(tmp_path, narrow, calls):
    driver = ScriptedDriver(answering(), answering())
    async with (
        ledger_in(tmp_path) as ledger,
        serving(driver, ledger=ledger, telemetry=Telemetry()) as running,
    ):
        await running.ask(labels={"conversation_id": "chat-1"})
        await running.ask(effect={"run_id": "nightly", "key": "1"})
        result = await shown(running.address, *narrow)
    assert rows(result.stdout)["calls"].startswith(f"{calls}: ")


async def test_programs_get_one_document():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        await running.ask()
        result = await shown(running.address, "--json")
    told = json.loads(result.stdout)["insights"]
    assert (told["calls"], told["at_least"], told["most_calls"]) == (1, 0, 10_000)
    assert told["total"][0]["output_tokens"] == 9
    assert told["latency"]["count"] == 1
    assert told["process"]
    assert "proto" not in told


async def test_an_admin_sees_every_tenant_and_another_one_itself_alone(tmp_path):
    async with gated(tmp_path, driver=ScriptedDriver(answering())) as gate:
        async with asyncio.timeout(10):
            await asyncio.to_thread(_ask, gate.address, gate.acme)
        every, own, denied = [
            await shown(gate.address, *words, token=token)
            for words, token in (
                (("--tenant", "*"), gate.ops),
                ((), gate.ops),
                (("--tenant", "ops"), gate.acme),
            )
        ]
        refused = await shown(gate.address, "--tenant", "ops", "--json", token=gate.acme)
    assert [rows(each.stdout)["calls"][0] for each in (every, own)] == ["1", "0"]
    assert (denied.exit_code, denied.stdout) == (3, "")
    assert json.loads(refused.stdout)["error"]["type"] == "RefusedError"


def _ask(address: str, token: str) -> None:
    with Client(address, token=token, timeout=10) as client:
        client.complete("claude", "Hi")


async def test_mistakes_and_a_server_that_is_not_there_have_their_codes():
    async with serving(ScriptedDriver(), telemetry=Telemetry()) as running:
        nothing = await shown(running.address, "--last", "0s")
        soon = await shown(running.address, "--last", "soon")
    nobody = await shown("127.0.0.1:1")
    assert (nothing.exit_code, soon.exit_code, nobody.exit_code) == (3, 2, 5)
    assert "window" in nothing.stderr
    assert "write 90d, 12h, 30m or 45s" in soon.stderr


async def test_a_terminal_gets_tables_with_a_header():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        await running.ask(labels={"conversation_id": "chat-1"})
        result = await run_on_terminal("insights", "--address", running.address, "--timeout", "20")
    assert result.code == 0
    assert "seen by process" in result.out
    assert "1 call without a price" in result.out
    header = next(line for line in result.out.splitlines() if "name" in line)
    assert "calls" in header
    assert "certainty" not in header


async def test_what_is_remembered_has_an_end_and_says_so():
    telemetry = Telemetry(samples=2)
    async with serving(ScriptedDriver(*[answering()] * 3), telemetry=telemetry) as running:
        for _ in range(2):
            await running.ask()
        full = rows((await shown(running.address)).stdout)
        await running.ask()
        told = rows((await shown(running.address)).stdout)
        narrowed = rows((await shown(running.address, "--run", "nightly")).stdout)
    assert (full["calls"][0], full["looks back"]) == ("2", "at most 2 calls of this process")
    assert (narrowed["calls"][0], narrowed["looks back"]) == ("0", told["looks back"])
    assert told["calls"].startswith("2: ")
    assert told["looks back"] == "at most 2 calls of this process: older ones are gone"


async def test_calls_of_which_nothing_was_told_are_a_doubt_and_replayed_ones_a_count():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        await running.ask()
        with Client(running.address) as client:
            found = await asyncio.to_thread(client.events.insights, timeout=10)
    told = dict(rows_of(replace(found, calls=3, answered=3, replayed=1, untold=1)))
    assert told["calls"] == "3: 3 answered, 0 failed, 1 of them replayed"
    assert told["certainty"].startswith("at least: 1 call may have consumed something that nobody told;")
    assert told["tokens"].startswith("at least ")
