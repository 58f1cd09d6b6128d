"""How a call ends from outside: when its time is up, or before that by a word that whatever waits for it hears."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Kind

RETRY_AFTER: Final = 1.0
"""Seconds that a refused caller is asked to wait where room depends on other calls: about the time in which some of a
thousand end."""


def shutting_down() -> Failure:
    """Return the refusal of a server that takes no calls any more."""
    message = "this server is shutting down; another one will take the call"
    return failure(Kind.DRAINING, message, cause=Cause.DRAIN, retry_after=RETRY_AFTER)


class Cut:
    """Whether a call was cut, and why."""

    def __init__(self, until: float | None = None) -> None:
        """Nobody has cut it yet. `until`: when its provider's time is up, on the monotonic clock; `None` for never."""
        self.word: tuple[Cause, str] | None = None
        """Cause and detail, once it was cut."""
        self._until = until
        self._halted = ""
        self._woken: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        """Say whether the call was cut."""
        return self.word is not None

    def give(self, cause: Cause, detail: str) -> bool:
        """Cut the call; False when it was cut before: the first word counts."""
        if self.word is not None:
            return False
        self.word = (cause, detail)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        return True

    def halt(self, sentence: str) -> None:
        """Remember that an operator's halt is what cuts the call."""
        self._halted = sentence

    def time_left(self) -> float | None:
        """Return how many seconds the provider still has; `None` for any time."""
        return None if self._until is None else self._until - time.monotonic()

    def ended_before_sending(self) -> Failure | None:
        """Return what a call ends with that was cut, or has no time left, where something would be sent next."""
        if self.word is not None:
            return self.never_sent(*self.word)
        left = self.time_left()
        if left is not None and left <= 0:
            return self.never_sent(Cause.DEADLINE, "the deadline is too near to send anything")
        return None

    def never_sent(self, cause: Cause, detail: str) -> Failure:
        """Return the failure of a call that ended before anything was sent."""
        if self._halted:
            return failure(Kind.HALTED, self._halted, cause=Cause.LIMIT)
        if cause is Cause.DRAIN:
            return shutting_down()
        return failure(Kind.UNREACHABLE, detail or "the call was ended before anything was sent", cause=cause)

    async def wait(self, seconds: float | None, *others: asyncio.Future[Any]) -> None:
        """Wait for the cut, for others or for a time, whichever is first."""
        if self.word is not None:
            return
        self._woken = asyncio.get_running_loop().create_future()
        waits: list[asyncio.Future[Any]] = [self._woken, *others]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken = None
