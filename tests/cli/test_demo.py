"""`modelmeter demo` shows the endings of calls, keeps its promises, and ends by itself."""

from __future__ import annotations

import subprocess
import sys

from tests.support.command_line import environment, run, run_on_terminal


async def test_the_demo_shows_each_ending_with_what_is_known_of_its_cost():
    result = await run("demo")
    assert (result.code, result.err) == (0, "")
    summary = result.out.split("What is known of these calls\n")[1].splitlines()
    cells = [line.split()[:2] for line in summary[1:6]]
    assert cells == [
        ["drip", "answered"],
        ["cut", "INTERRUPTED"],
        ["cut_before_usage", "UNACCOUNTED"],
        ["refused", "REFUSED"],
        ["rate_limited", "RATE_LIMITED"],
    ]
    for line, word in zip(summary[1:6], ["EXACT", "AT_LEAST", "UNKNOWN", "NONE", "NONE"], strict=True):
        assert word in line
    assert summary[-1].startswith("Altogether at least 0.")


async def test_the_demo_runs_on_a_terminal():
    result = await run_on_terminal("demo")
    assert result.code == 0
    assert "\x1b[1" in result.out


def test_the_demo_fails_when_a_call_does_not_end_as_promised():
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import asyncio, sys, msgspec\n"
            "from modelmeter_server.commands import scenes\n"
            "wrong = msgspec.structs.replace(scenes.SCENES[0], script='refused')\n"
            "scenes.SCENES = (wrong,)\n"
            "sys.exit(not asyncio.run(scenes.show()))\n",
        ],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert found.returncode == 1
    assert "A good answer did not end as promised." in found.stdout
