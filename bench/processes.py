"""Processes under measurement: started, measured by the CPU they used, and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CPU_CLOCK = 2
"""The kind of clock that counts all the processor time of a process (Linux: `CPUCLOCK_SCHED`)."""


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
        """Return user and system time of all threads so far, to the nanosecond: `/proc` counts in hundredths."""
        return time.clock_gettime(~self._child.pid << 3 | _CPU_CLOCK)

    def ask(self, word: str) -> None:
        """Write a word to the child, and return once it has answered with the same."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()
        if (answer := self._child.stdout.readline().strip()) != word:
            msg = f"{self._child.args!r} answered {word!r} with {answer!r}"
            raise RuntimeError(msg)

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
