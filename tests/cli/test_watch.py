"""`modelmeter watch`: what happens, on one line each."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from modelmeter.cli.program import program
from modelmeter.cli.watch import line
from modelmeter.enums import Certainty, CostSource, EventSeverity
from modelmeter.results import Cost, Usage
from modelmeter.watched import Event
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.command_line import started
from tests.support.running_server import Running, serving
from tests.support.scripted_driver import ScriptedDriver, answering

EVENT = Event(
    kind="prompt.completed",
    version=1,
    occurred_at=datetime(2026, 5, 1, 12, 30, 15, 250_000, tzinfo=UTC),
    tick=7,
    severity=EventSeverity.INFO,
    call_id="0b6fd6c8-7c7e-4f5b-9d0e-1d4f6d1f8b11",
    fact={
        "model_asked": "claude",
        "certainty": Certainty.EXACT,
        "usage": Usage(input_tokens=25, output_tokens=9),
        "total_time": 0.5,
        "truncated": False,
        "stop_reason": "a\x1b[31mb",
    },
)


def test_a_line_tells_when_what_which_call_and_the_fact():
    told = line(EVENT)
    assert told.startswith(
        "12:30:15.250 prompt.completed         0b6fd6c8 model_asked=claude certainty=EXACT"
    )
    assert "usage=input_tokens:25,output_tokens:9" in told
    assert "total_time=0.500" in told
    assert "truncated" not in told


@pytest.mark.parametrize(
    ("certainty", "text"),
    [(Certainty.EXACT, "cost=0.000235USD"), (Certainty.AT_LEAST, "cost=0.000235USD,certainty:AT_LEAST")],
)
def test_a_cost_is_shown_as_money(certainty, text):
    cost = Cost(235_000, "USD", CostSource.PRICE_TABLE, certainty, 1)
    assert text in line(replace(EVENT, fact={"cost": cost, "finish": "STOP"})).split()


def test_a_providers_word_does_not_move_the_cursor():
    assert "\x1b" not in line(EVENT)


async def watched(*arguments: str, calls: int = 1):
    """Run the command while calls are made, until it ends."""
    telemetry = Telemetry()
    async with serving(ScriptedDriver(answering()), telemetry=telemetry) as running:
        words = ["watch", "--address", running.address, "--timeout", "10", *arguments]
        ending = asyncio.ensure_future(asyncio.to_thread(CliRunner().invoke, program, words))
        while not telemetry.bus.watchers and not ending.done():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.001)
        for _ in range(calls):
            await running.ask()
        return await ending


async def test_events_are_shown_as_they_come():
    result = await watched("--count", "3")
    assert result.exit_code == 0
    kinds = [each.split()[1] for each in result.stdout.splitlines()]
    assert kinds == ["prompt.started", "attempt", "prompt.completed"]


async def test_ctrl_c_ends_it_without_a_word():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        asking = asyncio.ensure_future(_ask_until_cancelled(running))
        async with started("watch", "--address", running.address) as process:
            assert process.stdout is not None
            await process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        asking.cancel()
    assert (process.returncode, err) == (0, b"")


async def _ask_until_cancelled(running: Running) -> None:
    while True:
        await running.ask()


async def test_programs_get_one_object_a_line():
    result = await watched("--count", "1", "--json", "--kind", "prompt.completed", "--min-severity", "info")
    (told,) = [json.loads(each) for each in result.stdout.splitlines()]
    assert told["kind"] == "prompt.completed"
    assert told["fact"]["usage"]["output_tokens"] == 9
    assert "proto" not in told


async def test_only_what_names_a_target_or_a_kind_of_failure_is_shown_where_asked_for():
    result = await watched("--count", "1", "--target", "scripted", "--kind", "prompt.completed")
    assert "target=scripted" in result.stdout
    result = await watched("--error-kind", "loud", calls=0)
    assert "loud" in result.output


def test_a_zero_of_a_bill_is_shown_and_what_nobody_told_is_not():
    told = line(replace(EVENT, fact={"usage": Usage(input_tokens=25, output_tokens=0)}))
    assert "usage=input_tokens:25,output_tokens:0" in told
    assert "reasoning" not in told


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--kind", "prompt.pondered"], "REFUSED"), (["--min-severity", "loud"], "loud")]
)
async def test_a_filter_that_means_nothing_ends_the_command(arguments, said):
    result = await watched(*arguments, calls=0)
    assert result.exit_code != 0
    assert said in result.output
