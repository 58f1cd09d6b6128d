"""Planning of one call: at once for a small request, in a thread for a large one; a cut ends the wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from .plan import Refused
from .reckoning import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from modelmeter_server.core.errors import Failure

    from .cut import Cut

Planned = TypeVar("Planned")
Wanted = TypeVarTuple("Wanted")


class Planning:
    """Make plans for one call."""

    def __init__(self, planner: Executor | None, cut: Cut) -> None:
        """Plan in a thread of `planner`, or here without one."""
        self._planner = planner
        self._cut = cut
        self._running: asyncio.Future[Any] | None = None

    @property
    def is_running(self) -> bool:
        """Say whether a plan is waited for."""
        return self._running is not None

    def cancel(self) -> None:
        """Wait no more for a plan that is made in a thread. One that runs already is dropped when done."""
        if self._running is not None:
            self._running.cancel()

    async def make(self, planned: Callable[[*Wanted], Planned], *wanted: *Wanted) -> Planned | Failure:
        """Return what `planned` makes of this, its refusal, or the failure of a call that was cut meanwhile."""
        try:
            if self._planner is None:
                return planned(*wanted)
            running = asyncio.get_running_loop().run_in_executor(self._planner, planned, *wanted)
            self._running = running
            if self._cut:
                self.cancel()
            return await running
        except Refused as refusal:
            return refusal.verdict
        except asyncio.CancelledError:
            if self._cut.word is None or is_cancelled():
                raise
            return self._cut.never_sent(*self._cut.word)
        finally:
            self._running = None
