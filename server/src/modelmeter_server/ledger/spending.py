"""The sums: what each call adds to the spend of its tenant, run, model, kind and labels, as increments of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from modelmeter_server.core.journal import CallState
from modelmeter_server.core.reservation import MOST_TOKENS
from modelmeter_server.core.windows import QUARTER

from .rows import CallRow, SpendRow

SUMS = (
    "calls",
    "input_tokens",
    "output_tokens",
    "settled_tokens",
    "settled_nanos",
    "held_tokens",
    "held_nanos",
    "unsettled_tokens",
    "unsettled_nanos",
    "written_off_tokens",
    "written_off_nanos",
    "possibly_billed_calls",
)
"""The columns of a sum, in the order of `Entry.sums`."""
COUNTED = slice(3, 9)
"""Those that ceilings count: settled, held and unsettled."""

ANSWERED, OPEN = "ANSWERED", "OPEN"

_FIELDS = ("tenant", "dimension", "name", "value", "quarter", "currency", *SUMS)

SpendKey = tuple[str, str, str, str, int, str]
"""(tenant, dimension, name, value, quarter, currency)."""


class Entry(NamedTuple):
    """What the sums hold of one call."""

    reserved_at: int
    currency: str
    kind: str
    """As the dimension KIND spells it."""
    sums: tuple[int, ...]


def entry_of(row: CallRow) -> Entry:
    """Return what the sums hold of a call as it stands.

    Told tokens count from its end on, those of earlier dispatches included.
    """
    booking = row.booking
    is_open = row.state <= CallState.DISPATCHED
    read, written = told_tokens(row)
    sums = (
        1,
        read,
        written,
        booking.settled_tokens,
        booking.settled_nanos,
        booking.held_tokens,
        booking.held_nanos,
        booking.unsettled_tokens,
        booking.unsettled_nanos,
        booking.written_off_tokens,
        booking.written_off_nanos,
        booking.possibly_billed,
    )
    kind = OPEN if is_open else row.kind or ANSWERED
    return Entry(row.reserved_at, row.hold.currency, kind, sums)


def told_tokens(row: CallRow) -> tuple[int, int]:
    """Return the input and output that a call and its earlier dispatches are known to have had; none while it runs."""
    read = written = 0
    if row.state > CallState.DISPATCHED:
        read = min(row.figures.input_tokens or 0, MOST_TOKENS)
        written = min(row.figures.output_tokens or 0, MOST_TOKENS)
    if row.carried is not None:
        read += row.carried.input_tokens
        written += row.carried.output_tokens
    return read, written


class Spending:
    """The increments of a batch; each column of each is added to the stored sum of its key."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sums: dict[SpendKey, list[int]] = {}

    def insert(self, row: CallRow, after: Entry) -> None:
        """Add a new call."""
        self._add(row, after, after.sums)

    def replace(self, row: CallRow, before: Entry, after: Entry) -> None:
        """Book the difference that a change of a call makes."""
        old_key = (before.reserved_at // QUARTER, before.currency)
        if old_key != (after.reserved_at // QUARTER, after.currency):
            self._add(row, before, tuple(-each for each in before.sums))
            self._add(row, after, after.sums)
            return
        self._add(row, after, difference(before, after), with_kind=before.kind == after.kind)
        if before.kind != after.kind:
            quarter, currency = before.reserved_at // QUARTER * QUARTER, before.currency
            old = (row.tenant, "KIND", "", before.kind, quarter, currency)
            self._increase(old, [-each for each in before.sums])
            self._increase((row.tenant, "KIND", "", after.kind, quarter, currency), list(after.sums))

    def _add(self, row: CallRow, entry: Entry, sums: tuple[int, ...], *, with_kind: bool = True) -> None:
        tenant, quarter, currency = row.tenant, entry.reserved_at // QUARTER * QUARTER, entry.currency
        self._increase((tenant, "TENANT", "", "", quarter, currency), list(sums))
        self._increase((tenant, "MODEL", "", row.model, quarter, currency), list(sums))
        if row.run_id:
            self._increase((tenant, "RUN", "", row.run_id, quarter, currency), list(sums))
        if with_kind:
            self._increase((tenant, "KIND", "", entry.kind, quarter, currency), list(sums))
        for name, value in row.labels.items():
            self._increase((tenant, "LABEL", name, value, quarter, currency), list(sums))

    def _increase(self, key: SpendKey, sums: list[int]) -> None:
        old = self._sums.get(key)
        if old is None:
            self._sums[key] = sums
            return
        for index, more in enumerate(sums):
            if more:
                old[index] += more

    def items(self) -> list[tuple[SpendKey, list[int]]]:
        """Return all increments so far, by their keys."""
        return list(self._sums.items())

    def rows(self) -> list[SpendRow]:
        """Return the increments that change anything."""
        return [_row(key, sums) for key, sums in self._sums.items() if any(sums)]


def _row(key: SpendKey, sums: list[int]) -> SpendRow:
    values: dict[str, Any] = dict(zip(_FIELDS, (*key, *sums), strict=True))
    return SpendRow(**values)


def difference(before: Entry, after: Entry) -> tuple[int, ...]:
    """Return what a change adds to each column."""
    return tuple([new - old for new, old in zip(after.sums, before.sums, strict=True)])
