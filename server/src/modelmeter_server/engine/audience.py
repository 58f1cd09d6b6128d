"""Who waits for a call: the caller who began it, those who joined it, and those who read it as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.calls import CallOutcome


class Audience:
    """The people around one call. The call goes on as long as any of them wants it."""

    def __init__(self) -> None:
        self.told: asyncio.Future[CallOutcome] = asyncio.get_running_loop().create_future()
        """What the call's own caller hears: its outcome, or what was known when that caller left before it ended."""
        self._joiners = 0
        self._has_parted = False
        self._listeners: tuple[Callable[[], None], ...] = ()

    @property
    def is_wanted(self) -> bool:
        """Say whether anyone still waits for the outcome."""
        return self._joiners > 0 or not self._has_parted

    @property
    def size(self) -> int:
        """Return how many wait for the call."""
        return self._joiners + (not self._has_parted)

    @property
    def has_joiners(self) -> bool:
        """Say whether anyone but the call's own caller waits."""
        return self._joiners > 0

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this when the request was written and when its accumulator holds news."""
        self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def alert(self) -> None:
        """Tell every listener that there is news."""
        for listener in self._listeners:
            listener()

    def join(self, listener: Callable[[], None]) -> None:
        """Take in another caller."""
        self._joiners += 1
        self.listen(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """Let go of one who had joined."""
        self._joiners -= 1
        self.unlisten(listener)

    def part(self, outcome: CallOutcome) -> None:
        """Let the call's own caller go with what is known now."""
        self._has_parted = True
        self.tell(outcome)

    def tell(self, outcome: CallOutcome) -> None:
        """Tell the call's own caller its outcome; the first one counts."""
        if not self.told.done():
            self.told.set_result(outcome)
