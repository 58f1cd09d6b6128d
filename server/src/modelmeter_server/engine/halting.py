"""An operator's stop and the calls that are here: heard of at once where it is set, in two seconds elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from modelmeter_server.core.ceilings import HaltMode, Scope
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from modelmeter_server.core.ceilings import Halt
    from modelmeter_server.ledger.ledger import Ledger

INTERVAL = 2.0
"""Seconds between two looks."""

_log = get_logger(__name__)


def concerns(halt: Halt, *, tenant: str, run_id: str, model: str, is_waiting: bool = False) -> bool:
    """Say whether a halt cuts a call of this tenant, run and model; either mode cuts one that waits."""
    subject = halt.subject
    if not (is_waiting or halt.mode is HaltMode.CUT) or subject.tenant != tenant:
        return False
    names = {Scope.TENANT.value: "", Scope.RUN.value: run_id, Scope.MODEL.value: model}
    # No run is halted by a name that is empty: that would be every call without a run.
    return names.get(subject.scope) == subject.name and (
        bool(subject.name) or subject.scope == Scope.TENANT.value
    )


def sentence(halt: Halt) -> str:
    """Return what a call that was cut by a halt says."""
    subject = halt.subject
    whose = f"{subject.scope.lower()} {subject.name}".strip()
    return f"an operator halted the {whose}" + (f": {halt.reason}" if halt.reason else "")


class HaltWatch:
    """Look for halts, set by whichever server, as long as calls are under way."""

    def __init__(
        self,
        ledger: Ledger,
        query: Callable[[Connection], list[Halt]],
        cut: Callable[[Halt], object],
        is_busy: Callable[[], bool],
        interval: float = INTERVAL,
    ) -> None:
        """`query` reads every halt; `cut` is told of each, again and again; it must not mind."""
        self._ledger = ledger
        self._query = query
        self._cut = cut
        self._is_busy = is_busy
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            if self._is_busy():
                await self._look()

    async def _look(self) -> None:
        try:
            halts = await self._ledger.read(self._query)
        except LedgerUnavailable:
            return  # said by others, and the next look comes
        except Exception:  # noqa: BLE001 - the next look may succeed, and without looks nothing is cut
            _log.exception("halts cannot be read")
            return
        for halt in halts:
            self._cut(halt)
