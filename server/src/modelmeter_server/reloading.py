"""A running server takes over a changed configuration: on SIGHUP, and when one of its files has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .config import ConfigError
from .drivers.file_watch import FileWatch
from .ledger.ledger import LedgerUnavailable
from .telemetry.calls import call_recorder
from .telemetry.log import configure_logging, get_logger, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .app import App
    from .config import Changes, Settings

INTERVAL: Final = 1.0
"""Seconds between two looks at the files. A look is a `stat` of each, which also works where nothing tells of changes:
on network file systems and mounted secrets."""

_log = get_logger(__name__)


class Reloading:
    """Read the configuration again and again, as long as the server runs; a wrong one leaves the old one as it is."""

    def __init__(self, app: App, read: Callable[[], Settings], asked: asyncio.Event) -> None:
        """`read` is called in a thread and raises ConfigError; `asked` is set by whoever wants it read now."""
        self._app = app
        self._read = read
        self._asked = asked
        self._watch = self._watching(())
        self._complaint = ""
        self._is_told = False
        self._waiting: list[str] = []

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            if await self._was_asked():
                self._asked.clear()
                await self._reload("SIGHUP")
            elif self._watches and await asyncio.to_thread(self._watch.changed):
                await self._reload("change of a file")

    @property
    def _watches(self) -> bool:
        return self._app.settings.server.reload_on_change

    async def _was_asked(self) -> bool:
        try:
            async with asyncio.timeout(INTERVAL if self._watches else None):
                return await self._asked.wait()
        except TimeoutError:
            return False

    def _watching(self, further: Iterable[Path]) -> FileWatch:
        return FileWatch(dict.fromkeys([*(each.path for each in self._app.settings.files), *further]))

    async def _reload(self, why: str) -> None:
        try:
            settings = await asyncio.to_thread(self._read)
            changes = self._app.reconfigure(settings)
        except ConfigError as error:
            self._refuse(why, [str(each) for each in error.mistakes], error.files)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on as it was
            # The message could quote what a file holds; its kind and place are in the log on the level of debugging.
            _log.debug("the new configuration cannot be built", exc_info=True)
            self._refuse(why, [f"it cannot be built: {type(error).__name__}"], ())
        else:
            self._taken_over(why, changes)
            # By the signal also when nothing has changed: the ledger may have been away the last time.
            if why == "SIGHUP" or changes.touch("identity", "ceilings"):
                await self._declare_ceilings()

    async def _declare_ceilings(self) -> None:
        try:
            await self._app.declare_ceilings()
        except LedgerUnavailable as error:
            _log.warning("the ceilings of the configuration are not set; reload it again", reason=str(error))

    def _refuse(self, why: str, mistakes: list[str], files: Iterable[Path]) -> None:
        """Log the mistakes once; a file that changed may have been read while it was written, and gets another look."""
        complaint = "\n".join(mistakes)
        is_news = complaint != self._complaint
        self._complaint = complaint
        # What is wrong may stand in a file that the old configuration does not know.
        if is_news:
            self._watch, self._is_told = self._watching(files), False
        if why != "SIGHUP" and (is_news or self._is_told):
            return
        self._is_told = True
        self._app.telemetry.configuration_read("refused")
        _log.error(
            "the configuration is not reloaded; the one before still holds", why=why, mistakes=mistakes
        )

    def _taken_over(self, why: str, changes: Changes) -> None:
        if self._complaint or changes.applied:
            self._watch, self._complaint = self._watching(()), ""
            self._watch.changed()
        if changes.touch("server", "log_level"):
            configure_logging(changes.settings.server.log_level, worker=worker())
            self._app.engine.record_with(call_recorder())
        if changes.applied or why == "SIGHUP":
            self._app.telemetry.configuration_read("applied" if changes.applied else "unchanged")
            _log.info("the configuration was reloaded", why=why, changed=changes.listed())
        waiting = changes.waiting()
        if waiting and (waiting != self._waiting or why == "SIGHUP"):
            _log.warning("a restart is needed for these; they are as they were", keys=waiting)
        self._waiting = waiting
