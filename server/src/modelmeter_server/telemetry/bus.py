"""From those who tell events to those who watch. Telling never waits: a watcher that is slow loses the oldest events.

Nobody watching costs nothing: `is_wanted` says so before an event is even made. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Final

import msgspec

from modelmeter_server.core.events import Event, kind_of
from modelmeter_server.core.outcomes import Kind

BATCH: Final = 500
"""Events of one batch at most."""
BATCH_SECONDS: Final = 0.02
"""How long the first event of a batch waits for others: shorter than anyone reads."""
WAITING: Final = 10_000
"""Events that wait for one watcher unless configured otherwise; a second of a busy server."""
RECENT: Final = 10_000
"""Events that `QueryEvents` can look back at unless configured otherwise."""
WATCHERS: Final = 100
"""Watchers at once."""
_NEVER: Final = math.inf


class TooManyWatchers(Exception):
    """As many watch as may."""


class BusClosed(Exception):
    """Nothing will be told any more: the server shuts down."""


ANY_TENANT: Final = "*"
"""In a filter: the events of every tenant."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted; what is empty does not narrow, and together they all must hold."""

    tenant: str
    """Whose; `ANY_TENANT` for all."""
    kinds: frozenset[str] = frozenset()
    call_id: str = ""
    conversation_id: str = ""
    run_id: str = ""
    session_id: str = ""
    model: str = ""
    """As it was asked for."""
    min_severity: int = 0
    error_kinds: frozenset[Kind] = frozenset()
    tool: str = ""
    target: str = ""

    @property
    def narrows(self) -> bool:
        """Say whether anything but the tenant decides."""
        return bool(
            self.kinds
            or self.call_id
            or self.conversation_id
            or self.run_id
            or self.session_id
            or self.model
            or self.min_severity
            or self.error_kinds
            or self.tool
            or self.target
        )

    def takes(self, event: Event) -> bool:
        """Say whether the event is wanted."""
        if self.tenant not in (event.tenant, ANY_TENANT):
            return False
        return not self.narrows or self._matches(event)

    def _matches(self, event: Event) -> bool:
        return (
            (not self.kinds or kind_of(event) in self.kinds)
            and event.severity >= self.min_severity
            and self.call_id in ("", event.call_id)
            and self.conversation_id in ("", event.conversation_id)
            and self.run_id in ("", event.run_id)
            and self.session_id in ("", getattr(event, "session_id", ""))
            and self.model in ("", getattr(event, "model_asked", ""))
            and (not self.error_kinds or getattr(event, "error_kind", None) in self.error_kinds)
            and self.tool in ("", getattr(event, "tool", ""))
            and self.target in ("", getattr(event, "target", ""))
        )


class _Feed:
    """The last events that one filter takes, for all who watch with it: telling them once is all that it costs."""

    __slots__ = ("_alarm", "_events", "_most", "_tenant", "_wanted", "told", "watchers")

    def __init__(self, wanted: EventFilter, most: int) -> None:
        self.told = 0
        """Events so far; the last `most` of them are kept."""
        self.watchers: list[Watcher] = []
        self._tenant = wanted.tenant
        self._wanted = wanted if wanted.narrows else None
        self._events: list[Event] = []
        self._most = most
        self._alarm = _NEVER

    def put(self, event: Event) -> None:
        """Take an event if it is wanted, in the place of the oldest when there is no room."""
        if self._tenant not in (event.tenant, ANY_TENANT) or (
            self._wanted is not None and not self._wanted.takes(event)
        ):
            return
        if self.told < self._most:
            self._events.append(event)
        else:
            self._events[self.told % self._most] = event
        self.told += 1
        if self.told >= self._alarm:
            self._ring()

    def since(self, told: int) -> list[Event]:
        """Return up to a batch of those that are kept beyond the first `told`, which are at least `oldest`."""
        end = min(self.told, told + BATCH)
        first, last = told % self._most, (end - 1) % self._most + 1
        if told >= end:
            return []
        return self._events[first:last] if first < last else self._events[first:] + self._events[:last]

    @property
    def oldest(self) -> int:
        """Return how many were told before the oldest that is kept."""
        return max(0, self.told - self._most)

    def alarm(self, at: float) -> None:
        """Wake those who wait for it when so many were told."""
        self._alarm = min(self._alarm, at)

    def _ring(self) -> None:
        for watcher in self.watchers:
            if watcher.alarm <= self.told:
                watcher.wake()
        self._alarm = min((watcher.alarm for watcher in self.watchers), default=_NEVER)


class Watcher:
    """One who watches. Read batches with `next`, and `close` it."""

    def __init__(self, bus: EventBus, feed: _Feed) -> None:
        self.alarm = _NEVER
        """Events told so far, of its feed, at which it wants to be woken."""
        self._bus = bus
        self._feed = feed
        self._seen = feed.told
        self._woken: asyncio.Future[None] | None = None

    @property
    def lost(self) -> int:
        """Return how many events are gone that it has not read, and was not told of."""
        return max(0, self._feed.oldest - self._seen)

    async def next(self) -> tuple[int, list[Event]]:
        """Wait for events and return how many were lost before them, and up to a batch of them, the oldest first.

        Raises BusClosed once nothing is left and nothing will come.
        """
        feed = self._feed
        if feed.told == self._seen and not self._bus.is_closed:
            await self._wait(1, None)
        if feed.told - self._seen < BATCH and not self._bus.is_closed:
            await self._wait(BATCH, BATCH_SECONDS)
        if feed.told == self._seen and self._bus.is_closed:
            raise BusClosed
        lost = self.lost
        events = feed.since(self._seen + lost)
        self._seen += lost + len(events)
        self._bus.forget(lost)
        return lost, events

    def close(self) -> None:
        """Watch no more; harmless when repeated."""
        self._bus.remove(self, self._feed)

    async def _wait(self, enough: int, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        self.alarm = self._seen + enough
        self._feed.alarm(self.alarm)
        timer = None if seconds is None else loop.call_later(seconds, self.wake)
        try:
            await self._woken
        finally:
            self._woken, self.alarm = None, _NEVER
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """End a wait early."""
        self.alarm = _NEVER
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class EventBus:
    """Hand events to watchers, and keep the last ones."""

    def __init__(self, *, recent: int = RECENT, waiting: int = WAITING, watchers: int = WATCHERS) -> None:
        """Keep `recent` events to look back at, 0 for none, and up to `waiting` for each of up to `watchers`."""
        self._lost = 0
        self._recent: deque[Event] = deque(maxlen=recent)
        self._waiting = waiting
        self._most = watchers
        self._feeds: dict[EventFilter, _Feed] = {}
        self.is_closed = False
        """Whether nothing will be told any more."""

    def close(self) -> None:
        """Let watchers read what waits, and then end."""
        self.is_closed = True
        for feed in self._feeds.values():
            for watcher in feed.watchers:
                watcher.wake()

    @property
    def is_wanted(self) -> bool:
        """Say whether an event would be seen by anybody."""
        return bool(self._feeds) or bool(self._recent.maxlen)

    @property
    def watchers(self) -> int:
        """Return how many watch."""
        return sum(len(feed.watchers) for feed in self._feeds.values())

    @property
    def lost(self) -> int:
        """Return how many events watchers did not see because they were slow, all together."""
        return self._lost + sum(each.lost for feed in self._feeds.values() for each in feed.watchers)

    @property
    def capacity(self) -> int:
        """Return how many events can be looked back at."""
        return self._recent.maxlen or 0

    def publish(self, event: Event) -> None:
        """Hand an event to everybody; never waits and never raises."""
        self._recent.append(event)
        for feed in self._feeds.values():
            feed.put(event)

    def watch(self, wanted: EventFilter) -> Watcher:
        """Return a watcher that sees what is told from now on. Raises TooManyWatchers."""
        if self.watchers >= self._most:
            raise TooManyWatchers
        feed = self._feeds.get(wanted)
        if feed is None:
            feed = self._feeds[wanted] = _Feed(wanted, self._waiting)
        watcher = Watcher(self, feed)
        feed.watchers.append(watcher)
        return watcher

    def forget(self, lost: int) -> None:
        """Count events that a watcher was told it has lost."""
        self._lost += lost

    def remove(self, watcher: Watcher, feed: _Feed) -> None:
        """Let a watcher go."""
        if watcher not in feed.watchers:
            return
        self._lost += watcher.lost
        feed.watchers.remove(watcher)
        if not feed.watchers:
            self._feeds = {wanted: each for wanted, each in self._feeds.items() if each is not feed}

    def recent(
        self,
        wanted: EventFilter,
        *,
        before: int | None,
        limit: int,
        since: int | None = None,
        until: int | None = None,
    ) -> list[Event]:
        """Return the latest events, the newest first; those with a tick below `before`, where one is named.

        `since` and `until` are microseconds since the epoch: from the first on, and before the second.
        """
        found: list[Event] = []
        for event in reversed(self._recent):
            if not wanted.takes(event) or (before is not None and event.tick >= before):
                continue
            if (since is None or event.occurred_at >= since) and (until is None or event.occurred_at < until):
                found.append(event)
                if len(found) == limit:
                    break
        return found
