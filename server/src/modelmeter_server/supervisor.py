"""The process that starts the workers of a server, and starts them anew: `modelmeter serve --workers N` becomes it.

It never imports gRPC, holds no key and serves nothing. A fork of a process in which gRPC runs is not supported, so the
workers are programs of their own that share the port (SO_REUSEPORT). Each holds one end of a socket: it says there
where it listens, and ends when the other end, this process, is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.telemetry.log import configure_logging, get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

STEADY_SECONDS: Final = 30.0
"""A worker that served this long and then died is started anew at once."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before the next start, doubled with every death that follows soon."""

MOST_FAILURES: Final = 5
"""Starts in a row that may fail while no worker serves; then nothing will be mended by another."""

_DIED: Final = 1
_HELLO_BYTES: Final = 65_536

_log = get_logger("modelmeter_server.supervisor")  # as a program its name is another


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor is told, on its command line; no secret is among it."""

    workers: int
    command: tuple[str, ...]
    """Of a worker, all but `--worker INDEX/COUNT` and `--lifeline DESCRIPTOR`."""
    log_level: str = "info"
    first_pause: float = FIRST_PAUSE


def command_line(order: Order) -> list[str]:
    """Return the command that becomes the supervisor. `-P`: the working directory is no place to import from."""
    text = msgspec.json.encode(order).decode()
    return [sys.executable, "-P", "-m", "modelmeter_server.supervisor", text]


class Worker:
    """One worker at a time, under one index."""

    def __init__(self, index: int, order: Order) -> None:
        self.index = index
        self.is_ready = False
        self.failures = 0
        """Deaths in a row, each soon after its start."""
        self.process: asyncio.subprocess.Process | None = None
        self.addresses: list[str] = []
        self._order = order
        self._owes_hangup = False

    async def start(self) -> asyncio.subprocess.Process:
        """Start it; it is ready later."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *self._order.command,
                "--worker",
                f"{self.index}/{self._order.workers}",
                "--lifeline",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                # A key on the terminal is a signal to the whole group: workers hear of it from here, and once.
                process_group=0,
            )
        self._lifeline = ours
        _log.info("a worker was started", worker=self.index, pid=self.process.pid)
        return self.process

    async def wait_ready(self) -> bool:
        """Wait until it serves; False when it ended before."""
        self._lifeline.setblocking(False)
        hello = await asyncio.get_running_loop().sock_recv(self._lifeline, _HELLO_BYTES)
        if hello:
            self.addresses, self.is_ready = msgspec.json.decode(hello, type=list[str]), True
            if self._owes_hangup:
                self.hang_up()
        return bool(hello)

    async def wait(self) -> int:
        """Wait for its end; return its code, negative for a signal."""
        assert self.process is not None
        code = await self.process.wait()
        self.is_ready = False
        self._lifeline.close()
        return code

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            # Not `send_signal`: it looks whether the process has ended, and takes its exit code away from `wait`.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def hang_up(self) -> None:
        """Let it read its configuration again, once it serves: before, the signal would end it."""
        self._owes_hangup = not self.is_ready
        if self.is_ready:
            self.signal(signal.SIGHUP)


class Supervisor:
    """Keep as many workers running as were ordered, until a signal ends them all."""

    def __init__(self, order: Order) -> None:
        self._first_pause = order.first_pause
        self._workers = [Worker(index, order) for index in range(order.workers)]
        self._ends = 0
        self._ending = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Return the exit code: 0 after a signal, if every worker ended well."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if not await self._start_all():
            return await self._give_up()
        if not self._ending.is_set():
            sys.stdout.write(f"modelmeter is listening on {', '.join(self._workers[0].addresses)}\n")
            sys.stdout.flush()
        await asyncio.gather(*map(self._keep, self._workers))
        return _DIED if any(self._codes) else 0

    async def _start_all(self) -> bool:
        """Start all; False if one cannot serve: another try would not mend a port that is taken, or a mistake."""
        for worker in self._workers:
            await self._start(worker)
        ready = await asyncio.gather(*(worker.wait_ready() for worker in self._workers))
        return all(ready) or self._ending.is_set()

    async def _give_up(self) -> int:
        self._end()
        codes = await asyncio.gather(*(worker.wait() for worker in self._workers))
        _log.error("the workers cannot serve; none is left running", codes=codes)
        return next((code for code in codes if code > 0), _DIED)

    async def _keep(self, worker: Worker) -> None:
        """Wait for a worker's end and start it anew, until all are to end."""
        while True:
            begun = asyncio.get_running_loop().time()
            was_ready = worker.is_ready
            code = await worker.wait()
            if self._ending.is_set():
                # One that had not begun to listen is ended by the signal itself.
                self._codes.append(0 if code == -signal.SIGTERM and not was_ready else code)
                return
            served = asyncio.get_running_loop().time() - begun
            worker.failures = 1 if was_ready and served > STEADY_SECONDS else worker.failures + 1
            _log.error("a worker died", worker=worker.index, code=code, deaths=worker.failures)
            if self._is_hopeless:
                _log.error("no worker can be started any more")
                self._codes.append(_DIED)
                self._end()
                return
            if await self._pause(worker.failures):
                return
            await self._start(worker)
            await worker.wait_ready()

    async def _start(self, worker: Worker) -> None:
        await worker.start()
        if self._ending.is_set():  # while it was being started, and the word passed it by
            worker.signal(signal.SIGTERM)

    @property
    def _is_hopeless(self) -> bool:
        return all(not each.is_ready and each.failures >= MOST_FAILURES for each in self._workers)

    async def _pause(self, failures: int) -> bool:
        """Wait before the next start; say whether all are to end instead."""
        pause = 0.0 if failures == 1 else min(LONGEST_PAUSE, self._first_pause * 2 ** (failures - 2))
        try:
            async with asyncio.timeout(pause):
                return await self._ending.wait()
        except TimeoutError:
            return False

    def _end(self) -> None:
        """Pass the word on to all: the first drains, the second hurries, the third kills."""
        self._ends += 1
        self._ending.set()
        for worker in self._workers:
            worker.signal(signal.SIGTERM if self._ends < 3 else signal.SIGKILL)

    def _hang_up(self) -> None:
        for worker in self._workers:
            worker.hang_up()


def main(arguments: Sequence[str]) -> int:
    """Supervise as ordered."""
    order = msgspec.json.decode(arguments[0], type=Order)
    configure_logging(order.log_level)
    return asyncio.run(Supervisor(order).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
