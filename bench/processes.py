"""Processes under measurement: started, measured by the CPU they used, and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """One child process that prints its port first and ends with its standard input."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            msg = f"{child.args!r} ended before it printed its port"
            raise RuntimeError(msg)
        self.port = int(line)

    def cpu_seconds(self) -> float:
        """Return user and system time of all threads so far (Linux: `/proc`)."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_bytes(self) -> int:
        """Return the memory that the process holds now (Linux: `/proc`)."""
        pages = Path(f"/proc/{self._child.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Process]:
    """Run a module of this package as a child until the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Process(child)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
