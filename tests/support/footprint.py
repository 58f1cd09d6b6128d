"""What a piece of work costs this process: the memory that it adds at its peak, and the CPU time.

Memory is resident memory, looked at every few milliseconds from a thread of its own: what C libraries hold counts
too, and nothing is slowed down as tracemalloc would.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.005
MIB = 2**20


class Footprint:
    """What was used so far; final once the block has been left."""

    def __init__(self) -> None:
        gc.collect()
        self.seconds = 0.0
        """CPU time of all threads."""
        self._before = self._peak = _resident()
        self._begun = time.process_time()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @property
    def mebibytes(self) -> float:
        """How far resident memory rose above what it was at the start."""
        return (self._peak - self._before) / MIB

    def end(self) -> None:
        """Look a last time and stop."""
        self.seconds = time.process_time() - self._begun
        self._over.set()
        self._thread.join()
        self._peak = max(self._peak, _resident())

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            self._peak = max(self._peak, _resident())


@contextmanager
def footprint() -> Iterator[Footprint]:
    """Measure this block."""
    used = Footprint()
    try:
        yield used
    finally:
        used.end()


def _resident() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE
