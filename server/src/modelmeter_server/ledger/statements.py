"""The statements of the hot path as text, built once from the names of the columns."""

# ruff: noqa: S608 (statements are put together from names in this package; values are parameters)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .packing import (
    ADMISSION_COLUMNS,
    AMOUNTS,
    CALL_COLUMNS,
    CEILING_COLUMNS,
    HALT_COLUMNS,
    INT64_MAX,
    PROGRESS_COLUMNS,
    SPEND_KEY,
    SPEND_SUMS,
    WINDOW_COLUMNS,
    WINDOW_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .commands import Erase

ATTEMPT_KEY = ("call", "dispatch", "number")
ATTEMPT_COLUMNS = (*ATTEMPT_KEY, "detail")
CONTENT_COLUMNS = ("call", "expires_at", "outcome", "provider_body")
HALT_KEY = ("tenant", "scope", "name")
CEILING_KEY = ("tenant", "ceiling_id")


class Statements:
    """Statements that write; `place` spells the n-th parameter, counted from 1, as the driver wants it."""

    def __init__(self, place: Callable[[int], str], *, types: dict[str, str] | None = None) -> None:
        """Build them. `types` casts parameters of columns that the driver would take for something else."""
        self._place = place
        self._types = types or {}
        self.insert_call = self._insert("calls", CALL_COLUMNS)
        self.admit_call = self._update("calls", (*ADMISSION_COLUMNS, *PROGRESS_COLUMNS))
        self.update_call = self._update("calls", PROGRESS_COLUMNS)
        self.put_attempt = self._upsert("attempts", ATTEMPT_KEY, ATTEMPT_COLUMNS)
        self.put_content = self._upsert("contents", ("call",), CONTENT_COLUMNS)
        self.put_window = self._upsert("ceiling_windows", WINDOW_KEY, WINDOW_COLUMNS)
        self.put_ceiling = self._upsert("ceilings", CEILING_KEY, CEILING_COLUMNS)
        self.put_halt = self._upsert("halts", HALT_KEY, HALT_COLUMNS)
        self.add_spend = self._add("spend", SPEND_KEY, SPEND_SUMS)
        self.drop_ceiling = f"DELETE FROM ceilings WHERE tenant = {place(1)} AND ceiling_id = {place(2)}"
        self.drop_windows = f"DELETE FROM ceiling_windows WHERE ceiling_id = {place(1)}"
        self.drop_halt = (
            f"DELETE FROM halts WHERE tenant = {place(1)} AND scope = {place(2)} AND name = {place(3)}"
        )
        self.close_server = f"UPDATE servers SET closed = {place(1)} WHERE owner = {place(2)}"

    def _value(self, number: int, column: str) -> str:
        cast = self._types.get(column)
        return f"{self._place(number)}::{cast}" if cast else self._place(number)

    def _values(self, columns: Sequence[str]) -> str:
        return ", ".join(self._value(number, column) for number, column in enumerate(columns, 1))

    def _insert(self, table: str, columns: Sequence[str]) -> str:
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({self._values(columns)})"

    def _update(self, table: str, columns: Sequence[str]) -> str:
        """The id is the last parameter."""
        changes = ", ".join(f"{name} = {self._value(number, name)}" for number, name in enumerate(columns, 1))
        return f"UPDATE {table} SET {changes} WHERE id = {self._place(len(columns) + 1)}"

    def _upsert(self, table: str, key: Sequence[str], columns: Sequence[str]) -> str:
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
        return f"{self._insert(table, columns)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"

    def _add(self, table: str, key: Sequence[str], sums: Sequence[str]) -> str:
        changes = ", ".join(f"{name} = {_saturated(table, name)}" for name in sums)
        return f"{self._insert(table, (*key, *sums))} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"


def _saturated(table: str, name: str) -> str:
    """One absurd figure must not make every later sum fail: SQLite would turn to floats, PostgreSQL refuses."""
    old, new = f"{table}.{name}", f"excluded.{name}"
    return f"CASE WHEN {new} > 0 AND {old} > {INT64_MAX} - {new} THEN {INT64_MAX} ELSE {old} + {new} END"


WINDOW_SUMS = ", ".join(
    f"COALESCE(SUM({name}), 0)"
    if name.endswith("_tokens")
    else f"COALESCE(SUM(CASE WHEN currency = {{currency}} THEN {name} ELSE 0 END), 0)"
    for name in AMOUNTS[:6]
)
"""What a new window begins with; `{currency}` stands for the parameter."""


def erase_condition(erase: Erase, place: Callable[[int], str]) -> tuple[str, tuple[Any, ...]]:
    """Return the FROM and WHERE that select the contents which an order means, and their parameters."""
    if erase.expired_at is not None:
        return f"FROM contents WHERE contents.expires_at <= {place(1)}", (erase.expired_at,)
    joined = f"FROM calls JOIN contents ON contents.call = calls.id WHERE calls.tenant = {place(1)}"
    if erase.call_id:
        return f"{joined} AND calls.call_id = {place(2)}", (erase.tenant, erase.call_id)
    if erase.run_id:
        return f"{joined} AND calls.run_id = {place(2)} AND calls.run_id <> ''", (erase.tenant, erase.run_id)
    return joined, (erase.tenant,)
