"""A database that is full, locked, read-only, moved away or stopped: nothing is sent unrecorded, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import asyncpg
import pytest
import structlog
from sqlalchemy import text

from modelmeter_server.core.journal import CallState
from modelmeter_server.ledger import queries, readers, sqlite_store, writer
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.ledger.questions import CallsAsked
from modelmeter_server.ledger.replies import Admitted
from modelmeter_server.ledger.sqlite_store import SqliteStore
from modelmeter_server.ledger.storage import StorageSettings, StoredLedger, open_ledger
from modelmeter_server.ledger.stores import DatabaseAway
from tests.support.ledger_orders import answering, dispatching, noting, ref_of, reserving, told
from tests.support.ledgers import until


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait for nothing longer than a test should."""
    monkeypatch.setattr(writer, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.05)


@pytest.fixture
async def ledger(tmp_path):
    """Return a ledger in a file."""
    opened = await open_ledger(StorageSettings(url=f"sqlite:///{tmp_path}/ledger.db", settle_wait=0.2))
    yield opened
    await opened.aclose()


def store_of(ledger: StoredLedger) -> SqliteStore:
    """Return the store below a ledger."""
    store = ledger._store
    assert isinstance(store, SqliteStore)
    return store


async def dispatched(ledger: StoredLedger, call_id: str = "flying"):
    """Return a call under way."""
    asked = reserving(call_id, owner=ledger.owner, at=now())
    admitted = await ledger.reserve(asked)
    assert isinstance(admitted, Admitted)
    ref = ref_of(asked, admitted)
    assert await ledger.dispatch(dispatching(ref, at=now()))
    return ref


async def require_refusal(ledger: StoredLedger, said: str, ref) -> None:
    """Try everything while the database is away."""
    for number in range(3):
        with pytest.raises(LedgerUnavailable, match=said):
            await ledger.reserve(reserving(f"refused-{number}", owner=ledger.owner, at=now()))
    with pytest.raises(LedgerUnavailable, match=said):
        await ledger.dispatch(dispatching(ref, at=now(), number=2))
    ledger.checkpoint(noting(ref, told(10, 1, "AT_LEAST"), at=now()))
    assert not await ledger.settle(answering(ref, told(10, 5), at=now()))
    assert not ledger.is_up


async def require_return(ledger: StoredLedger, *, held: int = 0) -> None:
    """Wait until the database is back: what was kept is booked, and calls go out again."""
    await ledger.until_up()
    ref = await dispatched(ledger, "next")
    assert await ledger.settle(answering(ref, told(10, 5), at=now()))
    rows = await ledger.read(lambda c: queries.list_calls(c, CallsAsked(tenant="acme", limit=100)))
    states = {row.call_id: (row.state, row.figures.output_tokens) for row in rows}
    assert states["flying"] == states["next"] == (CallState.SETTLED, 5)
    assert sum(row.booking.held_tokens for row in rows) == held


def causes(captured) -> list[tuple[str, str]]:
    """Return what the log said of the database."""
    return [(entry["log_level"], entry["event"].rsplit(" ", 1)[-1]) for entry in captured]


async def test_a_full_database_refuses_calls_until_there_is_room(ledger):
    ref = await dispatched(ledger)
    store = store_of(ledger)
    assert store._batch is not None
    with structlog.testing.capture_logs() as captured:
        (pages,) = store._batch.connection.execute("PRAGMA page_count").fetchone()
        store._batch.connection.execute(f"PRAGMA max_page_count = {pages}")
        store.max_pages = pages
        filling = 0
        while ledger.is_up:
            filling += 1
            order = reserving(f"fill-{filling}", owner=ledger.owner, at=now())
            await asyncio.gather(ledger.reserve(order), return_exceptions=True)
        await require_refusal(ledger, "full", ref)
        store.max_pages = 2**30
        await require_return(ledger, held=150 * (filling - 1))
    assert causes(captured) == [("error", "away"), ("warning", "back")]
    assert "full" in captured[0]["cause"]


async def test_a_locked_database_refuses_calls_until_it_is_free(ledger, tmp_path):
    ref = await dispatched(ledger)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    with structlog.testing.capture_logs() as captured:
        other.execute("BEGIN IMMEDIATE")
        await require_refusal(ledger, "locked", ref)
        other.execute("ROLLBACK")
        await require_return(ledger)
    other.close()
    assert causes(captured) == [("error", "away"), ("warning", "back")]


async def test_a_read_only_database_refuses_calls_until_it_may_be_written(ledger):
    ref = await dispatched(ledger)
    connection = store_of(ledger)._batch
    assert connection is not None
    with structlog.testing.capture_logs() as captured:
        connection.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerUnavailable, match="readonly"):
            await ledger.reserve(reserving("refused", owner=ledger.owner, at=now()))
        assert not ledger.is_up
        assert await ledger.settle(answering(ref, told(10, 5), at=now()))
        await require_return(ledger)
    assert causes(captured) == [("error", "away"), ("warning", "back")]


def move(old: Path, new: Path) -> None:
    """Move a database as an operator does: its log travels with it."""
    for suffix in ("", "-wal", "-shm"):
        if Path(f"{old}{suffix}").exists():
            os.rename(f"{old}{suffix}", f"{new}{suffix}")


async def test_a_file_that_was_moved_away_is_missed_and_not_replaced_by_an_empty_one(ledger, tmp_path):
    ref = await dispatched(ledger)
    file = tmp_path / "ledger.db"
    move(file, tmp_path / "moved.db")
    await require_refusal(ledger, "gone", ref)
    assert not file.exists()
    move(tmp_path / "moved.db", file)
    await require_return(ledger)


async def test_a_file_that_was_replaced_is_refused(ledger, tmp_path):
    ref = await dispatched(ledger)
    file = tmp_path / "ledger.db"
    os.rename(file, f"{file}.moved")
    file.write_bytes(b"")
    await require_refusal(ledger, "replaced by another", ref)
    os.rename(f"{file}.moved", file)
    await require_return(ledger)


async def test_a_file_that_is_no_database_is_refused_at_the_start(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"not a database, certainly" * 100)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        await open_ledger(StorageSettings(url=f"sqlite:///{tmp_path}/ledger.db"))


async def test_a_postgresql_server_that_stops_is_waited_for(own_postgres):
    url = await asyncio.to_thread(own_postgres.create_database)
    ledger = await open_ledger(StorageSettings(url=url, settle_wait=0.2))
    ref = await dispatched(ledger)
    with structlog.testing.capture_logs() as captured:
        await asyncio.to_thread(own_postgres.stop)
        assert not await ledger.settle(answering(ref, told(10, 5), at=now()))
        with pytest.raises(LedgerUnavailable):
            await ledger.reserve(reserving("refused", owner=ledger.owner, at=now()))
        with pytest.raises(LedgerUnavailable):
            await ledger.read(lambda c: queries.list_calls(c, CallsAsked(tenant="acme", limit=1)))
        await asyncio.to_thread(own_postgres.start)
        await require_return(ledger)
    await ledger.aclose()
    assert causes(captured)[-1] == ("warning", "back")
    assert len({entry.get("cause") for entry in captured}) == len(captured)


async def test_an_idle_ledger_comes_back_by_itself(postgres_url):
    """Its lease alone finds out that the database was away: no call is there to wake the writer."""
    ledger = await open_ledger(StorageSettings(url=postgres_url, lease_seconds=1))
    try:
        other = await asyncpg.connect(postgres_url)
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await other.close()
        await until(lambda: not ledger.is_up)
        async with asyncio.timeout(10):
            await ledger.until_up()
        await dispatched(ledger)
    finally:
        await ledger.aclose()


async def test_a_reservation_whose_commit_broke_off_holds_nothing_afterwards(ledger, monkeypatch):
    store = store_of(ledger)
    carry_out = store.carry_out

    async def break_off(commands, owner):
        await carry_out(commands, owner)
        monkeypatch.setattr(store, "carry_out", carry_out)
        message = "the connection broke in the commit"
        raise DatabaseAway(message)

    monkeypatch.setattr(store, "carry_out", break_off)
    with pytest.raises(LedgerUnavailable, match="broke in the commit"):
        await ledger.reserve(reserving("doubtful", owner=ledger.owner, at=now()))
    await ledger.until_up()
    again = await ledger.reserve(reserving("doubtful", owner=ledger.owner, at=now()))
    assert isinstance(again, Admitted)
    assert again.dispatch == 2


async def test_a_command_that_cannot_be_written_takes_no_other_with_it(ledger):
    bad = reserving("bad", owner=ledger.owner, at=2**70)
    good = reserving("good", owner=ledger.owner, at=now())
    replies = await asyncio.gather(ledger.reserve(bad), ledger.reserve(good), return_exceptions=True)
    assert isinstance(replies[0], LedgerUnavailable)
    assert isinstance(replies[1], Admitted)
    assert ledger.is_up


async def test_a_question_that_takes_postgresql_too_long_says_that_the_ledger_is_away(
    postgres_url, monkeypatch
):
    monkeypatch.setattr(readers, "STATEMENT_SECONDS", 0.05)
    ledger = await open_ledger(StorageSettings(url=postgres_url))
    try:
        with pytest.raises(LedgerUnavailable, match="timeout"):
            await ledger.read(lambda connection: connection.execute(text("SELECT pg_sleep(5)")))
    finally:
        await ledger.aclose()
