"""Readers of a stream that are slower than the provider: first a bounded buffer, then back-pressure, then an end.

No more of an answer is read while *every* reader is further behind than the buffer; the fastest one sets the pace, so
that one slow reader among several holds up nobody. Somebody who waits for the whole answer alone is never behind.
A reader that takes nothing for a while is let go by its own watch, whoever else reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from modelmeter_server.drivers.driver import PausableCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from .audience import Audience
    from .provider_request import ProviderRequest

STREAM_BUFFER_BYTES: Final = 256 * 1024
"""Bytes of a provider's answer, framing included, that wait for a reader unless configured otherwise: half a minute of
a fast model. One socket read more may come."""

SLOW_READER_SECONDS: Final = 60.0
"""How long a reader may take for one message unless configured otherwise: as long as a provider may be silent."""

TOO_SLOW: Final = "the caller did not read its stream: one message waited longer than `slow_reader_seconds`"

_EARLY: Final = 0.001


class Reader:
    """How far one reader of a call has read."""

    __slots__ = ("fetched",)

    def __init__(self) -> None:
        self.fetched = 0
        """Bytes of the answer that had come when it last took what there was."""


class Readers:
    """Those who read one call as it comes, and what they make its provider wait for."""

    __slots__ = ("_audience", "_paused", "_provider", "_readers", "buffer")

    def __init__(self, provider: ProviderRequest, audience: Audience, buffer: int) -> None:
        """Begin with nobody, which keeps nothing from being read."""
        self.buffer = buffer
        """Bytes that wait for a reader at most."""
        self._provider = provider
        self._audience = audience
        self._readers: tuple[Reader, ...] = ()
        self._paused: PausableCall | None = None

    @property
    def is_paused(self) -> bool:
        """Say whether the provider is made to wait."""
        return self._paused is not None

    def add(self, reader: Reader) -> None:
        """Let one more read, from now on."""
        reader.fetched = self._provider.received
        self._readers = (*self._readers, reader)
        self.review()

    def remove(self, reader: Reader) -> None:
        """Let one read no more; harmless for one that did not."""
        self._readers = tuple(each for each in self._readers if each is not reader)
        self.review()

    def took(self, reader: Reader) -> None:
        """Learn that a reader took all there was."""
        reader.fetched = self._provider.received
        if self._paused is not None:
            self.review()

    def review(self) -> None:
        """Read on, or not, after anything changed: more has come, or somebody came or went."""
        if self._all_are_behind():
            call: object = self._provider.call
            if self._paused is None and isinstance(call, PausableCall):
                self._paused = call
                call.pause_reading()
        elif self._paused is not None:
            paused, self._paused = self._paused, None
            paused.resume_reading()

    def _all_are_behind(self) -> bool:
        enough = self._provider.received - self.buffer
        for reader in self._readers:
            if reader.fetched >= enough:
                return False
        return 0 < len(self._readers) >= self._audience.size


class ReaderWatch:
    """Tell when one message has been waiting for its reader too long; one timer for a whole stream."""

    __slots__ = ("_handle", "_loop", "_on_slow", "_seconds", "_since", "is_over")

    def __init__(self, seconds: float, on_slow: Callable[[], None]) -> None:
        """`on_slow` is called once, when what `begin` began has taken `seconds`; `inf` never calls it."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._on_slow = on_slow
        self._since: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self.is_over = False
        """Whether it has told."""
        if seconds != float("inf"):
            self._arm(self._loop.time())

    def begin(self) -> None:
        """A message is handed over."""
        self._since = self._loop.time()

    def end(self) -> None:
        """It was taken."""
        self._since = None

    def close(self) -> None:
        """Watch no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, since: float) -> None:
        self._handle = self._loop.call_at(since + self._seconds, self._look)

    def _look(self) -> None:
        self._handle = None
        now = self._loop.time()
        if self._since is not None and self._since + self._seconds <= now + _EARLY:
            self.is_over = True
            self._on_slow()
        else:
            self._arm(now if self._since is None else self._since)
