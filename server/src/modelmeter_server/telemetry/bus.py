"""From those who tell events to those who watch. Telling never waits: a watcher that is slow loses the oldest events.

Nobody watching costs nothing: `is_wanted` says so before an event is even made. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from modelmeter_server.core.events import Event, kind_of

BATCH: Final = 100
"""Events of one batch at most."""
BATCH_SECONDS: Final = 0.02
"""How long the first event of a batch waits for others: shorter than anyone reads."""
WAITING: Final = 10_000
"""Events that wait for one watcher unless configured otherwise; a second of a busy server."""
RECENT: Final = 10_000
"""Events that `QueryEvents` can look back at unless configured otherwise."""
WATCHERS: Final = 100
"""Watchers at once."""


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
        )


class Watcher:
    """One who watches. Read batches with `next`, and `close` it."""

    def __init__(self, bus: EventBus, wanted: EventFilter, waiting: int) -> None:
        self._bus = bus
        self._tenant = wanted.tenant
        self._wanted = wanted if wanted.narrows else None
        self._events: deque[Event] = deque(maxlen=waiting)
        self._most = waiting
        self._lost = 0
        self._woken: asyncio.Future[None] | None = None
        self._enough = 1

    def put(self, event: Event) -> None:
        """Take an event if it is wanted, in the place of the oldest when there is no room."""
        if self._tenant not in (event.tenant, ANY_TENANT) or (
            self._wanted is not None and not self._wanted.takes(event)
        ):
            return
        events = self._events
        if len(events) == self._most:
            self._lost += 1
            self._bus.lost += 1
        events.append(event)
        if self._woken is not None and len(events) >= self._enough:
            self.wake()

    async def next(self) -> tuple[int, list[Event]]:
        """Wait for events and return how many were lost before them, and up to a batch of them, the oldest first.

        Raises BusClosed once nothing is left and nothing will come.
        """
        if not self._events and not self._bus.is_closed:
            await self._wait(1, None)
        if len(self._events) < BATCH and not self._bus.is_closed:
            await self._wait(BATCH, BATCH_SECONDS)
        if not self._events and self._bus.is_closed:
            raise BusClosed
        lost, self._lost = self._lost, 0
        return lost, [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]

    def close(self) -> None:
        """Watch no more; harmless when repeated."""
        self._bus.remove(self)

    async def _wait(self, enough: int, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._enough = enough
        self._woken = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self.wake)
        try:
            await self._woken
        finally:
            self._woken = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """End a wait early."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class EventBus:
    """Hand events to watchers, and keep the last ones."""

    def __init__(self, *, recent: int = RECENT, waiting: int = WAITING, watchers: int = WATCHERS) -> None:
        """Keep `recent` events to look back at, 0 for none, and up to `waiting` for each of up to `watchers`."""
        self.lost = 0
        """Events that watchers did not see because they were slow, all together."""
        self._recent: deque[Event] = deque(maxlen=recent)
        self._waiting = waiting
        self._most = watchers
        self._watchers: tuple[Watcher, ...] = ()
        self.is_closed = False
        """Whether nothing will be told any more."""

    def close(self) -> None:
        """Let watchers read what waits, and then end."""
        self.is_closed = True
        for watcher in self._watchers:
            watcher.wake()

    @property
    def is_wanted(self) -> bool:
        """Say whether an event would be seen by anybody."""
        return bool(self._watchers) or bool(self._recent.maxlen)

    @property
    def watchers(self) -> int:
        """Return how many watch."""
        return len(self._watchers)

    @property
    def capacity(self) -> int:
        """Return how many events can be looked back at."""
        return self._recent.maxlen or 0

    def publish(self, event: Event) -> None:
        """Hand an event to everybody; never waits and never raises."""
        self._recent.append(event)
        for watcher in self._watchers:
            watcher.put(event)

    def watch(self, wanted: EventFilter) -> Watcher:
        """Return a watcher that sees what is told from now on. Raises TooManyWatchers."""
        if len(self._watchers) >= self._most:
            raise TooManyWatchers
        watcher = Watcher(self, wanted, self._waiting)
        self._watchers = (*self._watchers, watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Let a watcher go."""
        self._watchers = tuple(each for each in self._watchers if each is not watcher)

    def recent(self, wanted: EventFilter, *, before: int | None, limit: int) -> list[Event]:
        """Return the latest events, the newest first; those with a tick below `before`, where one is named."""
        found: list[Event] = []
        for event in reversed(self._recent):
            if (before is None or event.tick < before) and wanted.takes(event):
                found.append(event)
                if len(found) == limit:
                    break
        return found
