"""EventService over a real channel: live, looked back at, in sum."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest

from modelmeter.v1 import error_pb2, event_pb2, usage_pb2
from modelmeter.v1 import event_service_pb2 as pb
from modelmeter.v1.event_service_pb2_grpc import EventServiceStub
from modelmeter_server.core.insights import Sample
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.ledger.clock import now
from modelmeter_server.telemetry.bus import BATCH, EventBus
from modelmeter_server.telemetry.happenings import Belonging
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.running_server import MODEL, Details, serving
from tests.support.scripted_driver import Broken, ScriptedDriver, Written, answering, opening, text

PRICE_OF_A_PART = PriceTable(
    currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),), apart=frozenset({"call"})
)
SAMPLE = Sample(at=0, tenant="default", model="claude", certainty="EXACT", total=1)


async def watching(running, **wanted):
    """Return a stream that watches from now on."""
    call = EventServiceStub(running.channel).WatchEvents(
        pb.WatchEventsRequest(filter=pb.EventFilter(**wanted))
    )
    first = await call.read()
    assert first.process
    assert not first.events
    return call


async def test_a_watcher_sees_the_events_of_a_call_in_order():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        call = await watching(running)
        await running.ask(labels={"conversation_id": "chat-1"})
        events: list[event_pb2.Event] = []
        while len(events) < 3:
            events += (await call.read()).events
        call.cancel()
    assert [event.kind for event in events] == ["prompt.started", "attempt", "prompt.completed"]
    assert {event.conversation_id for event in events} == {"chat-1"}
    completed = events[-1].prompt_completed
    assert (completed.usage.output_tokens, completed.certainty) == (9, 2)
    assert not completed.HasField("cost")
    assert completed.total_time.ToNanoseconds() > 0


async def test_a_filter_leaves_the_rest_out():
    driver = ScriptedDriver(answering(), [Written(), opening(), text("He"), Broken()])
    async with serving(driver, telemetry=Telemetry()) as running:
        call = await watching(running, kinds=["prompt.failed"])
        await running.ask()
        await running.error()
        (event,) = (await call.read()).events
        call.cancel()
    assert event.kind == "prompt.failed"
    assert event.prompt_failed.usage.input_tokens == 25


async def test_a_watcher_that_leaves_is_forgotten():
    telemetry = Telemetry()
    async with serving(ScriptedDriver(answering()), telemetry=telemetry) as running:
        calls = [await watching(running) for _ in range(3)]
        assert telemetry.bus.watchers == 3
        for call in calls:
            call.cancel()
        async with asyncio.timeout(5):
            while telemetry.bus.watchers:  # noqa: ASYNC110 - the server tells nobody that a handler has ended
                await asyncio.sleep(0.001)


async def test_a_watcher_too_many_is_refused_and_may_come_back():
    telemetry = Telemetry(bus=EventBus(watchers=1))
    async with serving(ScriptedDriver(answering()), telemetry=telemetry) as running:
        first = await watching(running)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watching(running)
        first.cancel()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert Details(caught.value).info.reason == "OVERLOADED"


async def test_mistakes_in_a_filter_are_told_all_at_once():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watching(running, kinds=["prompt.pondered"], min_severity=99)
    fields = [each.field for each in Details(caught.value).bad_request.field_violations]
    assert fields == ["filter.kinds", "filter.min_severity"]


async def test_a_slow_watcher_hears_how_many_it_lost_and_no_call_waits_for_it():
    telemetry = Telemetry(bus=EventBus(waiting=50))
    async with serving(ScriptedDriver(answering()), telemetry=telemetry) as running:
        call = await watching(running)
        to = Belonging("default", "x" * 200)
        for number in range(20_000):  # far more than the connection holds for a client that does not read
            telemetry.happenings.retried(number + 2, "scripted", to)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await running.ask()
        lost = seen = 0
        while lost + seen < 20_003:
            response = await call.read()
            lost += response.gap.lost
            seen += len(response.events)
            assert len(response.events) <= BATCH
        call.cancel()
    assert lost == telemetry.bus.lost > 0


async def test_watchers_end_with_the_server_and_are_told_why():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        call = await watching(running)
        stopping = asyncio.ensure_future(running.server.stop(1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        await stopping
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert Details(caught.value).info.reason == "DRAINING"


async def test_the_latest_events_are_listed_page_by_page_the_newest_first():
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        stub, found = EventServiceStub(running.channel), []
        for _ in range(2):
            await running.ask()
        request = pb.QueryEventsRequest(page_size=4)
        while True:
            page = await stub.QueryEvents(request)
            assert page.process
            found.append([event.tick for event in page.events])
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    assert found == [[6, 5, 4, 3], [2, 1]]


async def test_the_latest_events_narrow_to_a_kind_of_failure_a_target_and_a_time():
    driver = ScriptedDriver(answering(), [Written(), opening(), text("He"), Broken()])
    async with serving(driver, telemetry=Telemetry()) as running:
        stub = EventServiceStub(running.channel)
        await running.ask()
        await running.error()

        async def found(**fields: Any) -> list[tuple[int, str]]:
            page = await stub.QueryEvents(pb.QueryEventsRequest(**fields))
            return [(event.tick, event.kind) for event in page.events]

        every = (await stub.QueryEvents(pb.QueryEventsRequest())).events
        failed = await found(filter=pb.EventFilter(error_kinds=[error_pb2.ERROR_KIND_INTERRUPTED]))
        other = await found(filter=pb.EventFilter(error_kinds=[error_pb2.ERROR_KIND_REFUSED]))
        asked = await found(filter=pb.EventFilter(target="scripted", kinds=["attempt"]))
        tools = await found(filter=pb.EventFilter(tool="web_search"))
        times = [event.occur_time.ToMicroseconds() for event in every]
        late = await found(start_time=every[0].occur_time)
        early = await found(end_time=every[0].occur_time)
    assert failed == [(6, "prompt.failed"), (5, "attempt")]
    assert [kind for _, kind in asked] == ["attempt", "attempt"]
    assert other == tools == []
    assert len(late) == times.count(times[0])
    assert len(early) == sum(at < times[0] for at in times)


async def test_mistakes_of_a_query_are_told_all_at_once():
    request = pb.QueryEventsRequest(page_size=-1, filter=pb.EventFilter(error_kinds=[99]))  # type: ignore[list-item]
    request.start_time.seconds = -1
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await EventServiceStub(running.channel).QueryEvents(request)
    fields = [each.field for each in Details(caught.value).bad_request.field_violations]
    assert fields == ["page_size", "start_time", "filter.error_kinds"]


@pytest.mark.parametrize("token", ["nonsense", "bTE6YWJj"])
async def test_a_token_that_nobody_gave_out_is_refused(token):
    async with serving(ScriptedDriver(answering()), telemetry=Telemetry()) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await EventServiceStub(running.channel).QueryEvents(pb.QueryEventsRequest(page_token=token))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_insights_tell_times_failures_and_tokens_of_this_process():
    driver = ScriptedDriver(answering(), [Written(), opening(), text("He"), Broken()])
    async with serving(driver, telemetry=Telemetry()) as running:
        await running.ask(labels={"conversation_id": "chat-1"})
        await running.error()
        response = await EventServiceStub(running.channel).GetInsights(pb.GetInsightsRequest())
    found = response.insights
    assert (found.calls, found.answered, found.failed, found.untold, found.at_least) == (2, 1, 1, 0, 1)
    assert dict(found.errors) == {Kind.INTERRUPTED.value: 1}
    assert found.latency.count == found.first_token.count == 1
    assert found.latency.p99 == found.latency.most > 0
    assert (found.total[0].input_tokens, found.total[0].output_tokens) == (50, 10)
    assert [each.name for each in found.by_conversation] == ["chat-1"]
    assert response.process
    assert response.most_calls == 10_000


async def test_a_cost_that_is_a_lower_bound_is_no_exact_sum():
    """The usage is exact; some of it has no price."""
    model = msgspec.structs.replace(MODEL, price=PRICE_OF_A_PART)
    async with serving(ScriptedDriver(answering()), models=[model], telemetry=Telemetry()) as running:
        answer = (await running.ask()).completion
        response = await EventServiceStub(running.channel).GetInsights(pb.GetInsightsRequest())
    assert (answer.certainty, answer.cost.certainty) == (
        usage_pb2.CERTAINTY_EXACT,
        usage_pb2.CERTAINTY_AT_LEAST,
    )
    assert (response.insights.at_least, response.insights.total[0].currency) == (1, "USD")
    assert (response.insights.total[0].at_least, response.insights.by_model[0].at_least) == (1, 1)


async def test_a_sum_is_doubted_for_its_own_calls_alone():
    driver = ScriptedDriver(
        answering(), [Written(), opening(), text("He"), Broken()], [Written(), Broken()], answering()
    )
    async with serving(driver, telemetry=Telemetry()) as running:
        await running.ask(labels={"conversation_id": "exact"})
        await running.error(labels={"conversation_id": "cut"})
        await running.error(labels={"conversation_id": "silent"})
        await running.ask(labels={"conversation_id": "silent"})
        response = await EventServiceStub(running.channel).GetInsights(pb.GetInsightsRequest())
    doubts = {
        each.name: (each.calls, each.at_least, each.untold) for each in response.insights.by_conversation
    }
    assert doubts == {"exact": (1, 0, 0), "cut": (1, 1, 0), "silent": (2, 0, 1)}
    (total,), (model,) = response.insights.total, response.insights.by_model
    assert (total.at_least, total.untold) == (model.at_least, model.untold) == (1, 1)


@pytest.mark.parametrize("remembered", [2, 3])
async def test_calls_that_are_gone_are_said_to_be_whatever_is_asked_for(remembered):
    """Three calls: one long ago, and two just now."""
    telemetry = Telemetry(samples=remembered)
    telemetry.keep(SAMPLE)
    async with serving(ScriptedDriver(answering(), answering()), telemetry=telemetry) as running:
        for name in ("chat-1", "chat-2"):
            await running.ask(labels={"conversation_id": name})
        stub = EventServiceStub(running.channel)

        async def gone(seconds: int = 0, **narrow: Any) -> bool:
            request = pb.GetInsightsRequest(**narrow)
            if seconds:
                request.window.seconds = seconds
            return (await stub.GetInsights(request)).older_calls_evicted

        reaching = [
            await gone(),
            await gone(model="claude"),
            await gone(conversation_id="chat-1"),
            await gone(run_id="none"),
            await gone(300_000_000_000),
        ]
        recent = await gone(60)
    assert reaching == [remembered == 2] * 5
    assert not recent, "what ended before the window is not missing in it"


async def test_of_calls_that_are_gone_the_one_that_ended_last_counts():
    """A clock may have been set back between two calls."""
    telemetry = Telemetry(samples=1)
    for at in (now(), 0, 0):
        telemetry.keep(msgspec.structs.replace(SAMPLE, at=at))
    window = pb.GetInsightsRequest()
    window.window.seconds = 60
    async with serving(ScriptedDriver(), telemetry=telemetry) as running:
        response = await EventServiceStub(running.channel).GetInsights(window)
    assert (response.insights.calls, response.older_calls_evicted) == (0, True)


async def test_insights_narrow_to_a_window_and_to_a_name():
    telemetry = Telemetry()
    telemetry.keep(msgspec.structs.replace(SAMPLE, run_id="old"))
    telemetry.keep(msgspec.structs.replace(SAMPLE, tenant="another"))
    async with serving(ScriptedDriver(answering()), telemetry=telemetry) as running:
        await running.ask()
        stub = EventServiceStub(running.channel)
        window = pb.GetInsightsRequest()
        window.window.seconds = 60
        requests = (pb.GetInsightsRequest(), window, pb.GetInsightsRequest(run_id="old"))
        counts = [(await stub.GetInsights(request)).insights.calls for request in requests]
        window.window.seconds = -1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetInsights(window)
    assert counts == [2, 1, 1]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
