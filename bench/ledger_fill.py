"""Fill a ledger with many calls at once, by copying one that was bought through the front door."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.ledger.packing import CALL_COLUMNS, SPEND_KEY, SPEND_SUMS

if TYPE_CHECKING:
    import sqlite3

_STEP = 1_000_000
"""Microseconds between two calls: a million of them are eleven and a half days."""


def fill(connection: sqlite3.Connection, calls: int) -> None:
    """Copy the last call of a SQLite ledger, with its attempt and its sums, into the time before it.

    Every call has its own random id; each tenth is of a run of its own.
    """
    first, reserved_at = connection.execute(
        "SELECT id, reserved_at FROM calls ORDER BY id DESC LIMIT 1"
    ).fetchone()
    copied = {
        "id": f"{first} + n",
        "call_id": "lower(hex(randomblob(16)))",
        "reserved_at": f"{reserved_at} - n * {_STEP}",
        "run_id": "CASE WHEN n % 10 = 0 THEN 'run-' || n ELSE '' END",
        "effect_key": "CASE WHEN n % 10 = 0 THEN 'step' ELSE '' END",
    }
    columns = ", ".join(copied.get(name, f"calls.{name}") for name in CALL_COLUMNS)
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {calls})"
    kept = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = [(name, sql) for name, sql in connection.execute(kept) if name.startswith("calls_")]
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    connection.execute(
        f"INSERT INTO calls ({', '.join(CALL_COLUMNS)}) {numbers} SELECT {columns} FROM numbers, calls"
        f" WHERE calls.id = {first}"
    )
    connection.execute(
        f"INSERT INTO attempts {numbers} SELECT {first} + n, dispatch, number, detail FROM numbers, attempts"
        f" WHERE call = {first}"
    )
    for _, sql in indexes:
        connection.execute(sql)
    _sum_up(connection)
    connection.execute("COMMIT")
    connection.execute("ANALYZE")


def _sum_up(connection: sqlite3.Connection) -> None:
    """Make the sums that the copies have, anew from the calls."""
    sums = "COUNT(*), " + ", ".join(
        f"SUM({'possibly_billed' if name == 'possibly_billed_calls' else name})" for name in SPEND_SUMS[1:]
    )
    quarter = "reserved_at - reserved_at % 900000000"
    connection.execute("DELETE FROM spend")
    for dimension, name, value, source in (
        ("TENANT", "''", "''", "calls"),
        ("MODEL", "''", "model", "calls"),
        ("RUN", "''", "run_id", "calls WHERE run_id <> ''"),
        ("KIND", "''", "CASE kind WHEN '' THEN 'ANSWERED' ELSE kind END", "calls"),
        ("LABEL", "label.key", "label.value", "calls, json_each(labels) AS label"),
    ):
        connection.execute(
            f"INSERT INTO spend ({', '.join((*SPEND_KEY, *SPEND_SUMS))})"
            f" SELECT tenant, '{dimension}', {name}, {value}, {quarter}, currency, {sums}"
            f" FROM {source} GROUP BY 1, 2, 3, 4, 5, 6"
        )
