"""The table `breaker` of a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.engine.breaker import BreakerRules

if TYPE_CHECKING:
    from .tables import Table

_MOST = 2**31 - 1


def read_breaker(table: Table) -> BreakerRules:
    """Return when calls that have another target are no longer sent to a provider; mistakes are noted."""
    default = BreakerRules()
    rules = BreakerRules(
        failures=table.integer("failures", default.failures, least=1, most=_MOST),
        failure_share=table.share("failure_share", default.failure_share),
        least_calls=table.integer("least_calls", default.least_calls, least=1, most=_MOST),
        window=table.seconds("window", default.window),
        open_seconds=table.seconds("open_seconds", default.open_seconds),
        most_open_seconds=table.seconds("most_open_seconds", default.most_open_seconds),
        probes=table.integer("probes", default.probes, least=1, most=1000),
    )
    if rules.most_open_seconds < rules.open_seconds:
        problem = f"is less than open_seconds, which is {rules.open_seconds:g}"
        table.mistake("most_open_seconds", problem, "raise it, or lower open_seconds")
    table.close()
    return rules
