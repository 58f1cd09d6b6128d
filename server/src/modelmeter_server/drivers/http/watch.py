"""One timer for the whole of an exchange: the limit of the current phase, and the total."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .faults import Fault

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# uvloop's clock ticks in whole milliseconds, and its timers may fire that much early.
_EARLY = 0.001


class Watch:
    """Watch the time of one phase after another.

    A read only moves `last`; the timer is looked at when it fires and set anew then. A stream of ten thousand
    reads so costs a handful of timer handles.
    """

    __slots__ = (
        "_armed_at",
        "_expired",
        "_fault",
        "_handle",
        "_loop",
        "_seconds",
        "_stopped",
        "_suspended",
        "_total",
        "last",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, total: float, expired: Callable[[Fault], None]
    ) -> None:
        """Start the total time now. `expired` is called once, with the fault of the phase or with TOTAL_TIMEOUT."""
        self.last = loop.time()
        """When the phase last made progress; callers on the hot path set it themselves."""
        self._loop = loop
        self._expired = expired
        self._total = self.last + total
        self._fault = Fault.TOTAL_TIMEOUT
        self._seconds = math.inf
        self._suspended = False
        self._stopped = False
        self._handle: asyncio.TimerHandle | None = None
        self._armed_at = math.inf

    @property
    def phase(self) -> Fault:
        """The fault that the current phase ends with when its time is up."""
        return self._fault

    def enter(self, fault: Fault, seconds: float) -> None:
        """Begin a phase: without progress for `seconds` it ends with `fault`."""
        self._fault = fault
        self.limit(seconds)

    def limit(self, seconds: float) -> None:
        """Give the current phase another limit, counted from now."""
        self._seconds = seconds
        self.last = self._loop.time()
        self._arm()

    def suspend(self) -> None:
        """Stop the phase's clock, as while our own reader is the slow one. The total runs on."""
        self._suspended = True

    def resume(self) -> None:
        """Start the phase's clock again, from zero."""
        self._suspended = False
        self.last = self._loop.time()
        self._arm()

    def stop(self) -> None:
        """End the watch."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> float:
        return min(math.inf if self._suspended else self.last + self._seconds, self._total)

    def _arm(self) -> None:
        due = self._due()
        if self._stopped or due == math.inf or (self._handle is not None and self._armed_at <= due):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_at = due
        self._handle = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time() + _EARLY
        if now < self._due():
            self._arm()
            return
        self._stopped = True
        self._expired(Fault.TOTAL_TIMEOUT if now >= self._total else self._fault)
