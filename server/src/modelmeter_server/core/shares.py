"""Limits that belong to a deployment's whole server and are kept by each of its processes alone."""

from __future__ import annotations

import msgspec


class Share(msgspec.Struct, frozen=True):
    """Which of the processes of a server this one is."""

    index: int = 0
    """From 0."""
    count: int = 1

    def of(self, limit: int) -> int:
        """Return what of a limit is this process's: all shares together are the limit, but each is 1 at least."""
        whole, rest = divmod(limit, self.count)
        return max(1, whole + (self.index < rest))
