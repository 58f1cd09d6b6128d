"""`modelmeter demo` shows the endings of calls and what the ledger has of them, keeps its promises, and ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.command_line import environment, run, run_on_terminal

LEDGER = "What the ledger has of them\n"


async def test_the_demo_shows_what_the_ledger_has_of_each_call():
    result = await run("demo")
    assert (result.code, result.err) == (0, "")
    lines = result.out.split(LEDGER)[1].splitlines()
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["drip", "ANSWERED", "SETTLED", "EXACT"],
        ["cut", "INTERRUPTED", "UNSETTLED", "AT_LEAST"],
        ["cut_before_usage", "UNACCOUNTED", "UNSETTLED", "UNKNOWN"],
        ["refused", "REFUSED", "SETTLED", "NONE"],
    ]
    assert [line.split()[4:] for line in (lines[1], lines[4])] == [
        ["0.000351", "USD", "none"],
        ["none", "none"],
    ]
    assert lines[6].startswith("The run asked for 5 calls and bought 4: settled 46 tokens (0.000402 USD),")


async def test_the_demo_asks_for_one_effect_twice_and_gets_the_call_that_was_bought():
    result = await run("demo")
    first, second = result.out.split("The same once more: replay/drip\n")
    answer, again = first.split("A good answer")[1], second.split("An interrupted one")[0]
    assert "replayed " not in answer
    assert "replayed   yes: the bill is of an earlier call, and nothing new was bought\n" in again
    assert answer.split("call id")[1].strip() == again.split("call id")[1].strip()


async def test_the_demo_runs_on_a_terminal():
    result = await run_on_terminal("demo")
    assert result.code == 0
    assert "\x1b[1" in result.out


@pytest.mark.parametrize("wrong", ["script='refused'", "state=CallState.UNSETTLED", "replayed=True"])
def test_the_demo_fails_when_a_call_does_not_end_or_is_not_booked_as_promised(wrong: str):
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import asyncio, sys, msgspec\n"
            "from modelmeter import CallState\n"
            "from modelmeter_server.commands import scenes\n"
            f"scenes.SCENES = (msgspec.structs.replace(scenes.SCENES[0], {wrong}),)\n"
            "sys.exit(not asyncio.run(scenes.show()))\n",
        ],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert found.returncode == 1
    assert "A good answer did not end as promised." in found.stdout
