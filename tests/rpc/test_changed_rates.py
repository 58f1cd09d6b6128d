"""Rates that change while calls are under way or wait: what a bucket never gave, it never gets back."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from tests.rpc.test_admission import held, limited, queued
from tests.support.running_server import Details, Running, serving
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, answering

WIDE = CallLimits(requests_per_minute=1_000_000, tokens_per_minute=1_000_000_000)
"""What limits nothing here, and so makes every call take of a bucket."""


def change(running: Running, **limits: Any) -> None:
    running.engine.reconfigure(
        AdmissionLimits(**limits), stream_buffer_bytes=65_536, slow_reader_seconds=60.0
    )


async def spent(running: Running) -> str:
    """Return which limit has no room for another call."""
    error = await running.error()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return Details(error).quota.violations[0].description


def holding(number: int) -> tuple[list[Hold], ScriptedDriver]:
    """Return a driver whose first calls wait to be let go after their requests were written."""
    holds = [Hold() for _ in range(number)]
    steps = [[Written(), hold, *answering()[1:]] for hold in holds]
    return holds, ScriptedDriver(*steps, answering())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scope", ["tenants", "models"])
async def test_a_call_gives_nothing_back_to_a_rate_that_is_younger_than_itself(scope, stream):
    rate = CallLimits(tokens_per_minute=20_000)
    (old, young), driver = holding(2)
    other, subject = ("models", "default") if scope == "tenants" else ("tenants", "claude")
    wide: dict[str, Any] = {other: {"claude" if other == "models" else "default": WIDE}}
    async with serving(driver, **limited(AdmissionLimits(queued=0, **wide))) as running:
        first = asyncio.ensure_future(running.ask(stream=stream))
        await old.reached.wait()
        change(running, queued=0, **wide, **{scope: {subject: rate}})
        second = asyncio.ensure_future(running.ask(stream=stream))
        await young.reached.wait()
        old.go.set()
        await first
        assert "tokens_per_minute" in await spent(running)
        young.go.set()
        await second
    assert len(driver.calls) == 2


async def test_who_waits_when_tokens_come_to_be_limited_takes_what_would_be_held():
    hold, driver = held()
    async with serving(driver, **limited(AdmissionLimits(concurrent=1))) as running:
        first = asyncio.ensure_future(running.ask())
        await hold.reached.wait()
        await queued(running), await queued(running)
        change(running, tenants={"default": CallLimits(tokens_per_minute=20_000)})
        assert (running.engine.admission.placed, running.engine.admission.waiting) == (2, 1)
        hold.go.set()
        await first


async def test_what_is_held_stays_the_same_part_of_a_rate_that_is_lowered():
    holds, driver = holding(10)
    rate = CallLimits(tokens_per_minute=200_000)
    async with serving(driver, **limited(AdmissionLimits(queued=0, tenants={"default": rate}))) as running:
        calls = []
        for hold in holds:
            calls.append(asyncio.ensure_future(running.ask()))
            await hold.reached.wait()
        change(running, queued=0, tenants={"default": CallLimits(tokens_per_minute=20_000)})
        # All that ten calls held of the old rate is a tenth of that now; one of them gives back a tenth of its hold.
        holds[0].go.set()
        await calls[0]
        assert "tokens_per_minute" in await spent(running)
        for hold in holds:
            hold.go.set()
        await asyncio.gather(*calls)
        await running.ask()
