"""One batch in a transaction of SQLite: load what the book-keeper wants, write what it changed.

Keys are handed over as one JSON array a statement: each step of a statement gives the interpreter's lock away and has
to win it back from the event loop, so few statements with many rows are what keeps a batch short.
"""

# ruff: noqa: S608 (statements are put together from names in this package; values are parameters)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .batch import Found
from .loaded import LoadedCalls, key_of, newest
from .packing import (
    CALL_SELECTION,
    CEILING_COLUMNS,
    HALT_COLUMNS,
    WINDOW_COLUMNS,
    admission_values,
    attempt_of,
    attempt_values,
    ceiling_of,
    ceiling_values,
    halt_of,
    halt_values,
    key_values,
    progress_values,
    spend_values,
    window_of,
    window_values,
)
from .rows import CeilingWindowRow, ContentRow, ServerRow
from .statements import WINDOW_SUMS, Statements, erase_condition
from .stores import fill_window, spend_value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterable

    from modelmeter_server.core.ceilings import Ceiling, Halt

    from .batch import Changes, GenerationKey, Wanted, WindowKey
    from .commands import Erase
    from .rows import AttemptRow, CallRow

_json = msgspec.json.Encoder().encode

_SQL = Statements(lambda _number: "?")


def _item(number: int) -> str:
    return f"json_extract(asked.value, '$[{number}]')"


def _joined(table: str, selection: str, *columns: str) -> str:
    """Select rows by keys; the keys come first, or SQLite might read the whole table."""
    match = " AND ".join(f"{table}.{name} = {_item(number)}" for number, name in enumerate(columns))
    return f"SELECT {selection} FROM json_each(?) AS asked CROSS JOIN {table} ON {match}"


_BY_CALL = _joined("calls", CALL_SELECTION, "tenant", "call_id")
_BY_GENERATION = _joined("calls", CALL_SELECTION, "tenant", "call_id", "generation")
_BY_EFFECT = _joined("calls", CALL_SELECTION, "tenant", "run_id", "effect_key") + " AND calls.run_id <> ''"
_OPEN_OF = f"SELECT {CALL_SELECTION} FROM calls WHERE owner = ? AND state <= 2 LIMIT ?"
_EXPIRED = (
    f"SELECT {CALL_SELECTION} FROM calls WHERE state = 4 AND expires_at <= ? ORDER BY expires_at LIMIT ?"
)
_ATTEMPTS = "SELECT dispatch, number, detail FROM attempts WHERE call = ? ORDER BY dispatch, number"
_CONTENTS = (
    "SELECT tenant, call_id, generation, outcome, provider_body FROM json_each(?) AS asked"
    f" CROSS JOIN calls ON tenant = {_item(0)} AND call_id = {_item(1)} AND generation = {_item(2)}"
    " CROSS JOIN contents ON contents.call = calls.id"
)
_CEILINGS_OF = _joined("ceilings", ", ".join(CEILING_COLUMNS), "tenant", "scope", "name")
_CEILINGS = _joined("ceilings", ", ".join(CEILING_COLUMNS), "tenant", "ceiling_id")
_HALTS = _joined("halts", ", ".join(HALT_COLUMNS), "tenant", "scope", "name")
_STANDING = (
    "SELECT owner, lease_until, closed, NULL FROM servers WHERE owner IN (SELECT value FROM json_each(?))"
    " UNION ALL SELECT NULL, NULL, NULL, value FROM json_each(?)"
    " WHERE EXISTS (SELECT 1 FROM ceilings WHERE tenant = value) OR EXISTS (SELECT 1 FROM halts WHERE tenant = value)"
)
"""Servers, then the tenants that have a ceiling or a halt: one question, because every batch asks both."""
_WINDOWS = _joined("ceiling_windows", ", ".join(WINDOW_COLUMNS), "ceiling_id", "name", "starts_at")
_NEW_WINDOW = (
    f"SELECT {WINDOW_SUMS.format(currency='?')} FROM spend WHERE tenant = ? AND dimension = ? AND name = ''"
    " AND value = ? AND quarter >= ? AND quarter < ?"
)
_FOREVER = 2**63 - 1


class SqliteBatch:
    """A connection that writes, and the calls it has loaded."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take a connection in autocommit mode."""
        self.connection = connection
        self.calls = LoadedCalls()

    def carry_out(self, steps: Generator[Wanted, Found, Changes], owner: int) -> Changes:
        """Answer the book-keeper until it has decided, and write that; the transaction is the caller's."""
        self.calls.begin()
        changes = self._decide(steps, owner)
        self._write(changes)
        return changes

    def _decide(self, steps: Generator[Wanted, Found, Changes], owner: int) -> Changes:
        try:
            found = self._load(next(steps), owner)
            while True:
                found = self._load(steps.send(found))
        except StopIteration as stop:
            changes: Changes = stop.value
            return changes

    def _all(self, statement: str, *parameters: Any) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()

    def _keyed(self, statement: str, keys: Iterable[Any]) -> list[Any]:
        asked = _json(list(keys)).decode()
        return [] if asked == "[]" else self._all(statement, asked)

    def _load(self, wanted: Wanted, own: int | None = None) -> Found:
        servers, governed = self._load_standing(wanted, own)
        calls = self._load_calls(wanted)
        return Found(
            calls=list(calls.values()),
            attempts=[
                row for call in calls.values() if call.owner in wanted.open_of for row in self._attempts(call)
            ],
            contents=self._load_contents(wanted.contents),
            servers=servers,
            governed=governed,
            ceilings=self._load_ceilings(wanted),
            halts=self._load_halts(wanted),
            windows=self._load_windows(wanted.windows),
        )

    def _load_standing(self, wanted: Wanted, own: int | None) -> tuple[list[ServerRow], frozenset[str]]:
        """Return servers and governed tenants; forget the calls that were kept when the own server is fenced off."""
        owners = wanted.owners if own is None else {own, *wanted.owners}
        if not owners and not wanted.tenants:
            return [], frozenset()
        records = self._all(_STANDING, _json(list(owners)).decode(), _json(list(wanted.tenants)).decode())
        servers = [
            ServerRow(owner=owner, lease_until=until, closed=bool(closed))
            for owner, until, closed, _ in records
            if owner is not None
        ]
        if own is not None and not any(row.owner == own and not row.closed for row in servers):
            self.calls.forget()
        return servers, frozenset(tenant for owner, _, _, tenant in records if owner is None)

    def _load_calls(self, wanted: Wanted) -> dict[GenerationKey, CallRow]:
        rows, missing = self.calls.known(wanted.generations)
        records = self._keyed(_BY_GENERATION, ((key.tenant, key.call_id, key.generation) for key in missing))
        records += newest(self._keyed(_BY_CALL, ((key.tenant, key.call_id) for key in wanted.calls)))
        effects = self._keyed(_BY_EFFECT, ((key.tenant, key.run_id, key.key) for key in wanted.effects))
        records += newest(effects)
        for owner in wanted.open_of:
            records += self._all(_OPEN_OF, owner, wanted.limit)
        if wanted.expired_at is not None:
            records += self._all(_EXPIRED, wanted.expired_at, wanted.limit)
        rows += map(self.calls.add, records)
        return {key_of(row): row for row in rows}

    def _attempts(self, call: CallRow) -> list[AttemptRow]:
        number = self.calls.id_of(key_of(call))
        return [attempt_of(call, *record) for record in self._all(_ATTEMPTS, number)]

    def _load_contents(self, keys: Iterable[GenerationKey]) -> list[ContentRow]:
        records = self._keyed(_CONTENTS, ((key.tenant, key.call_id, key.generation) for key in keys))
        return [
            ContentRow(
                tenant=tenant,
                call_id=call_id,
                generation=generation,
                outcome_json=outcome,
                provider_body=body,
            )
            for tenant, call_id, generation, outcome, body in records
        ]

    def _load_ceilings(self, wanted: Wanted) -> list[Ceiling]:
        records = self._keyed(_CEILINGS_OF, ((key.tenant, key.scope, key.name) for key in wanted.subjects))
        records += self._keyed(_CEILINGS, wanted.ceilings)
        return list({record[:2]: ceiling_of(record) for record in records}.values())

    def _load_halts(self, wanted: Wanted) -> list[Halt]:
        keys = ((key.tenant, key.scope, key.name) for key in wanted.subjects)
        return [halt_of(record) for record in self._keyed(_HALTS, keys)]

    def _load_windows(self, keys: Iterable[WindowKey]) -> list[CeilingWindowRow]:
        wanted = {(key.ceiling_id, key.name, key.starts_at): key for key in keys}
        records = self._keyed(_WINDOWS, wanted)
        rows = {record[:3]: window_of(record) for record in records}
        new = [self._new_window(key) for place, key in wanted.items() if place not in rows]
        return [*rows.values(), *new]

    def _new_window(self, key: WindowKey) -> CeilingWindowRow:
        dimension, value = spend_value(key)
        ends_at = _FOREVER if key.ends_at is None else key.ends_at
        currency = key.currency
        place = (currency, currency, currency, key.subject.tenant, dimension, value, key.starts_at, ends_at)
        sums = self.connection.execute(_NEW_WINDOW, place).fetchone()
        row = CeilingWindowRow(ceiling_id=key.ceiling_id, name=key.name, starts_at=key.starts_at)
        return fill_window(row, sums)

    def _write(self, changes: Changes) -> None:
        many = self.connection.executemany
        self._write_calls(changes)
        id_of = self.calls.id_of
        if changes.attempts:
            many(_SQL.put_attempt, [attempt_values(id_of(key_of(row)), row) for row in changes.attempts])
        if changes.contents:
            self._write_contents(changes)
        if changes.windows:
            many(_SQL.put_window, list(map(window_values, changes.windows)))
        if changes.spend:
            many(_SQL.add_spend, list(map(spend_values, changes.spend)))
        if changes.ceilings or changes.dropped_ceilings or changes.halts or changes.dropped_halts:
            self._write_orders(changes)
        if changes.closed_servers:
            many(_SQL.close_server, [(True, owner) for owner in changes.closed_servers])
        for index, erase in changes.erases:
            changes.replies[index] = self._erase(erase)

    def _write_calls(self, changes: Changes) -> None:
        many = self.connection.executemany
        if changes.inserted_calls:
            (last,) = self.connection.execute("SELECT COALESCE(MAX(id), 0) FROM calls").fetchone()
            for number, row in enumerate(changes.inserted_calls, last + 1):
                self.calls.insert(row, number)
            many(_SQL.insert_call, map(self._call_values, changes.inserted_calls))
        is_admitted = self.calls.is_admitted_again
        admitted = [row for row in changes.updated_calls if is_admitted(row)]
        moved = [row for row in changes.updated_calls if not is_admitted(row)]
        id_of = self.calls.id_of
        if admitted:
            values = [(*admission_values(row), *progress_values(row), id_of(key_of(row))) for row in admitted]
            many(_SQL.admit_call, values)
        if moved:
            many(_SQL.update_call, [(*progress_values(row), id_of(key_of(row))) for row in moved])

    def _call_values(self, row: CallRow) -> tuple[Any, ...]:
        return (
            self.calls.id_of(key_of(row)),
            *key_values(row),
            *admission_values(row),
            *progress_values(row),
        )

    def _write_contents(self, changes: Changes) -> None:
        written = {key_of(row): row for row in (*changes.inserted_calls, *changes.updated_calls)}
        values = []
        for content in changes.contents:
            key = key_of(content)
            expires_at = written[key].content_expires_at
            values.append((self.calls.id_of(key), expires_at, content.outcome_json, content.provider_body))
        self.connection.executemany(_SQL.put_content, values)

    def _write_orders(self, changes: Changes) -> None:
        many = self.connection.executemany
        many(_SQL.drop_ceiling, changes.dropped_ceilings)
        many(_SQL.drop_windows, [(ceiling_id,) for _, ceiling_id in changes.dropped_ceilings])
        many(_SQL.put_ceiling, list(map(ceiling_values, changes.ceilings)))
        many(_SQL.drop_halt, [(key.tenant, key.scope, key.name) for key in changes.dropped_halts])
        many(_SQL.put_halt, list(map(halt_values, changes.halts)))

    def _erase(self, erase: Erase) -> int:
        condition, parameters = erase_condition(erase, lambda _number: "?")
        ids = [number for (number,) in self._all(f"SELECT contents.call {condition}", *parameters)]
        gone = "expired" if erase.expired_at is not None else "erased"
        keys = [(number,) for number in ids]
        self.connection.executemany("DELETE FROM contents WHERE call = ?", keys)
        self.connection.executemany(
            f"UPDATE calls SET content_gone = '{gone}', content_expires_at = NULL WHERE id = ?", keys
        )
        return len(ids)
