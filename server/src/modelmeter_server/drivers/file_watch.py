"""Tell whether files have changed since somebody looked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_YOUNG_NANOSECONDS: Final = 2_000_000_000
"""A file written this short a time ago may be written once more without another time stamp: file systems count in
steps of up to 2 s."""


class FileWatch:
    """Compare time stamp, size and inode, which differ too when a symbolic link points elsewhere, as in Kubernetes."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._seen: tuple[tuple[int, ...] | None, ...] | None = None
        self._is_young = False

    def changed(self) -> bool:
        """Say whether to read the files again; true the first time, and when they are too young to tell."""
        found = tuple(map(_mark, self._paths))
        if found == self._seen and not self._is_young:
            return False
        now = time.time_ns()
        self._seen = found
        self._is_young = any(mark is not None and now - mark[0] < _YOUNG_NANOSECONDS for mark in found)
        return True

    def forget(self) -> None:
        """Let the files count as changed the next time: whoever read them could not use what they held."""
        self._seen = None


def _mark(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
