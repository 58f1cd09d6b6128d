"""What the calls of a tenant consumed, from the sums that every batch keeps up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, tuple_

from modelmeter_server.core.ceilings import Window, WindowKind
from modelmeter_server.core.windows import part_at

from ..packing import SPEND_SUMS
from ..questions import Dimension, Period, SpendSum
from ..tables import spend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection

    from ..questions import SpendAsked

_HOUR = 3_600_000_000
_CALENDAR = {Period.DAY: WindowKind.DAY, Period.MONTH: WindowKind.MONTH}
_SUMS = [func.sum(spend.c[name]) for name in SPEND_SUMS]


def get_spend(connection: Connection, asked: SpendAsked) -> list[SpendSum]:
    """Return a page of sums, ordered by period, value and currency. Periods without calls are left out."""
    if asked.period is Period.HOUR:
        return _by_hour(connection, asked)
    found: list[SpendSum] = []
    for starts_at, conditions in _periods(connection, asked):
        found += _page(connection, asked, starts_at, conditions, asked.limit - len(found))
        if len(found) == asked.limit:
            break
    return found


def _by_hour(connection: Connection, asked: SpendAsked) -> list[SpendSum]:
    """Hours are the same stretches of time everywhere, so that one question finds them all."""
    starts_at = spend.c.quarter - spend.c.quarter % _HOUR
    key = (starts_at, spend.c.value, spend.c.currency)
    question = select(*key, *_SUMS).where(*_conditions(asked)).group_by(*key).order_by(*key)
    question = question.having(func.sum(spend.c.calls) > 0).limit(asked.limit)
    if asked.after is not None:
        place = asked.after
        question = question.where(
            spend.c.quarter >= place.starts_at,
            tuple_(*key) > tuple_(place.starts_at, place.value, place.currency),
        )
    return [
        _sum_of(start, value, currency, sums)
        for start, value, currency, *sums in connection.execute(question)
    ]


def _sum_of(starts_at: int, value: str, currency: str, sums: Sequence[int]) -> SpendSum:
    columns = dict(zip(SPEND_SUMS, map(int, sums), strict=True))
    return SpendSum(value=value, currency=currency, starts_at=starts_at, **columns)


def _periods(connection: Connection, asked: SpendAsked) -> Iterator[tuple[int, list[ColumnElement[bool]]]]:
    """Return each period that has sums, with the conditions that select them."""
    base = list(_conditions(asked))
    if asked.period is Period.ALL:
        yield 0, base
        return
    at = 0 if asked.after is None else asked.after.starts_at
    while (quarter := _first_quarter(connection, base, at)) is not None:
        starts_at, at = _period(asked, quarter)
        yield starts_at, [*base, spend.c.quarter >= starts_at, spend.c.quarter < at]


def _period(asked: SpendAsked, quarter: int) -> tuple[int, int]:
    starts_at, ends_at = part_at(Window(kind=_CALENDAR[asked.period], time_zone=asked.time_zone), quarter)
    assert ends_at is not None
    return starts_at, ends_at


def _first_quarter(connection: Connection, base: list[ColumnElement[bool]], at: int) -> int | None:
    question = select(func.min(spend.c.quarter)).where(*base, spend.c.quarter >= at, spend.c.calls > 0)
    quarter: int | None = connection.execute(question).scalar()
    return quarter


def _conditions(asked: SpendAsked) -> Iterator[ColumnElement[bool]]:
    yield spend.c.tenant == asked.tenant
    yield spend.c.dimension == asked.dimension.value
    yield spend.c.name == (asked.label if asked.dimension is Dimension.LABEL else "")
    if asked.dimension is Dimension.TENANT:
        yield spend.c.value == ""
    elif asked.values:
        yield spend.c.value.in_(sorted(asked.values))
    if asked.starts_at is not None:
        yield spend.c.quarter >= asked.starts_at
    if asked.ends_at is not None:
        yield spend.c.quarter < asked.ends_at


def _page(
    connection: Connection,
    asked: SpendAsked,
    starts_at: int,
    conditions: list[ColumnElement[bool]],
    limit: int,
) -> list[SpendSum]:
    key = (spend.c.value, spend.c.currency)
    question = select(*key, *_SUMS).where(*conditions).group_by(*key).order_by(*key).limit(limit)
    # Calls that changed their kind or currency leave rows of zeros behind.
    question = question.having(func.sum(spend.c.calls) > 0)
    after = asked.after
    # The values of the page, found in the order of the key: a tenant may have as many runs as calls, and all their
    # sums need not be made to return the first hundred.
    values = select(spend.c.value).where(*conditions, spend.c.calls > 0)
    if after is not None and after.starts_at == starts_at:
        question = question.where(tuple_(*key) > tuple_(after.value, after.currency))
        values = values.where(spend.c.value >= after.value)
    question = question.where(spend.c.value.in_(values.distinct().order_by(spend.c.value).limit(limit + 1)))
    return [
        _sum_of(starts_at, value, currency, sums) for value, currency, *sums in connection.execute(question)
    ]
