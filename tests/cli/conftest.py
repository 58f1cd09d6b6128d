"""Servers that the command line calls: a scripted one in this process, and the real one in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.support.command_line import COMMAND, environment, started
from tests.support.scripted_service import ScriptedService, serve

_ANNOUNCEMENT = "modelmeter is listening on "


@pytest.fixture
async def service():
    """Return a service whose methods answer as the test says."""
    return ScriptedService()


@pytest.fixture
async def address(service):
    """Return where the scripted service is."""
    async with serve(service) as where:
        yield where


@pytest.fixture(scope="session")
def replay_address() -> Iterator[str]:
    """Return where `modelmeter serve` without a configuration listens; one server for all tests that only call."""
    arguments = [COMMAND, "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        arguments, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(_ANNOUNCEMENT)
            yield line.removeprefix(_ANNOUNCEMENT).strip()
        finally:
            process.kill()


@dataclass
class Server:
    """`modelmeter serve` in a process of its own."""

    process: asyncio.subprocess.Process
    announced: str
    """The line that it printed when it began to listen."""

    @property
    def address(self) -> str:
        """Return the first address it listens on."""
        return self.announced.removeprefix(_ANNOUNCEMENT).split(",")[0].strip()

    async def end(self, *signals: int) -> int:
        """Send the signals and return the exit code."""
        for number in signals:
            self.process.send_signal(number)
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@pytest.fixture
def served():
    """Return a context manager that runs `modelmeter serve` with these arguments, on a free port unless told."""

    @asynccontextmanager
    async def start(*arguments: str, env: dict[str, str] | None = None) -> AsyncIterator[Server]:
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        async with started("serve", *listen, *arguments, env=env) as process:
            assert process.stdout is not None
            line = await process.stdout.readline()
            assert line, (await process.communicate())[1].decode()
            yield Server(process, line.decode())

    return start
