"""The word that ends a call before its time: given once, from outside, and heard by whatever waits."""

from __future__ import annotations

import asyncio
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

    def __init__(self) -> None:
        """Nobody has cut it yet."""
        self.word: tuple[Cause, str] | None = None
        """Cause and detail, once it was cut."""
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
