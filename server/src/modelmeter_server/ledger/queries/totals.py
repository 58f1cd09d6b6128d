"""What stands in the ledger altogether, for those who watch the server and not one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from ..questions import Dimension
from ..tables import spend

if TYPE_CHECKING:
    from sqlalchemy import Connection

STATES: Final = ("settled", "held", "unsettled", "written_off")


def get_totals(connection: Connection, since: int) -> list[tuple[str, str, int]]:
    """Return state, currency and amount of the calls that were reserved since then, in microseconds.

    The currency is empty for tokens, and then the amount is that of all calls together.
    """
    columns = [spend.c[f"{state}_{unit}"] for unit in ("tokens", "nanos") for state in STATES]
    question = (
        select(spend.c.currency, *map(func.sum, columns))
        .where(spend.c.dimension == Dimension.TENANT.value, spend.c.value == "", spend.c.quarter >= since)
        .group_by(spend.c.currency)
    )
    tokens = dict.fromkeys(STATES, 0)
    found: list[tuple[str, str, int]] = []
    for currency, *sums in connection.execute(question):
        amounts = [int(amount or 0) for amount in sums]
        for state, amount in zip(STATES, amounts, strict=False):
            tokens[state] += amount
        if currency:
            found += zip(STATES, [currency] * len(STATES), amounts[len(STATES) :], strict=True)
    return [*((state, "", amount) for state, amount in tokens.items()), *found]
