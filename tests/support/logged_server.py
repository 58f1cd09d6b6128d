"""`modelmeter serve` as a process whose log is read while it runs: tests wait for a line, not for a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .command_line import COMMAND, environment

ANNOUNCEMENT = "modelmeter is listening on "

Line = dict[str, Any]


@dataclass
class LoggedServer:
    """A server that runs, or that did."""

    process: asyncio.subprocess.Process
    lines: list[Line] = field(default_factory=list)
    """What it has logged."""
    words: list[str] = field(default_factory=list)
    """What it has written on stderr beside its log."""
    address: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def told(self, event: str, *, count: int = 1, seconds: float = 20, **fields: Any) -> Line:
        """Wait for the line number `count` of this event with these fields, from 1; return it."""
        async with asyncio.timeout(seconds):
            while len(found := self.find(event, **fields)) < count:
                assert not self._is_over, (event, fields, self.lines[-5:], self.words)
                self._changed.clear()
                await self._changed.wait()
        return found[count - 1]

    def find(self, event: str, **fields: Any) -> list[Line]:
        """Return the lines of this event with these fields so far."""
        wanted = {"event": event, **fields}.items()
        return [line for line in self.lines if wanted <= _flat(line).items()]

    def send(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.send(number)
        return await self.process.wait()

    @property
    def text(self) -> str:
        """Return all that it has written."""
        return "\n".join([*map(json.dumps, self.lines), *self.words])

    @property
    def _is_over(self) -> bool:
        assert self.process.stderr is not None
        return self.process.stderr.at_eof()

    async def read(self) -> None:
        """Read the log to its end."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))
            else:
                self.words.append(line.decode().rstrip())
            self._changed.set()
        self._changed.set()


def _flat(line: Line) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in line.items()}


@asynccontextmanager
async def logged_server(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    command: Sequence[str] = (COMMAND, "serve"),
    must_serve: bool = True,
) -> AsyncIterator[LoggedServer]:
    """Run `modelmeter serve` inside this block, from when it serves; it is killed with its workers on leaving."""
    own = {name: text for name, text in environment(env).items() if name != "MODELMETER_LEDGER_URL"}
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=own,
        cwd=cwd,
        limit=2**20,
    )
    server = LoggedServer(process)
    reading = asyncio.create_task(server.read())
    try:
        if must_serve:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            if not line.startswith(ANNOUNCEMENT):
                await reading
                raise AssertionError(server.text)
            server.address = line.removeprefix(ANNOUNCEMENT).split(",")[0].strip()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        # Before the wait: it lasts as long as anybody holds the pipes.
        for pid in workers_of(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()
        await reading


def workers_of(server: LoggedServer) -> list[int]:
    """Return the processes that its supervisor started and that are still there."""
    pids = [line["pid"] for line in server.find("a worker was started")]
    return [pid for pid in pids if _is_there(pid)]


def _is_there(pid: int) -> bool:
    try:
        # One that has ended and was not waited for yet is gone as well.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
