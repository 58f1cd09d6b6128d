"""`modelmeter ledger` against a server with a ledger of its own."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from modelmeter.cli.program import program
from modelmeter_server.core.pricing import PriceTable, Tier
from tests.support.command_line import run
from tests.support.ledgers import ledger_in
from tests.support.running_server import MODEL, serving
from tests.support.scripted_driver import ScriptedDriver, answering

CALL_ID = "6f2c1c9b-5b0c-4f7e-8a86-6b1c9f0e2d11"


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of a server that has booked one call."""
    async with (
        ledger_in(tmp_path) as ledger,
        serving(ScriptedDriver(*[answering()] * 3), ledger=ledger) as running,
    ):
        await running.ask(call_id=CALL_ID, labels={"team": "blue"})
        yield running.address


async def modelmeter(*arguments: str) -> Result:
    """Run a command in a thread of this process; starting one of its own takes seconds."""
    return await asyncio.to_thread(CliRunner().invoke, program, arguments)


async def ledger(address: str, *arguments: str) -> Result:
    return await modelmeter("ledger", *arguments, "--address", address)


async def asked(address: str) -> Result:
    return await modelmeter("call", "claude", "Hi", "--address", address)


async def test_calls_are_listed_in_each_format(books):
    table = await ledger(books, "calls")
    as_csv = await ledger(books, "calls", "--format", "csv", "--label", "team=blue")
    lines = await ledger(books, "calls", "--format", "jsonl", "--answered", "--since", "1h")
    (row,) = csv.DictReader(io.StringIO(as_csv.stdout))
    assert table.stdout.split("\t")[0] == row["call_id"] == json.loads(lines.stdout)["call_id"] == CALL_ID
    assert (row["state"], row["outcome"], row["model"]) == ("SETTLED", "ANSWERED", "claude")
    assert (await ledger(books, "calls", "--label", "team=red")).stdout == ""


async def test_one_call_is_told_in_full(books):
    told = await ledger(books, "show", CALL_ID)
    assert told.stdout.splitlines()[0] == "ANSWERED, SETTLED"
    assert "attempt 1" in told.stdout
    assert "team=blue" in told.stdout
    document = json.loads((await ledger(books, "show", CALL_ID, "--json")).stdout)["call"]
    assert document["completion"]["text"] == (await ledger(books, "show", CALL_ID, "--answer")).stdout.rstrip(
        "\n"
    )
    assert document["booking"]["settled"]["tokens"] > 0


async def test_spend_is_told_by_label_and_drawn_by_day(books):
    by_label = await ledger(books, "spend", "--label", "team", "--format", "jsonl")
    row = json.loads(by_label.stdout)
    assert (row["value"], row["calls"]) == ("blue", 1)
    by_day = json.loads((await ledger(books, "spend", "--per", "day", "--format", "jsonl")).stdout)
    assert by_day["settled_tokens"] == row["settled_tokens"]
    assert by_day["period"].endswith("T00:00:00Z")
    chart = await ledger(books, "spend", "--chart")
    assert "█" * 40 in chart.stdout


async def test_a_ceiling_is_set_listed_met_and_deleted(books):
    made = await ledger(books, "ceilings", "set", "tenant", "--tokens", "1", "--window", "day")
    ceiling_id = made.stdout.strip()
    listed = json.loads((await ledger(books, "ceilings", "list", "--format", "jsonl")).stdout)
    assert (listed["ceiling_id"], listed["allowed"], listed["left"]) == (ceiling_id, 1, 0)
    assert (await asked(books)).exit_code == 7
    assert (await ledger(books, "ceilings", "delete", ceiling_id)).exit_code == 0
    assert (await asked(books)).exit_code == 0
    again = await ledger(books, "ceilings", "delete", ceiling_id)
    assert (again.exit_code, again.stderr.partition(":")[0]) == (3, "REFUSED")


async def test_a_ceiling_on_every_run_is_not_taken_for_one_on_the_run_that_it_shows(books):
    for name in ([], ["other"]):
        assert (await ledger(books, "ceilings", "set", "run", *name, "--tokens", "500")).exit_code == 0
    listed = (await ledger(books, "ceilings", "list", "--format", "jsonl")).stdout.splitlines()
    assert {(row["scope"], row["name"]) for row in map(json.loads, listed)} == {
        ("EVERY RUN", ""),
        ("RUN", "other"),
    }


async def test_a_halt_is_set_listed_met_and_cleared(books):
    assert (await ledger(books, "halt", "set", "tenant", "--reason", "audit")).exit_code == 0
    assert json.loads((await ledger(books, "halt", "list", "--format", "jsonl")).stdout)["reason"] == "audit"
    assert (await asked(books)).exit_code == 7
    assert (await ledger(books, "halt", "clear", "tenant")).exit_code == 0
    assert (await asked(books)).exit_code == 0


async def test_an_export_has_every_call_and_goes_into_a_file(books, tmp_path):
    file = tmp_path / "calls.csv"
    assert (await ledger(books, "export", "--output", str(file))).stdout == ""
    (row,) = csv.DictReader(io.StringIO(file.read_text()))
    assert (row["call_id"], json.loads(row["labels"])) == (CALL_ID, {"team": "blue"})
    whole = json.loads((await ledger(books, "export", "--format", "jsonl")).stdout)
    assert whole["settled_tokens"] == int(row["settled_tokens"])


async def test_an_export_into_no_folder_is_a_wrong_command_line(books, tmp_path):
    refused = await ledger(books, "export", "--output", str(tmp_path / "none" / "calls.csv"))
    assert refused.exit_code == 2
    assert "No such file or directory" in refused.stderr


async def test_an_export_has_what_is_booked_in_money_and_leaves_out_what_nobody_said(tmp_path):
    tier = Tier(input=5_000_000_000, output=25_000_000_000)
    priced = msgspec.structs.replace(MODEL, price=PriceTable(currency="USD", tiers=(tier,)))
    async with (
        ledger_in(tmp_path) as books,
        serving(ScriptedDriver(answering()), models=[priced], ledger=books) as running,
    ):
        await running.ask()
        row = json.loads((await ledger(running.address, "export", "--format", "jsonl")).stdout)
    assert (row["unsettled"], row["booking_currency"], row["reconciled_by"]) == ("0.00", "USD", "")
    assert row["settled"] == row["cost"] != "0.00"


async def test_erased_content_is_gone(books):
    assert (await ledger(books, "erase", "--call", CALL_ID)).stdout == "1 call erased\n"
    gone = await ledger(books, "show", CALL_ID, "--answer")
    assert (gone.exit_code, gone.stderr.partition(":")[0]) == (7, "OUTCOME_GONE")


async def test_a_provider_that_cannot_tell_is_named(books):
    refused = await ledger(books, "reconcile", CALL_ID)
    assert (refused.exit_code, refused.stderr.partition(":")[0]) == (3, "NOT_RECONCILABLE")
    same = await ledger(
        books, "reconcile", CALL_ID, "--input-tokens", "1", "--output-tokens", "1", "--reason", "invoice"
    )
    assert "nothing changed" in same.stdout


async def test_an_export_of_the_provider_is_compared(books, tmp_path):
    call = json.loads((await ledger(books, "export", "--format", "jsonl")).stdout)
    tokens = call["input_tokens"] + call["output_tokens"]
    day = call["reserved_at"][:10]
    file = tmp_path / "usage.csv"
    model = call["model_served"] or call["model"]
    file.write_text(f"date,model,input_tokens,output_tokens\n{day},{model},{2 * tokens},0\n")
    compared = await ledger(books, "reconcile", "--import", str(file), "--format", "jsonl")
    row = json.loads(compared.stdout)
    assert (row["provider_tokens"], row["ledger_tokens"], row["capture"]) == (2 * tokens, tokens, "50.00 %")
    assert compared.stderr == "capture rate: 50.00 % of tokens\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("calls", "--since", "yesterday"),
        ("calls", "--state", "lost"),
        ("ceilings", "set", "tenant", "--money", "12"),
        ("spend", "--chart", "--by", "model"),
        ("spend", "--by", "model", "--label", "team"),
        ("reconcile",),
        ("reconcile", CALL_ID, "--money", "3USD", "--reason", "invoice"),
        ("reconcile", CALL_ID, "--input-tokens", "3"),
        ("reconcile", CALL_ID, "--at-least"),
        ("erase",),
    ],
)
async def test_a_wrong_command_line_sends_nothing(arguments):
    assert (await ledger("127.0.0.1:1", *arguments)).exit_code == 2


async def test_nobody_at_the_address_is_told_with_what_to_do():
    result = await ledger("127.0.0.1:1", "calls")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (5, "NOT CONNECTED")
    assert "`modelmeter serve` starts one" in result.stderr


async def test_a_mistake_is_told_once(books):
    result = await ledger(books, "halt", "set", "run")
    assert result.stderr == "REFUSED: bad request\n  halt.subject.name  must be the run id\n"


async def test_a_server_without_a_ledger_says_so(replay_address):
    result = await run("ledger", "calls", "--address", replay_address)
    assert (result.code, result.err.partition(":")[0]) == (3, "NO_LEDGER")
