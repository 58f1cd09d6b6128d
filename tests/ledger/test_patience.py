"""Statements for which SQLite does not wait are tried again while another process has the file."""

from __future__ import annotations

import sqlite3
from typing import Any, cast

import pytest

from modelmeter_server.ledger import sqlite_store
from modelmeter_server.ledger.sqlite_store import patiently


class Occupied:
    """A connection to a file that others have for a while."""

    def __init__(self, times: int, code: int = sqlite3.SQLITE_BUSY) -> None:
        self.times = times
        self.code = code
        self.executed = 0

    def execute(self, _statement: str) -> None:
        self.executed += 1
        if self.executed <= self.times:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error


def executed(connection: Occupied) -> int:
    patiently(cast(Any, connection), "PRAGMA journal_mode = WAL")
    return connection.executed


def test_a_statement_is_tried_until_the_file_is_free():
    assert executed(Occupied(3)) == 4


def test_what_is_no_matter_of_time_is_told_at_once():
    connection = Occupied(3, sqlite3.SQLITE_READONLY)
    with pytest.raises(sqlite3.OperationalError):
        executed(connection)
    assert connection.executed == 1


def test_patience_has_an_end(monkeypatch):
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.02)
    with pytest.raises(sqlite3.OperationalError):
        executed(Occupied(10**9))
