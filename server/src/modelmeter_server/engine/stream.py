"""A call's news in batches: what arrived since the reader last looked, joined, at most once per interval.

No task and no queue stand between provider and reader: the accumulator keeps the deltas until they are fetched, so
a slow reader gets fewer and larger batches, up to a buffer (`reading.py`). Several feeds may read one call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import Answer, Delta, TextDelta, ToolCallDelta
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.usage import AdditionalUsage, Usage

from .reading import Reader

if TYPE_CHECKING:
    from .call import Call
    from .delta_log import DeltaLog
    from .reading import Readers

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
    """Fetch a call's news. The call must have been started with `deltas`, and has one feed of its own at most."""

    def __init__(self, call: Call, flush_interval: float = FLUSH_INTERVAL, from_sequence: int = 0) -> None:
        """Read `call`; batches are at least `flush_interval` seconds apart, except for the first and the last.

        Of a call that was joined or replayed, `from_sequence` leaves out what comes up to that number; of one that is
        bought anew it leaves out nothing, because its numbers mean other deltas.
        """
        self._call = call
        self._interval = flush_interval
        self._loop = asyncio.get_running_loop()
        self._from = self._position = from_sequence
        self._usage_version = 0
        self._told_start = from_sequence > 0
        self._flushed: float | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._paused = False
        self._has_news = True
        self._reader = Reader()
        self._readers: Readers | None = None
        self._read()
        call.audience.listen(self._news)
        call.audience.told.add_done_callback(self._ended)

    async def next(self) -> list[LiveEvent]:
        """Wait for news and return all there is, in order; the last event of the last batch is the outcome."""
        return [event for _, event in await self.numbered()]

    async def numbered(self) -> list[tuple[int, LiveEvent]]:
        """Do as `next`, each event with its number in the call's stream: 0 for what is no delta."""
        while True:
            await self._wait()
            events = self._gather()
            if events:
                return events

    def close(self) -> None:
        """Read no more: nothing has to wait for this reader."""
        self._call.audience.unlisten(self._news)
        if self._readers is not None:
            self._readers.remove(self._reader)
            self._readers = None

    def _read(self) -> None:
        """Be among the readers of the call that asks, which is another one once this call has joined it."""
        readers = self._call.source.readers
        if readers is self._readers:
            if readers is not None:
                readers.took(self._reader)
            return
        if self._readers is not None:
            self._readers.remove(self._reader)
        self._readers = readers
        if readers is not None:
            readers.add(self._reader)

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
        if self._flushed is None or self._call.audience.told.done():
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

    def _gather(self) -> list[tuple[int, LiveEvent]]:
        self._has_news = False
        call = self._call
        told = call.audience.told
        events: list[tuple[int, LiveEvent]] = []
        if self._from and call.is_purchase:
            self._from, self._position, self._told_start = 0, 0, False
        if call.is_written and not self._told_start:
            self._told_start = True
            events.append((0, self._started()))
        log, provider_call = call.source.log, call.source.provider_call
        if log is not None and provider_call is not None:
            log.pull(provider_call.accumulator)
            self._read()
            deltas = self._deltas(log)
            events += deltas
            if not told.done():  # the outcome has the final figures
                events += self._usage(log)
            # What comes before the first delta does not start the clock, so that the first delta never waits.
            if deltas or (events and self._flushed is not None):
                self._flushed = self._loop.time()
        if told.done():
            events += self._whole(told.result())
            events.append((0, told.result()))
        return events

    def _started(self) -> Started:
        target = self._call.source.target
        return Started(self._call.call_id, self._call.model_asked, target.name if target is not None else "")

    def _deltas(self, log: DeltaLog) -> list[tuple[int, LiveEvent]]:
        first, deltas = log.after(self._position)
        self._position = max(self._position, log.last)
        return list(enumerate(deltas, first))

    def _usage(self, log: DeltaLog) -> list[tuple[int, LiveEvent]]:
        if log.usage is None or log.usage_version == self._usage_version:
            return []
        self._usage_version = log.usage_version
        usage, additional, certainty = log.usage
        return [(0, UsageTold(usage=usage, additional_usage=additional, certainty=certainty))]

    def _whole(self, outcome: CallOutcome) -> list[tuple[int, LiveEvent]]:
        """Return a recorded answer in one piece, so that joined deltas are the answer here too."""
        answer = outcome.result
        if not outcome.replayed or not isinstance(answer, Answer) or self._position or self._from:
            return []
        deltas: list[LiveEvent] = [TextDelta(answer.text)] if answer.text else []
        deltas += [
            ToolCallDelta(index=index, id=each.id, name=each.name, arguments_json=each.arguments_json)
            for index, each in enumerate(answer.tool_calls)
        ]
        return list(enumerate(deltas, 1))
