"""The clock of the ledger: wall time, because rows outlive the process that wrote them."""

from __future__ import annotations

import time


def now() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1_000
