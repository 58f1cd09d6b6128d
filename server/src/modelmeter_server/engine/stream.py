"""A call's news in batches: what arrived since the reader last looked, joined, at most once per interval.

No task and no queue stand between provider and reader: the accumulator keeps the deltas until they are fetched, so
a slow reader gets fewer and larger batches and never holds the provider up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import Delta
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.usage import AdditionalUsage, Usage

if TYPE_CHECKING:
    from modelmeter_server.core.accumulators import Accumulator

    from .call import Call

FLUSH_INTERVAL = 0.02
"""Seconds between two batches: shorter than anyone reads, and a message costs the server about 30 us."""


class Started(msgspec.Struct, frozen=True):
    """The provider's request has been written."""

    call_id: str
    model_asked: str
    target: str


class UsageTold(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider has told about usage so far; replaces what was told before."""

    usage: Usage
    additional_usage: tuple[AdditionalUsage, ...] = ()
    certainty: Certainty


LiveEvent = Started | Delta | UsageTold | CallOutcome


class LiveFeed:
    """Fetch a call's news. The call must have been started with `deltas`, and has one feed at most."""

    def __init__(self, call: Call, flush_interval: float = FLUSH_INTERVAL) -> None:
        """Read `call`; batches are at least `flush_interval` seconds apart, except for the first and the last."""
        self._call = call
        self._interval = flush_interval
        self._loop = asyncio.get_running_loop()
        self._told_start = False
        self._flushed: float | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._paused = False
        self._has_news = True
        call.on_news = self._news
        call.task.add_done_callback(self._ended)

    async def next(self) -> list[LiveEvent]:
        """Wait for news and return all there is, in order; the last event of the last batch is the outcome."""
        while True:
            await self._wait()
            events = self._gather()
            if events:
                return events

    # Waking

    def _news(self) -> None:
        self._has_news = True
        if not self._paused:
            self._wake()

    def _ended(self, _task: object) -> None:
        self._has_news = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self) -> None:
        await self._pause()
        if not self._has_news:
            await self._sleep()

    async def _pause(self) -> None:
        """Let the interval since the last batch pass; only the call's end cuts it short."""
        if self._flushed is None or self._call.task.done():
            return
        left = self._flushed + self._interval - self._loop.time()
        if left <= 0:
            return
        timer = self._loop.call_later(left, self._wake)
        self._paused = True
        try:
            await self._sleep()
        finally:
            self._paused = False
            timer.cancel()

    async def _sleep(self) -> None:
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    # Gathering

    def _gather(self) -> list[LiveEvent]:
        self._has_news = False
        call = self._call
        ended = call.task.done()
        events: list[LiveEvent] = []
        if call.is_written and not self._told_start:
            self._told_start = True
            events.append(self._started())
        provider_call = call.provider_call
        if provider_call is not None:
            deltas = provider_call.accumulator.drain()
            events += deltas
            if not ended:  # the outcome has the final figures
                events += self._usage(provider_call.accumulator)
            # What comes before the first delta does not start the clock, so that the first delta never waits.
            if deltas or (events and self._flushed is not None):
                self._flushed = self._loop.time()
        if ended:
            events.append(call.task.result())
        return events

    def _started(self) -> Started:
        driver = self._call.driver
        return Started(self._call.call_id, self._call.model_asked, driver.name if driver is not None else "")

    def _usage(self, accumulator: Accumulator) -> list[LiveEvent]:
        if not accumulator.usage_changed:
            return []
        accumulator.usage_changed = False
        usage, additional, certainty = accumulator.told_usage()
        if usage is None or certainty is Certainty.UNKNOWN:  # zeros alone are no news (R-U6)
            return []
        told = UsageTold(usage=usage, additional_usage=additional, certainty=certainty)
        return [told]
