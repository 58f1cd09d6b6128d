"""How long a batch waits for more commands before it is written.

A transaction costs about as much as ten commands in it. Where commands are dense it pays to wait for the next ones, and
calls that are so many keep the processor busy meanwhile; where they are not, waiting only makes a call late.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelmeter_server.core.journal import CallKey

LEAST = 0.000_3
MOST = 0.008
"""Seconds that a batch waits, if it waits at all."""

DENSE = 3
"""Commands of one batch that tell that more are near. One call alone never has so many."""


class Gathering:
    """Lengthen the wait from batch to batch as long as commands come densely, and shorten it when they do not.

    It ends at once when every call under way has a command in the batch, for then nobody is left to wait for.
    """

    def __init__(self) -> None:
        """Begin without a wait."""
        self.seconds = 0.0
        """How long the next batch waits at most."""
        self._under_way: set[CallKey] = set()
        self._waiting: set[CallKey] = set()
        self._over: asyncio.Future[None] | None = None

    def admitted(self, call: CallKey) -> None:
        """Note that a call is under way."""
        self._under_way.add(call)

    def ended(self, call: CallKey) -> None:
        """Note that a call has said its last word."""
        self._under_way.discard(call)
        self._waiting.discard(call)
        self._stop_if_complete()

    def asked(self, call: CallKey) -> None:
        """Note that a call under way waits for an answer; it says nothing until it has one."""
        self._waiting.add(call)
        self._stop_if_complete()

    def answered(self, call: CallKey) -> None:
        """Note that it has the answer."""
        self._waiting.discard(call)

    @property
    def _is_complete(self) -> bool:
        return len(self._waiting) >= len(self._under_way)

    def _stop_if_complete(self) -> None:
        if self._is_complete:
            self.stop()

    def wrote(self, commands: int) -> None:
        """Learn from a batch how dense commands are."""
        if commands >= DENSE:
            self.seconds = min(max(2 * self.seconds, LEAST), MOST)
        else:
            self.seconds = self.seconds / 2 if self.seconds > LEAST else 0.0

    async def wait(self) -> None:
        """Wait for more commands."""
        if self._is_complete or not self.seconds:
            return
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        timer = loop.call_later(self.seconds, self.stop)
        try:
            await self._over
        finally:
            timer.cancel()
            self._over = None

    def stop(self) -> None:
        """Let the batch be written now."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
