"""What a deployment with a ledger tells of its ceilings: over EventService, and in the metrics."""

from __future__ import annotations

from contextlib import asynccontextmanager

import modelmeter
from modelmeter_server import app
from modelmeter_server.config import load
from modelmeter_server.telemetry import conventions as names
from tests.support.watching import counted

CONFIG = """
[ledger]
url = "sqlite:///{folder}/ledger.db"
[telemetry]
ledger_interval = 3600
[providers.replay]
kind = "replay"
allow_direct_models = true
"""


@asynccontextmanager
async def deployment(folder):
    """Run a server with a ledger; hand out what it is made of, and a client."""
    file = folder / "modelmeter.toml"
    file.write_text(CONFIG.format(folder=folder))
    running = app.App(load(file, {}, listen=["127.0.0.1:0"]))
    (address,) = await running.start()
    try:
        async with modelmeter.AsyncClient(address) as client:
            yield running, client
    finally:
        await running.stop(0)


async def test_a_share_of_a_ceiling_that_is_passed_is_told_once_to_who_watches(tmp_path):
    async with deployment(tmp_path) as (running, client):
        ceiling = await client.ledger.set_ceiling("tenant", tokens=1_000)
        async with client.events.watch(kinds=["soft_limit"]) as batches:
            for _ in range(2):
                await client.complete("replay/answer", "Hello", max_output_tokens=600)
            event = (await anext(aiter(batches))).events[0]
        recent = [each async for each in client.events.recent(kinds=["soft_limit"])]
        metrics = counted(running.telemetry)
    fact = event.fact
    assert event.severity.value == "WARNING"
    assert (fact["ceiling_id"], fact["scope"], fact["percent"]) == (ceiling.ceiling_id, "TENANT", 50)
    assert (fact["allowed"], fact["currency"]) == (1_000, "")
    assert 600 <= fact["booked"] + fact["held"] + fact["unsettled"] < 1_000
    assert len(recent) == 1
    assert metrics[names.SOFT_LIMITS] == [({names.SCOPE: "TENANT", names.PERCENT: "50"}, 1)]


async def test_what_the_ledger_holds_and_what_runs_is_counted(tmp_path):
    async with deployment(tmp_path) as (running, client):
        answer = await client.complete("replay/answer", "Hello")
        async with client.stream("replay/stall", "Hello", max_output_tokens=100) as stream:
            await anext(aiter(stream))
            gauge = running._gauge
            assert gauge is not None
            await gauge.look()
            during = counted(running.telemetry)
        await running.engine.drain(5)
        await gauge.look()
        after = counted(running.telemetry)
    told = [
        {each[0][names.STATE]: each[1] for each in metrics[names.LEDGER_TOKENS]}
        for metrics in (during, after)
    ]
    assert told[0]["settled"] == answer.usage.input_tokens + answer.usage.output_tokens
    assert told[0]["held"] >= 100
    assert (told[1]["held"], told[1]["unsettled"] > 0, told[1]["written_off"]) == (0, True, 0)
    assert [metrics[names.IN_FLIGHT] for metrics in (during, after)] == [[({}, 1)], [({}, 0)]]
    assert sum(each[1] for each in during[names.QUEUE_TIME]) == 1
    assert after[names.LEDGER_UP] == [({}, 1)]


async def test_the_sessions_that_are_open_are_counted(tmp_path):
    async with deployment(tmp_path) as (running, client):
        async with client.session("replay/answer"):
            during = counted(running.telemetry)
        after = counted(running.telemetry)
    assert [metrics[names.SESSIONS_OPEN] for metrics in (during, after)] == [[({}, 1)], [({}, 0)]]
