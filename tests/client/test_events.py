"""Events through both clients, from a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import modelmeter
from modelmeter import AsyncClient, Client, EventSeverity
from modelmeter_server.core.events import KINDS
from modelmeter_server.rpc.convert_event import event_message
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.event_values import events_of
from tests.support.running_server import serving
from tests.support.scripted_driver import Broken, ScriptedDriver, Step, Written, answering, opening, text

FAILING: list[Step] = [Written(), opening(), text("He"), Broken()]


def watch_sync(address: str, ready, **wanted) -> list[modelmeter.Event]:
    with Client(address) as client, client.events.watch(**wanted) as batches:
        ready()
        batch = next(batches)
        assert batch.process
        return list(batch.events)


async def watch_async(address: str, ready, **wanted) -> list[modelmeter.Event]:
    async with AsyncClient(address) as client, client.events.watch(**wanted) as batches:
        ready()
        batch = await anext(batches)
        assert batch.process
        return list(batch.events)


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_events_are_watched_until_the_block_is_left(face):
    telemetry = Telemetry()
    async with serving(ScriptedDriver(FAILING), telemetry=telemetry) as running:
        ready, loop = asyncio.Event(), asyncio.get_running_loop()
        tell = lambda: loop.call_soon_threadsafe(ready.set)  # noqa: E731 - one word for both faces
        wanted = {"kinds": "prompt.failed", "min_severity": "warning"}
        if face == "async":
            seen = asyncio.ensure_future(watch_async(running.address, tell, **wanted))
        else:
            seen = asyncio.ensure_future(asyncio.to_thread(watch_sync, running.address, tell, **wanted))
        await ready.wait()
        await running.error()
        (event,) = await seen
    assert (event.kind, event.severity) == ("prompt.failed", EventSeverity.WARNING)
    assert event.fact["error_kind"] is modelmeter.ErrorKind.INTERRUPTED
    assert event.fact["certainty"] is modelmeter.Certainty.AT_LEAST
    assert event.fact["usage"].input_tokens == 25
    assert event.fact["total_time"] > 0
    assert "cost" not in event.fact
    assert event.occurred_at.tzinfo is not None


async def test_what_is_recent_and_what_it_adds_up_to():
    async with (
        serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running,
        AsyncClient(running.address) as client,
    ):
        await running.ask(labels={"conversation_id": "chat-1"})
        kinds = [event.kind async for event in client.events.recent(page_size=2)]
        insights = await client.events.insights(window=60, conversation_id="chat-1")
        nothing = await client.events.insights(run_id="none")
    assert kinds == ["prompt.completed", "attempt", "prompt.started"]
    assert (insights.calls, insights.total[0].output_tokens) == (1, 9)
    assert insights.by_model[0].name == "claude"
    assert insights.since is not None
    assert nothing.since is None


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_what_is_recent_narrows_to_a_kind_of_failure_and_a_time(face):
    async with serving(ScriptedDriver(answering(), FAILING), telemetry=Telemetry()) as running:
        await running.ask()
        await running.error()
        later = datetime.now(UTC) + timedelta(hours=1)

        def ask():
            with Client(running.address) as client:
                found = client.events.recent(error_kinds="interrupted", until=later)
                return [event.kind for event in found], list(client.events.recent(since=later))

        if face == "sync":
            failed, nothing = await asyncio.to_thread(ask)
        else:
            async with AsyncClient(running.address) as client:
                recent = client.events.recent
                failed = [event.kind async for event in recent(error_kinds="interrupted", until=later)]
                nothing = [event async for event in recent(since=later)]
    assert failed == ["prompt.failed", "attempt"]
    assert nothing == []


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_both_clients_tell_which_sums_are_doubted_and_that_calls_are_gone(face):
    driver, telemetry = ScriptedDriver(answering(), answering(), FAILING), Telemetry(samples=2)
    async with serving(driver, telemetry=telemetry) as running, AsyncClient(running.address) as client:

        def ask():
            with Client(running.address) as client:
                return client.events.insights()

        async def insights():
            return await (client.events.insights() if face == "async" else asyncio.to_thread(ask))

        await running.ask()
        await running.ask(labels={"conversation_id": "chat-1"})
        full = await insights()
        await running.error(labels={"conversation_id": "chat-2"})
        found = await insights()
    assert (full.calls, full.most_calls, full.older_calls_evicted) == (2, 2, False)
    assert (found.calls, found.most_calls, found.older_calls_evicted) == (2, 2, True)
    doubts = {each.name: (each.at_least, each.untold) for each in found.by_conversation}
    assert doubts == {"chat-1": (0, 0), "chat-2": (1, 0)}


async def test_the_sync_client_tells_the_same():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        await running.ask()

        def ask():
            with Client(running.address) as client:
                return [event.kind for event in client.events.recent()], client.events.insights()

        kinds, insights = await asyncio.to_thread(ask)
    assert kinds == ["prompt.completed", "attempt", "prompt.started"]
    assert insights.latency.count == 1


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_a_server_that_cannot_be_reached_is_no_event(face):
    if face == "async":
        watching = watch_async("127.0.0.1:1", lambda: None)
    else:
        watching = asyncio.to_thread(watch_sync, "127.0.0.1:1", lambda: None)
    with pytest.raises(modelmeter.NotConnectedError):
        await watching


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_every_kind_can_be_read(kind):
    from hypothesis import given

    @given(events_of(kind))
    def read(event):
        from modelmeter._event_messages import event_from

        found = event_from(event_message(event))
        assert found.kind == KINDS[kind]
        assert set(found.fact) <= set(kind.__struct_fields__)

    read()


def test_a_kind_that_is_newer_than_the_client_has_no_fact():
    from modelmeter._event_messages import event_from
    from modelmeter.v1 import event_pb2

    event = event_from(event_pb2.Event(kind="prompt.pondered", tick=3))
    assert (event.kind, event.tick, dict(event.fact)) == ("prompt.pondered", 3, {})


def test_a_word_that_is_no_severity_is_refused_before_anything_is_sent():
    with Client("127.0.0.1:1") as client:
        watching = client.events.watch(min_severity="loud")
        with pytest.raises(ValueError, match="EventSeverity"):
            watching.__enter__()
