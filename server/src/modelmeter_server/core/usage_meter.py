"""The running usage of one stream: which told figure replaces which (R-U1, R-U2, R-U3, R-U6)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from .counters import INT64_MAX, counter
from .pricing import NANOS_PER_UNIT, Cost, CostSource

if TYPE_CHECKING:
    from .outcomes import Certainty

XAI_TICKS_PER_UNIT = 10_000_000_000
"""xAI reports `cost_in_usd_ticks`; a tick is 10^-10 US dollars."""


def told(usage: Mapping[str, object], *names: str) -> dict[str, int]:
    """Read the named counters one by one; one that is missing, null or odd is left out (R-U7)."""
    figures = ((name, counter(usage.get(name))) for name in names)
    return {name: value for name, value in figures if value is not None}


def part_of(usage: Mapping[str, object], detail: str, name: str) -> int | None:
    """Read one counter of a detail object, which may be missing (R-U3)."""
    details = usage.get(detail)
    return counter(details.get(name)) if isinstance(details, Mapping) else None


class RunningTotals:
    """Counters that are told again and again, each time as a whole: replace, never add.

    A later figure wins, also when it is lower and also when it is 0. Two exceptions for bridges that send zeros: an
    input group of zeros after a group above 0 says nothing, and an output of 0 after a larger one says nothing.
    """

    def __init__(self, input_group: tuple[str, ...], output: str) -> None:
        self._input_group = input_group
        self._output = output
        self._figures: dict[str, int] = {}
        self.output_is_final = False

    def get(self, name: str) -> int | None:
        """Return the last told value of a counter."""
        return self._figures.get(name)

    def take(self, usage: Mapping[str, object], *, at_stop: bool) -> bool:
        """Take one usage object; return whether anything changed. `at_stop`: told with the stop reason or after."""
        before = dict(self._figures)
        group = told(usage, *self._input_group)
        if any(group.values()) or not any(self._figures.get(name) for name in self._input_group):
            self._figures.update(group)
        output = told(usage, self._output)
        if output.get(self._output) or not self._figures.get(self._output):
            self._figures.update(output)
            self.output_is_final = self.output_is_final or (at_stop and bool(output))
        return before != self._figures

    def remember(self, name: str, value: int | None) -> None:
        """Keep a part of the totals, such as reasoning, unless it was not told."""
        if value is not None:
            self._figures[name] = value


def reported_cost(usage: Mapping[str, object], certainty: Certainty) -> Cost | None:
    """Return the money that the provider itself reports, in US dollars, or `None`.

    `cost` (OpenRouter, Perplexity, Vercel) is a decimal number of dollars; it is read through its shortest decimal
    spelling, so that no binary fraction enters the bill.
    """
    nanos = _nanos(usage.get("cost"), NANOS_PER_UNIT)
    if nanos is None:
        ticks = counter(usage.get("cost_in_usd_ticks"))
        nanos = None if ticks is None else -(-ticks * NANOS_PER_UNIT // XAI_TICKS_PER_UNIT)
    if nanos is None:
        return None
    return Cost(nanos=nanos, currency="USD", source=CostSource.PROVIDER, certainty=certainty)


def _nanos(value: object, scale: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount < 0 or amount > INT64_MAX // scale:
        return None
    return int((amount * scale).to_integral_value(rounding="ROUND_CEILING"))
