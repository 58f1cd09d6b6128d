"""A server from its first signal to its last: it serves, reloads, and ends with no bill unsettled."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING, Self

from .app import App
from .reloading import Reloading
from .telemetry.log import configure_logging, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .config import Settings

_log = get_logger(__name__)

GIVING_UP_SECONDS = 3.0
"""What a start that was called off gets to close what it has opened."""


async def serve(
    settings: Settings,
    announce: Callable[[Sequence[str]], None] | None = None,
    *,
    read_again: Callable[[], Settings] | None = None,
    lifeline: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal cuts what is left. Raises ListenError.

    `announce` is told the addresses once calls are welcome. `read_again` reads the configuration anew, for SIGHUP and
    changed files. A `lifeline` is a descriptor whose end is as good as SIGTERM: that of the process which started us.
    """
    with Signals(lifeline) as signals:  # before the server listens: a supervisor may change its mind early
        app = App(settings)
        addresses = await _start(app, signals)
        if addresses is None:
            _log.info("stopped before it served")
            return
        # What is there by now stays until the end: modules, stubs, schemas. The collector passes over it from now on.
        gc.collect()
        gc.freeze()
        private = {"private": app.private_address} if app.private_address else {}
        _log.info("serving", addresses=addresses, models=len(app.engine.catalog), pid=os.getpid(), **private)
        if announce is not None:
            announce(addresses)
        reloading = asyncio.create_task(_reload(app, read_again, signals.again))
        await signals.first.wait()
        reloading.cancel()
        await asyncio.wait((reloading,))
        await _end(app, signals)


async def _start(app: App, signals: Signals) -> list[str] | None:
    """Start, which may wait for a database; `None` when it was told to end meanwhile."""
    starting = asyncio.create_task(app.start())
    ending = asyncio.create_task(signals.first.wait())
    await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    await asyncio.wait((starting,), timeout=GIVING_UP_SECONDS)
    return None


async def _reload(app: App, read: Callable[[], Settings] | None, asked: asyncio.Event) -> None:
    if read is not None and app.settings.files:
        await Reloading(app, read, asked).run()
    while await asked.wait():
        asked.clear()
        _log.info("there is no configuration file to read again")


async def _end(app: App, signals: Signals) -> None:
    server = app.settings.server
    if server.drain_delay_seconds:
        # Load balancers notice by and by; until then their calls are as welcome as ever.
        app.server.stop_serving()
        _log.info("not ready any more; calls are still taken", seconds=server.drain_delay_seconds)
        await asyncio.wait((signals.hurried,), timeout=server.drain_delay_seconds)
    _log.info("draining", calls=app.engine.calls_in_flight, seconds=server.drain_seconds)
    hurry = asyncio.create_task(_hurry(signals.hurried, app))
    cut = await app.stop(server.drain_seconds)
    hurry.cancel()
    _log.info("stopped", cut=cut)


async def _hurry(hurried: asyncio.Future[None], app: App) -> None:
    await asyncio.shield(hurried)
    await app.engine.drain(0)


class Signals:
    """Hear SIGTERM, SIGINT and SIGHUP inside a block."""

    def __init__(self, lifeline: int | None = None) -> None:
        """A `lifeline` that ends is heard as SIGTERM."""
        self._loop = asyncio.get_running_loop()
        self._lifeline = lifeline
        self.first = asyncio.Event()
        self.hurried: asyncio.Future[None] = self._loop.create_future()
        """Done with the second signal to end."""
        self.again = asyncio.Event()
        """Set by SIGHUP."""

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._heard)
        self._loop.add_signal_handler(signal.SIGHUP, self.again.set)
        if self._lifeline is not None:
            self._loop.add_reader(self._lifeline, self._orphaned)
        return self

    def __exit__(self, *_reason: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.remove_signal_handler(number)
        self._let_go()

    def _heard(self) -> None:
        if not self.first.is_set():
            self.first.set()
        elif not self.hurried.done():
            self.hurried.set_result(None)

    def _orphaned(self) -> None:
        assert self._lifeline is not None
        if not os.read(self._lifeline, 1):
            self._let_go()
            if not self.first.is_set():
                _log.warning("the process that started this one is gone")
                self.first.set()

    def _let_go(self) -> None:
        if self._lifeline is not None:
            self._loop.remove_reader(self._lifeline)
            self._lifeline = None


def run(
    settings: Settings,
    announce: Callable[[Sequence[str]], None] | None = None,
    *,
    read_again: Callable[[], Settings] | None = None,
    lifeline: int | None = None,
) -> None:
    """Configure logging and serve on uvloop where it is installed; returns after a signal. Raises ListenError."""
    share = settings.share
    configure_logging(settings.server.log_level, worker=share.index if share.count > 1 else None)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, announce, read_again=read_again, lifeline=lifeline))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform; asyncio's own loop costs 5 to 11 % more
        return None
    return uvloop.new_event_loop
