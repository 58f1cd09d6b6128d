"""The running usage of one stream: which told figure replaces which (R-U1, R-U2, R-U3, R-U6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from math import isfinite
from typing import NamedTuple

from .counters import INT64_MAX, counter, saturating_add
from .pricing import NANOS_PER_UNIT

XAI_TICKS_PER_UNIT = 10_000_000_000
"""xAI reports `cost_in_usd_ticks`; a tick is 10^-10 US dollars."""

# Enough digits that only the last step rounds; a context of our own, because the ambient one may be anybody's.
_UPWARDS = Context(prec=60, rounding=ROUND_CEILING)

# The numbers of JSON, because `Decimal` also reads "1_000" and full-width digits, which nobody means as money.
_NUMBER = re.compile(r"[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,20})?")


_COUNT = re.compile(
    rb'"([a-z]{1,32}_tokens)"\s*:\s*(-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Infinity)|NaN)'
)


class Counted(NamedTuple):
    """Which halves of a usage object counted; the other half said nothing, and so did its parts."""

    input: bool
    output: bool


def told(usage: Mapping[str, object], *names: str) -> dict[str, int]:
    """Read the named counters one by one; one that is missing, null or odd is left out (R-U7)."""
    figures = ((name, counter(usage.get(name))) for name in names)
    return {name: value for name, value in figures if value is not None}


def part_of(usage: Mapping[str, object], detail: str, name: str) -> int | None:
    """Read one counter of a detail object, which may be missing (R-U3)."""
    details = usage.get(detail)
    return counter(details.get(name)) if isinstance(details, Mapping) else None


def are_odd(names: Iterable[str], source: bytes | bytearray) -> bool:
    """Say whether all these counts, which read as null, were told after all: as numbers that no double can hold.

    `source` is the JSON text that tells them. Null says nothing and makes a usage object a partial one (R-U3); an odd
    number must not cost the count beside it (R-U7).
    """
    odd = {name.decode() for name, literal in _COUNT.findall(source) if not isfinite(float(literal))}
    return odd.issuperset(names)


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
        self.changes = 0
        """How often a figure became another one."""

    def get(self, name: str) -> int | None:
        """Return the last told value of a counter."""
        return self._figures.get(name)

    def take(self, usage: Mapping[str, object], *, at_stop: bool) -> Counted:
        """Take one usage object; return what of it counted. `at_stop`: told with the stop reason or after."""
        group, output = told(usage, *self._input_group), told(usage, self._output)
        counted = Counted(
            input=not (_is_zero(group) and any(self._figures.get(name) for name in self._input_group)),
            output=not (_is_zero(output) and self._figures.get(self._output)),
        )
        if counted.input:
            self._keep(group)
        if counted.output:
            self._keep(output)
            self.output_is_final = self.output_is_final or (at_stop and bool(output))
        return counted

    def remember(self, name: str, value: int | None) -> None:
        """Keep a part of the totals, such as reasoning, unless it was not told."""
        if value is not None:
            self._keep({name: value})

    def _keep(self, figures: dict[str, int]) -> None:
        for name, value in figures.items():
            if self._figures.get(name) != value:
                self._figures[name] = value
                self.changes += 1


def _is_zero(figures: dict[str, int]) -> bool:
    return bool(figures) and not any(figures.values())


def reported_nanos(usage: Mapping[str, object]) -> int | None:
    """Return the money that the provider itself reports, in nano units of US dollars, rounded up; `None` if none.

    `cost` (OpenRouter, Perplexity, Vercel) is a decimal number of dollars; it is read through its shortest decimal
    spelling, so that no binary fraction enters the bill. With the deployment's own key behind OpenRouter it is a fee
    alone: what the provider behind it charges is added, and as long as that is untold nobody reported the cost.
    """
    nanos = _nanos(usage.get("cost"), NANOS_PER_UNIT)
    if nanos is not None and usage.get("is_byok") is True:  # without it what stands behind repeats the cost
        behind = _behind(usage)
        return None if behind is None else saturating_add(nanos, behind)
    if nanos is not None:
        return nanos
    ticks = counter(usage.get("cost_in_usd_ticks"))
    return None if ticks is None else -(-ticks * NANOS_PER_UNIT // XAI_TICKS_PER_UNIT)


def _behind(usage: Mapping[str, object]) -> int | None:
    """Return what the provider behind OpenRouter charges: in a usage object, or in the record of an ended call."""
    details = usage.get("cost_details")
    place = details if isinstance(details, Mapping) else usage
    return _nanos(place.get("upstream_inference_cost"), NANOS_PER_UNIT)


def _nanos(value: object, scale: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        text = str(value).strip()
        if not _NUMBER.fullmatch(text):
            return None
        amount = Decimal(text)
    except (InvalidOperation, ValueError):
        return None
    if not amount.is_finite() or amount > INT64_MAX // scale:
        return None
    return int(_UPWARDS.multiply(amount, scale).to_integral_value(ROUND_CEILING))
