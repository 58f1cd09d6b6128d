"""The calls under way. They run in tasks that this registry owns, so that no leaving caller takes a bill along."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from modelmeter_server.core.outcomes import Cause

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from modelmeter_server.core.calls import CallOutcome


class Running(Protocol):
    """A call as the registry knows it."""

    def run(self) -> Coroutine[None, None, CallOutcome]:
        """Bring the call to its outcome; never raises."""

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now; its outcome follows."""


class InFlight:
    """Hold the calls under way until each is settled."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[CallOutcome], Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def calls(self) -> list[Running]:
        """Return those that run now."""
        return list(self._running.values())

    def launch(self, call: Running) -> asyncio.Task[CallOutcome]:
        """Start the call in a task of its own, which nothing but the end of the loop cancels."""
        task = asyncio.get_running_loop().create_task(call.run())
        self._running[task] = call
        task.add_done_callback(self._running.pop)
        return task

    async def drain(self, limit: float) -> int:
        """Wait up to `limit` seconds for the calls under way now, cut the rest, and wait until these are settled.

        Return how many were cut. Calls that start meanwhile are not waited for: by then they are all refused.
        """
        waiting = dict(self._running)
        if waiting and limit > 0:
            await asyncio.wait(waiting, timeout=limit)
        late = [task for task in waiting if not task.done()]
        for task in late:
            waiting[task].cut(Cause.DRAIN, "this server shut down before the answer was whole")
        if late:
            await asyncio.wait(late)
        return len(late)
