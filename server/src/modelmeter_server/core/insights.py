"""What the calls of the last while looked like: quantiles, failures, tokens and money. Pure, and integers throughout.

A sample is a call's figures without anything of its content. Every call leaves one, whatever is sampled for show.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from .counters import saturating_add

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PERCENTS: Final = (50, 90, 95, 99)
GROUPS: Final = 100
"""Conversations and runs that are told, the dearest first."""
_FIGURES: Final = ("calls", "input_tokens", "output_tokens", "nano_units", "at_least", "untold")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One call. Times in microseconds."""

    at: int
    """When it ended, since the epoch."""
    tenant: str
    model: str
    conversation_id: str = ""
    run_id: str = ""
    error_kind: str = ""
    """Empty for an answer."""
    certainty: str = ""
    """Of what it consumed and cost, the lesser."""
    total: int = 0
    first_token: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    nano_units: int | None = None
    currency: str = ""
    replayed: bool = False
    """It bought nothing: its tokens and money stand in another sample."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Of times, in microseconds; quantiles are nearest-rank, so that each is a time that was measured."""

    count: int = 0
    least: int = 0
    most: int = 0
    mean: int = 0
    p50: int = 0
    p90: int = 0
    p95: int = 0
    p99: int = 0


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls under one name consumed, as far as it was told."""

    name: str
    currency: str
    """Empty for calls without a price."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano_units: int = 0
    at_least: int = 0
    """Calls that were told, or have a price, in part: with one, the sums here are lower bounds."""
    untold: int = 0
    """Calls that may have consumed something that nobody told: with one, the sums here are lower bounds."""


class Insights(msgspec.Struct, frozen=True, kw_only=True):
    """What the samples say."""

    calls: int = 0
    answered: int = 0
    failed: int = 0
    replayed: int = 0
    untold: int = 0
    """Calls that may have consumed something that nobody told."""
    at_least: int = 0
    """Calls whose consumption was told, or has a price, in part: the sums that they are in are lower bounds."""
    latency: Distribution = Distribution()
    """Of answers, from arrival to the end."""
    first_token: Distribution = Distribution()
    """Of answers, from the request leaving to the first output."""
    errors: dict[str, int] = {}
    """Calls by the kind of their failure."""
    total: tuple[Spent, ...] = ()
    """By currency."""
    by_model: tuple[Spent, ...] = ()
    by_conversation: tuple[Spent, ...] = ()
    by_run: tuple[Spent, ...] = ()
    since: int = 0
    """When the oldest of the samples ended; 0 when there is none."""


def insights(samples: Iterable[Sample]) -> Insights:
    """Return what the samples say together."""
    found = list(samples)
    answers = [each for each in found if not each.error_kind and not each.replayed]
    bought = [each for each in found if not each.replayed]
    errors = Counter(each.error_kind for each in found if each.error_kind)
    return Insights(
        calls=len(found),
        answered=sum(not each.error_kind for each in found),
        failed=errors.total(),
        replayed=len(found) - len(bought),
        untold=sum(map(_is_untold, bought)),
        at_least=sum(map(_is_at_least, bought)),
        latency=distribution([each.total for each in answers]),
        first_token=distribution([each.first_token for each in answers if each.first_token is not None]),
        errors=dict(sorted(errors.items())),
        total=_spent(("", each) for each in bought),
        by_model=_spent((each.model, each) for each in bought),
        by_conversation=_spent((each.conversation_id, each) for each in bought if each.conversation_id),
        by_run=_spent((each.run_id, each) for each in bought if each.run_id),
        since=min((each.at for each in found), default=0),
    )


def distribution(times: Sequence[int]) -> Distribution:
    """Return the quantiles of times; all zeros for none."""
    if not times:
        return Distribution()
    ordered = sorted(times)
    ranks = {f"p{percent}": ordered[-(-percent * len(ordered) // 100) - 1] for percent in PERCENTS}
    return Distribution(
        count=len(ordered),
        least=ordered[0],
        most=ordered[-1],
        mean=sum(ordered) // len(ordered),
        **ranks,
    )


def _is_untold(sample: Sample) -> bool:
    return sample.certainty == "UNKNOWN"


def _is_at_least(sample: Sample) -> bool:
    return sample.certainty == "AT_LEAST"


def _spent(named: Iterable[tuple[str, Sample]]) -> tuple[Spent, ...]:
    sums: dict[tuple[str, str], list[int]] = {}
    for name, sample in named:
        figures = sums.setdefault((name, sample.currency), [0] * len(_FIGURES))
        for index, figure in enumerate(_figures(sample)):
            figures[index] = saturating_add(figures[index], figure)
    spent = [
        Spent(name=name, currency=currency, **dict(zip(_FIGURES, figures, strict=True)))
        for (name, currency), figures in sums.items()
    ]
    return tuple(sorted(spent, key=_dearest_first)[:GROUPS])


def _figures(sample: Sample) -> tuple[int, ...]:
    """Return what a call adds to the sums that it is in, in the order of `_FIGURES`."""
    return (
        1,
        sample.input_tokens or 0,
        sample.output_tokens or 0,
        sample.nano_units or 0,
        _is_at_least(sample),
        _is_untold(sample),
    )


def _dearest_first(spent: Spent) -> tuple[int, int, str, str]:
    return (-spent.nano_units, -spent.input_tokens - spent.output_tokens, spent.name, spent.currency)
