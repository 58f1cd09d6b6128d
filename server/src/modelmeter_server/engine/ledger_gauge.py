"""How much the ledger holds, read now and then, so that operators see money that nobody has settled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from modelmeter_server.ledger.ledger import Ledger
    from modelmeter_server.telemetry.instruments import Instruments

LOOK_BACK_SECONDS: Final = 32 * 24 * 3600
"""Calls of a longest month and a day: older ones are history, and sums over all of it would be read again and again."""

_log = get_logger(__name__)


class LedgerGauge:
    """Set the gauges of the ledger's sums. `start` it inside a running loop."""

    def __init__(
        self,
        ledger: Ledger,
        query: Callable[[Connection, int], list[tuple[str, str, int]]],
        instruments: Instruments,
        interval: float,
    ) -> None:
        """Ask `query` every `interval` seconds."""
        self._ledger = ledger
        self._query = query
        self._instruments = instruments
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

    async def look(self) -> None:
        """Look once; what cannot be read stays as it was."""
        since = (time.time_ns() // 1_000_000_000 - LOOK_BACK_SECONDS) * 1_000_000
        try:
            sums = await self._ledger.read(lambda connection: self._query(connection, since))
        except LedgerUnavailable:
            return  # said by others, and there is a metric for it
        except Exception:  # noqa: BLE001 - the next look may succeed
            _log.exception("the sums of the ledger cannot be read")
            return
        self._instruments.ledger_stands(sums)

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._interval)
