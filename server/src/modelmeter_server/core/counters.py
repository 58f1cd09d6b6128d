"""Token counters: what a provider told as one, and sums that stay inside the wire's int64 (R-U7)."""

from __future__ import annotations

from typing import Final

INT64_MAX: Final = 2**63 - 1
"""The largest counter: proto fields, SQL columns and Go clients hold int64."""


def counter(value: object) -> int | None:
    """Return the counter that a JSON value tells, or None if it tells none.

    Whole numbers from 0 up count, 12.0 as 12, and stop at `INT64_MAX`. Booleans, negative numbers,
    fractions, NaN, infinity, strings and everything else count as not told, which never costs the counters
    beside it.
    """
    if isinstance(value, bool):  # before int: True is an int and would be one token
        return None
    if isinstance(value, float):
        if not value.is_integer():  # false for NaN and infinity too
            return None
        value = int(value)
    if not isinstance(value, int) or value < 0:
        return None
    return min(value, INT64_MAX)


def saturating_add(*values: int) -> int:
    """Return the sum of counters (none is negative), at most `INT64_MAX`."""
    return min(sum(values), INT64_MAX)
