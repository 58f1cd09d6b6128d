"""Ceilings, where accounts stand against them, and halts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, select

from modelmeter_server.core.ceilings import Scope, Standing, Subject
from modelmeter_server.core.windows import parts_at, room_at

from ..packing import CEILING_COLUMNS, HALT_COLUMNS, ceiling_of, halt_of
from ..records import DIMENSIONS
from ..tables import ceiling_windows, ceilings, halts, spend

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from modelmeter_server.core.ceilings import Ceiling, Halt

_CEILING = select(*(ceilings.c[name] for name in CEILING_COLUMNS))
_COUNTED = (
    "settled_tokens",
    "settled_nanos",
    "held_tokens",
    "held_nanos",
    "unsettled_tokens",
    "unsettled_nanos",
)


def find_ceiling(connection: Connection, tenant: str, ceiling_id: str) -> Ceiling | None:
    """Return one ceiling."""
    question = _CEILING.where(ceilings.c.tenant == tenant, ceilings.c.ceiling_id == ceiling_id)
    record = connection.execute(question).first()
    return None if record is None else ceiling_of(record)


def list_ceilings(connection: Connection, tenant: str, after: str, limit: int) -> list[Ceiling]:
    """Return a page of ceilings by their ids, beyond one of them; all begin after the empty one."""
    question = (
        _CEILING.where(ceilings.c.tenant == tenant, ceilings.c.ceiling_id > after)
        .order_by(ceilings.c.ceiling_id)
        .limit(limit)
    )
    return [ceiling_of(record) for record in connection.execute(question)]


def list_halts(connection: Connection, tenant: str) -> list[Halt]:
    """Return all halts of a tenant."""
    question = select(*(halts.c[name] for name in HALT_COLUMNS)).where(halts.c.tenant == tenant)
    return [halt_of(record) for record in connection.execute(question.order_by(halts.c.scope, halts.c.name))]


def list_all_halts(connection: Connection) -> list[Halt]:
    """Return the halts of every tenant."""
    question = select(*(halts.c[name] for name in HALT_COLUMNS))
    return [halt_of(record) for record in connection.execute(question)]


def find_standings(connection: Connection, ceiling: Ceiling, at: int) -> list[Standing]:
    """Return where the subject stands in the window that holds a moment: in tokens, in money, or in both.

    A ceiling on every run tells of the run that has used most of it; nothing if none has used any.
    """
    name = ceiling.subject.name
    if ceiling.subject.scope == Scope.RUN.value and not name:
        name = _fullest_run(connection, ceiling, at)
        if not name:
            return []
    return _standings(connection, ceiling, name, at)


def _standings(connection: Connection, ceiling: Ceiling, name: str, at: int) -> list[Standing]:
    totals = dict.fromkeys(_COUNTED, 0)
    oldest = None
    for starts_at, ends_at in parts_at(ceiling.window, at):
        counted = _counted(connection, ceiling, name, starts_at, ends_at)
        if oldest is None and any(counted.values()):
            oldest = starts_at
        for column, amount in counted.items():
            totals[column] += amount
    subject = Subject(ceiling.subject.tenant, ceiling.subject.scope, name)
    room = room_at(ceiling.window, at, oldest)
    standings = []
    for unit, allowed, currency in (
        ("tokens", ceiling.tokens, ""),
        ("nanos", ceiling.nano_units, ceiling.currency),
    ):
        if allowed is not None:
            settled, held, unsettled = (totals[f"{kind}_{unit}"] for kind in ("settled", "held", "unsettled"))
            standings.append(
                Standing(
                    subject=subject,
                    window=ceiling.window,
                    currency=currency,
                    allowed=allowed,
                    settled=settled,
                    held=held,
                    unsettled=unsettled,
                    room_at=room,
                    ceiling_id=ceiling.ceiling_id,
                )
            )
    return standings


def _counted(
    connection: Connection, ceiling: Ceiling, name: str, starts_at: int, ends_at: int | None
) -> dict[str, int]:
    windows = ceiling_windows.c
    question = select(*(windows[column] for column in _COUNTED)).where(
        windows.ceiling_id == ceiling.ceiling_id, windows.name == name, windows.starts_at == starts_at
    )
    record: Any = connection.execute(question).first()
    if record is None:
        record = _from_spend(connection, ceiling, name, starts_at, ends_at)
    return dict(zip(_COUNTED, map(int, record), strict=True))


def _from_spend(
    connection: Connection, ceiling: Ceiling, name: str, starts_at: int, ends_at: int | None
) -> Any:
    """What the window will begin with once a call needs it."""
    tenant, scope = ceiling.subject.tenant, ceiling.subject.scope
    value = "" if scope == Scope.TENANT.value else name
    sums = [func.coalesce(func.sum(_of_currency(column, ceiling.currency)), 0) for column in _COUNTED]
    question = select(*sums).where(
        spend.c.tenant == tenant,
        spend.c.dimension == DIMENSIONS[scope],
        spend.c.name == "",
        spend.c.value == value,
        spend.c.quarter >= starts_at,
    )
    if ends_at is not None:
        question = question.where(spend.c.quarter < ends_at)
    return connection.execute(question).one()


def _of_currency(column: str, currency: str) -> Any:
    """Tokens count in every currency, money in its own."""
    if column.endswith("_tokens"):
        return spend.c[column]
    return case((spend.c.currency == currency, spend.c[column]), else_=0)


def _fullest_run(connection: Connection, ceiling: Ceiling, at: int) -> str:
    windows = ceiling_windows.c
    unit = "tokens" if ceiling.tokens is not None else "nanos"
    used = func.sum(windows[f"settled_{unit}"] + windows[f"held_{unit}"] + windows[f"unsettled_{unit}"])
    oldest = parts_at(ceiling.window, at)[0][0]
    question = (
        select(windows.name)
        .where(windows.ceiling_id == ceiling.ceiling_id, windows.starts_at >= oldest)
        .group_by(windows.name)
        .order_by(used.desc(), windows.name)
        .limit(1)
    )
    return connection.execute(question).scalar() or ""
