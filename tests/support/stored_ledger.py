"""A database as the laws of the ledger want it: synchronous, empty for each example, and every row in sight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modelmeter_server.ledger.bookkeeper import keep_books
from modelmeter_server.ledger.packing import (
    CALL_SELECTION,
    SPEND_KEY,
    SPEND_SUMS,
    WINDOW_COLUMNS,
    attempt_of,
    call_of,
    window_of,
)
from modelmeter_server.ledger.postgres_store import PostgresStore
from modelmeter_server.ledger.rows import AttemptRow, CallRow, CeilingWindowRow, ContentRow, SpendRow
from modelmeter_server.ledger.sqlite_store import SqliteStore

_TABLES = ("calls", "attempts", "contents", "spend", "ceilings", "ceiling_windows", "halts", "servers")
_SPEND = (*SPEND_KEY, *SPEND_SUMS)


def _book(commands: Sequence[Any], owner: int) -> Any:
    return keep_books(commands, own=owner)


class StoredLedger:
    """A store that is driven step by step. One database serves all examples."""

    def __init__(self, url: str) -> None:
        """Open the database of a URL, and make its schema."""
        self._runner = asyncio.Runner()
        self._store: SqliteStore | PostgresStore
        if url.startswith("sqlite"):
            self._store = SqliteStore(Path(url.removeprefix("sqlite:///")), book=_book, power=False)
        else:
            self._store = PostgresStore(url, book=_book, power=False)
        self._run(self._store.connect())

    def emptied(self) -> StoredLedger:
        """Empty all tables, for the next example."""
        for table in _TABLES:
            self._rows(f"DELETE FROM {table}")
        assert self._store._batch is not None
        self._store._batch.calls.forget()
        return self

    def close(self) -> None:
        """Disconnect."""
        self._run(self._store.close())
        self._runner.close()

    def register(self, lease_until: int) -> int:
        """Add a server."""
        owner: int = self._run(self._store.register(lease_until))
        return owner

    def renew(self, owner: int, lease_until: int) -> None:
        """Prolong a lease."""
        self._rows(f"UPDATE servers SET lease_until = {lease_until:d} WHERE owner = {owner:d}")

    def apply(self, commands: list[Any], own: int) -> list[Any]:
        """Carry out one batch and return its replies."""
        replies: list[Any] = self._run(self._store.carry_out(commands, own)).replies
        return replies

    def calls(self) -> list[CallRow]:
        """Return all calls."""
        return [call_of(tuple(record)) for record in self._rows(f"SELECT {CALL_SELECTION} FROM calls")]

    def attempts(self) -> list[AttemptRow]:
        """Return all attempts."""
        calls = self._calls_by_id()
        records = self._rows("SELECT call, dispatch, number, detail FROM attempts")
        return [attempt_of(calls[call], *rest) for call, *rest in records]

    def contents(self) -> list[ContentRow]:
        """Return all contents."""
        calls = self._calls_by_id()
        return [
            ContentRow(
                tenant=calls[call].tenant,
                call_id=calls[call].call_id,
                generation=calls[call].generation,
                outcome_json=outcome,
                provider_body=body,
            )
            for call, outcome, body in self._rows("SELECT call, outcome, provider_body FROM contents")
        ]

    def spend(self) -> list[SpendRow]:
        """Return all sums."""
        records = self._rows(f"SELECT {', '.join(_SPEND)} FROM spend")
        return [SpendRow(**dict(zip(_SPEND, record, strict=True))) for record in records]

    def windows(self) -> list[CeilingWindowRow]:
        """Return all windows of ceilings that were written."""
        selection = ", ".join(WINDOW_COLUMNS)
        return [window_of(tuple(each)) for each in self._rows(f"SELECT {selection} FROM ceiling_windows")]

    def _calls_by_id(self) -> dict[int, CallRow]:
        records = self._rows(f"SELECT {CALL_SELECTION} FROM calls")
        return {record[0]: call_of(tuple(record)) for record in records}

    def _rows(self, statement: str) -> list[Any]:
        batch: Any = self._store._batch
        if isinstance(self._store, PostgresStore):
            return list(self._run(batch.connection.fetch(statement)))
        return list(batch.connection.execute(statement).fetchall())

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)
