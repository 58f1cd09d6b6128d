"""A database that fails under calls, seen from outside: they are refused before they are sent, and nothing is lost."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

import modelmeter
from modelmeter.enums import CallState
from modelmeter.errors import LedgerDownError
from modelmeter_server.app import App
from modelmeter_server.config import load
from modelmeter_server.ledger import migrations
from modelmeter_server.ledger.sqlite_store import SqliteStore
from modelmeter_server.ledger.storage import StorageSettings, open_ledger
from tests.e2e import hostile
from tests.support.command_line import run
from tests.support.fault_server import FaultServer, Reply
from tests.support.logged_server import logged_server
from tests.support.postgres import PostgresServer
from tests.support.server_process import configuration, server_process

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ANSWER = hostile.answer("anthropic", "Hello.")

Act = Callable[[], Awaitable[Any]]


@dataclass
class Front:
    """A server from outside, and the provider behind it, whose first answer stops half-way until it may go on."""

    address: str
    provider: FaultServer
    logged: Callable[[], list[dict[str, Any]]]
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        half = ANSWER.index(b"\n\n") + 2
        self.provider.script([Reply(chunks=[ANSWER[:half], self.go_on, ANSWER[half:]])])
        self.provider.default = Reply(chunks=[ANSWER])


@asynccontextmanager
async def watched(address: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Watch the health of a server; yields what waits for a state."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())

        async def until(status: int) -> None:
            while (await watch.read()).status != status:
                pass

        yield until
        watch.cancel()


async def asked(client: modelmeter.AsyncClient, *, stream: bool) -> None:
    """Make a call of either shape."""
    if not stream:
        await client.complete("m", "Hi")
        return
    async with client.stream("m", "Hi") as events:
        async for _ in events:
            pass


async def until_refused(client: modelmeter.AsyncClient) -> None:
    """Call until one is refused: what has failed shows with the first write that does not fit or get through."""
    while True:
        try:
            await client.complete("m", "Hi")
        except LedgerDownError:
            return


async def outlive(front: Front, fail: Act, mend: Act, said: str) -> None:
    """Take the database away with a call under way, and bring it back: nothing was sent unrecorded, nothing is lost."""
    call_id = str(uuid.uuid4())
    async with modelmeter.AsyncClient(front.address) as client, watched(front.address) as until:
        await until(SERVING)
        flying = asyncio.create_task(client.complete("m", "Hi", call_id=call_id))
        await front.provider.received(1)
        await fail()
        await until_refused(client)
        await until(NOT_SERVING)
        sent = len(front.provider.requests)
        for stream in (False, True):
            with pytest.raises(LedgerDownError):
                await asked(client, stream=stream)
        assert len(front.provider.requests) == sent
        front.go_on.set()
        answer = await flying
        assert (answer.text, answer.settled) == ("Hello.", False)
        await mend()
        await until(SERVING)
        assert (await client.complete("m", "Hi")).settled
        assert len(front.provider.requests) == sent + 1
        await require_booked(client, call_id, answer)
    causes = [each["cause"] for each in front.logged() if each["event"] == "ledger: the database is away"]
    assert any(said in cause for cause in causes), causes


async def require_booked(client: modelmeter.AsyncClient, call_id: str, answer: modelmeter.Completion) -> None:
    """Hold the ledger against the answer that was delivered without it; it is not bought again."""
    row = await client.ledger.get_call(call_id)
    assert (row.state, row.usage) == (CallState.SETTLED, answer.usage)
    again = await client.complete("m", "Hi", call_id=call_id)
    assert (again.replayed, again.settled, again.text) == (True, True, answer.text)
    spend = await client.ledger.spend()
    assert sum(each.held.tokens + each.unsettled.tokens for each in spend) == 0


@asynccontextmanager
async def process_on(folder: Path, ledger_url: str) -> AsyncIterator[tuple[Front, int]]:
    """Serve from a process; yields its id too."""
    async with (
        FaultServer() as provider,
        server_process(configuration(folder, provider.url, ledger_url, lease=10)) as server,
    ):
        yield Front(server.address, provider, server.logged), server.process.pid


@asynccontextmanager
async def served_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Front, SqliteStore]]:
    """Serve from this process, for what can only be done to a connection; yields the store too."""
    monkeypatch.delenv("MODELMETER_LEDGER_URL", raising=False)
    async with FaultServer() as provider:
        file = configuration(folder, provider.url, f"sqlite:///{folder}/ledger.db", lease=10)
        app = App(load(file, {"KEY": "sk-test"}))
        with structlog.testing.capture_logs() as logged:
            (address,) = await app.start()
            try:
                assert app._ledger is not None
                store = app._ledger._store
                assert isinstance(store, SqliteStore)
                yield Front(address, provider, lambda: [dict(each) for each in logged]), store
            finally:
                await app.stop(0)


async def on_connection(store: SqliteStore, statement: str) -> None:
    """Execute a statement on the connection that writes, between two batches."""

    def execute() -> list[Any]:
        assert store._batch is not None
        found = store._batch.connection.execute(statement).fetchall()
        return list(found)

    await store._run(execute)


async def test_a_full_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with served_here(tmp_path, monkeypatch) as (front, store):

        async def fill() -> None:
            # No database is smaller than what is in it: SQLite takes the present size.
            store.max_pages = 1
            await on_connection(store, "PRAGMA max_page_count = 1")

        async def empty() -> None:
            store.max_pages = 2**30

        await outlive(front, fill, empty, "full")


async def test_a_read_only_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    prepare = SqliteStore._prepare

    def prepare_to_read(store: SqliteStore, connection: sqlite3.Connection) -> None:
        prepare(store, connection)
        connection.execute("PRAGMA query_only = ON")

    async with served_here(tmp_path, monkeypatch) as (front, store):

        async def forbid() -> None:
            monkeypatch.setattr(SqliteStore, "_prepare", prepare_to_read)
            await on_connection(store, "PRAGMA query_only = ON")

        async def allow() -> None:
            monkeypatch.setattr(SqliteStore, "_prepare", prepare)

        await outlive(front, forbid, allow, "readonly")


several_waits = pytest.mark.timeout(90)  # for locks, for starts of processes


@several_waits
async def test_a_file_that_may_not_grow(tmp_path: Path):
    async with process_on(tmp_path, f"sqlite:///{tmp_path}/ledger.db") as (front, pid):
        # Less than the database has, and more than the log needs.
        async def limit() -> None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (32_768, resource.RLIM_INFINITY))

        async def lift() -> None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        await outlive(front, limit, lift, "disk I/O error")


@several_waits
async def test_a_locked_database(tmp_path: Path):
    async with process_on(tmp_path, f"sqlite:///{tmp_path}/ledger.db") as (front, _):
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)

        async def lock() -> None:
            # The server may be writing at this moment.
            other.execute("BEGIN IMMEDIATE")

        async def free() -> None:
            other.execute("ROLLBACK")

        try:
            await outlive(front, lock, free, "locked")
        finally:
            other.close()


@several_waits
async def test_a_postgresql_server_that_stops_and_comes_back(tmp_path: Path, own_postgres: PostgresServer):
    url = await asyncio.to_thread(own_postgres.create_database)
    async with process_on(tmp_path, url) as (front, _):

        async def stop() -> None:
            await asyncio.to_thread(own_postgres.stop)

        async def start() -> None:
            await asyncio.to_thread(own_postgres.start)

        await outlive(front, stop, start, "refused")


@several_waits
async def test_a_postgresql_database_that_takes_no_writes(tmp_path: Path, postgres_url: str):
    name = postgres_url.rsplit("/", 1)[1]

    async def set_read_only(value: str) -> None:
        administrator = await asyncpg.connect(postgres_url)
        # Its own session may be read-only by now; a database's settings are not rows.
        await administrator.execute("SET default_transaction_read_only = off")
        await administrator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
        await administrator.execute(others, name)
        await administrator.close()

    async with process_on(tmp_path, postgres_url) as (front, _):
        await outlive(front, lambda: set_read_only("on"), lambda: set_read_only("off"), "read-only")


@several_waits
async def test_a_postgresql_database_that_lets_nobody_in(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
):
    name = postgres_url.rsplit("/", 1)[1]
    async with process_on(tmp_path, postgres_url) as (front, _):
        administrator = await asyncpg.connect(postgres.url())

        async def shut() -> None:
            await administrator.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
            await administrator.execute(cut, name)
            async with modelmeter.AsyncClient(front.address) as client:
                with pytest.raises(LedgerDownError):
                    await client.ledger.spend()

        async def let_in() -> None:
            await administrator.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')

        await outlive(front, shut, let_in, "not currently accepting connections")
        await administrator.close()


@asynccontextmanager
async def migrated_by_another(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Hold the lock under which servers migrate; yields what cuts all connections and waits until one wants it."""
    other = await asyncpg.connect(url)
    await other.execute("SELECT pg_advisory_lock($1::bigint)", migrations.LOCK)

    async def until_wanted() -> None:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
        await other.execute(cut, url.rsplit("/", 1)[1])
        waiting = (
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE datname = $1 AND locktype = 'advisory' AND NOT granted"
        )
        while not await other.fetchval(waiting, url.rsplit("/", 1)[1]):
            pass

    try:
        yield until_wanted
    finally:
        await other.close()


@several_waits
async def test_a_shutdown_does_not_wait_for_the_migration_of_another_server(
    tmp_path: Path, postgres_url: str
):
    async with FaultServer() as provider:
        file = configuration(tmp_path, provider.url, postgres_url, lease=1)
        async with server_process(file) as server, migrated_by_another(postgres_url) as until_wanted:
            await until_wanted()
            server.process.terminate()
            async with asyncio.timeout(15):
                assert await server.process.wait() == 0


@several_waits
async def test_a_start_that_waits_for_the_migration_of_another_server_can_be_called_off(
    tmp_path: Path, postgres_url: str
):
    file = configuration(tmp_path, "http://127.0.0.1:9", postgres_url)
    async with (
        migrated_by_another(postgres_url) as until_wanted,
        logged_server("--config", str(file), env={"KEY": "sk-test"}, must_serve=False) as server,
    ):
        await until_wanted()
        async with asyncio.timeout(15):
            assert await server.end() == 0
    assert server.find("stopped before it served")


@several_waits
async def test_a_database_of_a_newer_version_is_refused_at_the_start_with_both_versions(
    tmp_path: Path, ledger_url: str
):
    await (await open_ledger(StorageSettings(url=ledger_url))).aclose()
    newer = "UPDATE alembic_version SET version_num = '9999'"
    if ledger_url.startswith("sqlite"):
        with sqlite3.connect(ledger_url.removeprefix("sqlite:///")) as database:
            database.execute(newer)
        database.close()
    else:
        administrator = await asyncpg.connect(ledger_url)
        await administrator.execute(newer)
        await administrator.close()
    file = configuration(tmp_path, "http://127.0.0.1:9", ledger_url)
    ended = await run("serve", "--config", str(file), env={"KEY": "sk-test", "MODELMETER_LEDGER_URL": ""})
    assert (ended.code, ended.out) == (1, "")
    assert f"schema 9999, and this version knows schemas up to {migrations.HEAD}" in ended.err
