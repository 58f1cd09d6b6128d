"""The `modelmeter` command as a process of its own: in pipes, or on a terminal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("modelmeter"))
"""The console script that the distribution installs."""


@dataclass
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of this process without variables that change how output looks."""
    looks = {"COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
    own = {name: value for name, value in os.environ.items() if name not in looks}
    # A server would keep its books in the folder that the tests run in.
    return {**own, "TERM": "xterm-256color", "MODELMETER_LEDGER_URL": "none", **(extra or {})}


@asynccontextmanager
async def started(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    program: str = COMMAND,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the command with its output in pipes; it is killed if it has not ended on leaving."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(env),
        cwd=cwd,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(
    *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Result:
    """Run the command to its end with its output in pipes."""
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    async with started(*arguments, env=env, cwd=cwd, stdin=source) as process:
        out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Result(process.returncode, out.decode(), err.decode())


async def run_on_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """Run the command to its end on a pseudo-terminal; `out` is everything that the terminal got."""
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            COMMAND, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(env)
        )
    finally:
        os.close(theirs)
    shown, code = await asyncio.gather(asyncio.to_thread(_read_to_end, ours), process.wait())
    return Result(code, shown.decode().replace("\r\n", "\n"), "")


def _read_to_end(terminal: int) -> bytes:
    """Read until the last process has closed the terminal, which Linux reports as an error."""
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:
        pass
    finally:
        os.close(terminal)
    return shown
