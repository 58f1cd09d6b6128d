"""The tables `limits` of models and tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.core.call_limits import CallLimits

if TYPE_CHECKING:
    from .tables import Table

MOST_CALLS: Final = 1_000_000
MOST_PER_MINUTE: Final = 10**12
"""More than anybody sells; sums of it stay far below what the arithmetic of rates can hold."""


def read_limits(table: Table, *, may_queue: bool = False) -> CallLimits:
    """Read the limits of one model or tenant; only those who wait, tenants, have a limit on that."""
    if not may_queue:
        table.refuse(
            "queued", "goes with tenants: it is tenants that take turns", "remove it, or give it to tenants"
        )
    limits = CallLimits(
        concurrent=table.optional_integer("concurrent", most=MOST_CALLS),
        requests_per_minute=table.optional_integer("requests_per_minute", most=MOST_PER_MINUTE),
        tokens_per_minute=table.optional_integer("tokens_per_minute", most=MOST_PER_MINUTE),
        queued=table.optional_integer("queued", least=0, most=MOST_CALLS) if may_queue else None,
    )
    table.close()
    return limits
