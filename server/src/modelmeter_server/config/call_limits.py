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
        concurrent=optional_integer(table, "concurrent", most=MOST_CALLS),
        requests_per_minute=optional_integer(table, "requests_per_minute", most=MOST_PER_MINUTE),
        tokens_per_minute=optional_integer(table, "tokens_per_minute", most=MOST_PER_MINUTE),
        queued=optional_integer(table, "queued", least=0, most=MOST_CALLS) if may_queue else None,
    )
    table.close()
    return limits


def optional_integer(table: Table, key: str, *, least: int = 1, most: int) -> int | None:
    """Return an integer within bounds; `None` when it is absent."""
    if key in table:
        return table.integer(key, least, least=least, most=most)
    table.get(key, int, "")
    return None
