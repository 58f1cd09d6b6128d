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
    attempt_of,
    halt_of,
)
from .records import (
    call_keys,
    ceilings_of,
    contents_of,
    effect_keys,
    generation_keys,
    is_fenced_off,
    new_window,
    spend_of,
    standing_of,
    subject_keys,
    window_places,
    windows_of,
)
from .statements import WINDOW_SUMS, Statements, erase_condition
from .writes import writes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterable, Sequence

    from modelmeter_server.core.ceilings import Ceiling

    from .batch import Changes, GenerationKey, Wanted, WindowKey
    from .commands import Erase
    from .rows import AttemptRow, CallRow, CeilingWindowRow, ServerRow

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
            contents=contents_of(self._keyed(_CONTENTS, generation_keys(wanted.contents))),
            servers=servers,
            governed=governed,
            ceilings=self._load_ceilings(wanted),
            halts=list(map(halt_of, self._keyed(_HALTS, subject_keys(wanted)))),
            windows=self._load_windows(wanted.windows),
        )

    def _load_standing(self, wanted: Wanted, own: int | None) -> tuple[list[ServerRow], frozenset[str]]:
        """Return servers and governed tenants; forget the calls that were kept when the own server is fenced off."""
        owners = wanted.owners if own is None else {own, *wanted.owners}
        if not owners and not wanted.tenants:
            return [], frozenset()
        records = self._all(_STANDING, _json(list(owners)).decode(), _json(list(wanted.tenants)).decode())
        servers, governed = standing_of(records)
        if own is not None and is_fenced_off(own, servers):
            self.calls.forget()
        return servers, governed

    def _load_calls(self, wanted: Wanted) -> dict[GenerationKey, CallRow]:
        rows, missing = self.calls.known(wanted.generations)
        records = self._keyed(_BY_GENERATION, generation_keys(missing))
        records += newest(self._keyed(_BY_CALL, call_keys(wanted)))
        records += newest(self._keyed(_BY_EFFECT, effect_keys(wanted)))
        for owner in wanted.open_of:
            records += self._all(_OPEN_OF, owner, wanted.limit)
        if wanted.expired_at is not None:
            records += self._all(_EXPIRED, wanted.expired_at, wanted.limit)
        rows += map(self.calls.add, records)
        return {key_of(row): row for row in rows}

    def _attempts(self, call: CallRow) -> list[AttemptRow]:
        number = self.calls.id_of(key_of(call))
        return [attempt_of(call, *record) for record in self._all(_ATTEMPTS, number)]

    def _load_ceilings(self, wanted: Wanted) -> list[Ceiling]:
        records = self._keyed(_CEILINGS_OF, subject_keys(wanted))
        return ceilings_of([*records, *self._keyed(_CEILINGS, wanted.ceilings)])

    def _load_windows(self, keys: Iterable[WindowKey]) -> list[CeilingWindowRow]:
        wanted = window_places(keys)
        rows = windows_of(self._keyed(_WINDOWS, wanted))
        new = [self._new_window(key) for place, key in wanted.items() if place not in rows]
        return [*rows.values(), *new]

    def _new_window(self, key: WindowKey) -> CeilingWindowRow:
        currency = key.currency
        place = (currency, currency, currency, *spend_of(key))
        return new_window(key, self.connection.execute(_NEW_WINDOW, place).fetchone())

    def _write(self, changes: Changes) -> None:
        self._number(changes.inserted_calls)
        for statement, rows in writes(changes, self.calls, _SQL):
            self.connection.executemany(statement, rows)
        for index, erase in changes.erases:
            changes.replies[index] = self._erase(erase)

    def _number(self, inserted: Sequence[CallRow]) -> None:
        """Give new calls their ids: one connection writes, so that the next one is free."""
        if inserted:
            (last,) = self.connection.execute("SELECT COALESCE(MAX(id), 0) FROM calls").fetchone()
            for number, row in enumerate(inserted, last + 1):
                self.calls.insert(row, number)

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
