"""A model with targets and limits on its provider instances: a call takes its place where it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import modelmeter
from modelmeter.enums import PassReason
from modelmeter_server.core.call_limits import AdmissionLimits
from modelmeter_server.drivers.http import Timeouts
from tests.support import anthropic_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.routed_service import ANSWER, FAILING, ROUTED, RoutedService, routed_service

WHOLE = anthropic_events.stream(anthropic_events.text_block(0, "Hello."))
HELD = Reply(chunks=[WHOLE[:600]], end="stall")


@asynccontextmanager
async def one_each(
    first: Reply, *, queued: int = 0
) -> AsyncIterator[tuple[RoutedService, FaultServer, FaultServer]]:
    """Serve from two providers that may have one call at once each."""
    async with (
        FaultServer(first) as a,
        FaultServer(ANSWER) as b,
        routed_service({"a": a.url, "b": b.url}, timeouts=Timeouts()) as service,
    ):
        service.engine.reconfigure(
            AdmissionLimits(targets={"a": 1, "b": 1}, queued=queued),
            stream_buffer_bytes=1_000_000,
            slow_reader_seconds=60,
        )
        yield service, a, b


@asynccontextmanager
async def held(service: RoutedService) -> AsyncIterator[modelmeter.AsyncCompletionStream]:
    """Keep a call under way; it is left at the end."""
    async with service.client.stream(ROUTED, "Hi", timeout=20) as stream:
        await anext(aiter(stream))
        yield stream


def load(service: RoutedService) -> dict[str, int]:
    return {name: service.engine.admission.load.in_flight(name) for name in "ab"}


async def test_an_instance_that_is_full_is_passed_over_and_free_again_when_its_call_has_ended():
    async with one_each(HELD) as (service, a, b):
        async with held(service):
            assert load(service) == {"a": 1, "b": 0}
            answer = await service.ask()
            assert (answer.target, answer.attempts_total) == ("b/m", 1)
            assert [(each.target, each.reason) for each in answer.passed_over] == [("a/m", PassReason.FULL)]
            assert "`a`" in answer.passed_over[0].detail
        await a.disconnected(seconds=5)
        a.script([ANSWER])
        assert (await service.ask()).target == "a/m"
    assert load(service) == {"a": 0, "b": 0}
    assert (len(a.requests), len(b.requests)) == (2, 1)


async def test_when_every_instance_is_full_the_call_waits_for_whichever_is_free_first():
    async with one_each(HELD, queued=10) as (service, a, b):
        b.script([HELD])
        async with held(service), held(service) as second:
            assert load(service) == {"a": 1, "b": 1}
            b.script([ANSWER])
            third = asyncio.create_task(service.ask())
            while not service.engine.admission.waiting:
                await asyncio.wait([third], timeout=0.01)
            assert not third.done()
            second.cancel()
            assert (await third).target == "b/m"
    assert (len(a.requests), len(b.requests)) == (1, 2)


async def test_without_a_queue_a_call_that_finds_every_instance_full_is_told_so():
    async with one_each(HELD) as (service, _, b):
        b.script([HELD])
        async with held(service), held(service):
            with pytest.raises(modelmeter.OverloadedError):
                await service.ask()


async def test_a_call_that_goes_elsewhere_gives_the_place_back_that_it_had():
    async with one_each(FAILING) as (service, a, b):
        b.script([HELD])
        async with held(service):
            assert load(service) == {"a": 0, "b": 1}
            assert len(a.requests) == 1


async def test_a_call_that_fails_while_the_other_instance_is_full_ends_with_its_own_error():
    async with one_each(HELD) as (service, a, b), held(service):
        b.script([FAILING, FAILING])
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await service.ask()
    assert [each.target for each in caught.value.attempts] == ["b/m", "b/m"]
    assert (len(a.requests), len(b.requests)) == (1, 2)
