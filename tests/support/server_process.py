"""`modelmeter serve` as a process of its own that may be killed at any moment, and what it wrote to its log."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .command_line import COMMAND, environment

_ANNOUNCEMENT = "modelmeter is listening on "

_CONFIGURATION = """
[server]
listen = "127.0.0.1:0"
drain_seconds = 0
[ledger]
url = "{ledger}"
lease = {lease}
replay_only = {replay_only}
[providers.p]
kind = "anthropic"
base_url = "{provider}"
api_key_env = "KEY"
[providers.p.timeouts]
idle = {idle}
[models.m]
provider = "p"
model = "m-test"
"""


@dataclass
class ServerProcess:
    """A server that runs, or that did."""

    process: asyncio.subprocess.Process
    address: str
    log: Path

    async def kill(self) -> None:
        """Send SIGKILL and wait until it is dead."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def logged(self) -> list[dict[str, Any]]:
        """Return what it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def configuration(
    folder: Path, provider: str, ledger: str, *, lease: float = 1, idle: float = 10, replay_only: bool = False
) -> Path:
    """Write the file of a server with one model `m` behind one provider of the kind `anthropic`."""
    file = folder / f"server-{len(list(folder.glob('server-*.toml')))}.toml"
    text = _CONFIGURATION.format(
        ledger=ledger, lease=lease, provider=provider, idle=idle, replay_only=str(replay_only).lower()
    )
    file.write_text(text, encoding="utf-8")
    return file


async def start_server(file: Path, env: Mapping[str, str] | None = None) -> ServerProcess:
    """Start a server, and return once it serves; AssertionError with its words if it does not."""
    log = file.parent / f"log-{len(list(file.parent.glob('log-*')))}"
    own = {name: text for name, text in environment(env).items() if name != "MODELMETER_LEDGER_URL"}
    # A pipe that nobody reads would stop the server some thousand lines later.
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            COMMAND,
            "serve",
            "--config",
            str(file),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**own, "KEY": "sk-test"},
        )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
    except BaseException:
        process.kill()
        raise
    assert line.startswith(_ANNOUNCEMENT), (await process.wait(), log.read_text())
    return ServerProcess(process, line.removeprefix(_ANNOUNCEMENT).strip(), log)


@asynccontextmanager
async def server_process(file: Path) -> AsyncIterator[ServerProcess]:
    """Run a server inside this block; on leaving it is killed, if it still runs."""
    server = await start_server(file)
    try:
        yield server
    finally:
        await server.kill()
