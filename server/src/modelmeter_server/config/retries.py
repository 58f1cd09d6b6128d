"""The key `retry` of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modelmeter_server.core.retry_policy import INITIAL_WAIT, MAX_ATTEMPTS, MAX_WAIT, RetryPolicy

if TYPE_CHECKING:
    from .settings import ProviderSettings
    from .tables import Table

MOST_WAIT = 3600.0
"""Seconds of one wait that can be configured: longer ones are a queue's business."""


def read_retry(model: Table, *owners: ProviderSettings | None, attempts: int = 1) -> RetryPolicy:
    """Return the retry policy of a model of these providers; its mistakes are noted.

    All attempts together get the time that the provider's `timeouts.total` gives to one, the longest of several.
    `attempts` is how many there are where nothing is said.
    """
    table = model.table("retry", "a table such as { max_attempts = 3 }")
    attempts = table.integer("max_attempts", min(attempts, MAX_ATTEMPTS), least=1, most=MAX_ATTEMPTS)
    initial = _wait(table, "initial_wait", INITIAL_WAIT)
    longest = _wait(table, "max_wait", MAX_WAIT)
    if initial > longest:
        key = "initial_wait" if "initial_wait" in table else "max_wait"
        table.mistake(
            key,
            f"initial_wait is {initial:g} and max_wait {longest:g}",
            "raise max_wait, or lower initial_wait",
        )
    total = max((math.inf if each is None else each.timeouts.total for each in owners), default=math.inf)
    policy = RetryPolicy(
        max_attempts=attempts,
        initial_wait=initial,
        max_wait=longest,
        total=total if math.isfinite(total) else None,
        ambiguous=_opt_in(table, "ambiguous", attempts),
        landed=_opt_in(table, "landed", attempts),
    )
    table.close()
    return policy


def _wait(table: Table, key: str, default: float) -> float:
    seconds = table.seconds(key, default, zero=True)
    if seconds <= MOST_WAIT:
        return seconds
    table.mistake(key, f"{seconds:g} is out of range", f"write at most {MOST_WAIT:g} seconds")
    return default


def _opt_in(table: Table, key: str, attempts: int) -> bool:
    wanted = table.flag(key, default=False)
    if wanted and attempts == 1:
        table.mistake(key, "says what to repeat, and max_attempts is 1", "write max_attempts, or remove it")
    return wanted
