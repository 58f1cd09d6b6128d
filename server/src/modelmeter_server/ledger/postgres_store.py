"""The ledger on PostgreSQL, which several servers share: one connection that writes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from .migrations import LOCK, migrate
from .postgres_batch import PostgresBatch
from .stores import RESERVED_BY, BatchConflict, DatabaseAway, admitted_as, reserved_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sqlalchemy import Connection

    from .batch import Changes
    from .commands import Reserve
    from .replies import Admitted
    from .stores import Book

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""How long the server may be silent before the connection counts as lost."""

_SETTINGS = {
    "application_name": "modelmeter writer",
    "jit": "off",
    # Every statement goes by a key. Plans that were made while a table was empty must not read it whole later.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "lock_timeout": "5s",
    # A server that froze in the middle of a batch must not hold a tenant's lock for ever.
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read committed",
}

_CONFLICTS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class PostgresStore:
    """A `Store` on a PostgreSQL database.

    `process`: a batch returns before the server has it on its disk, so a crash of the whole database machine may lose
    the last moments. `power`: after.
    """

    def __init__(self, url: str, *, book: Book, power: bool) -> None:
        """Name the database by a `postgresql:` URL; nothing is opened yet."""
        self._url = url
        self._book = book
        self._settings = {**_SETTINGS, "synchronous_commit": "on" if power else "off"}
        self._batch: PostgresBatch | None = None

    async def connect(self) -> None:
        """See `Store`."""
        await self.close()
        async with self._away():
            await self._migrate()
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                server_settings=self._settings,
            )
            self._batch = PostgresBatch(connection)
            # Proves that it takes writes, which a standby does not.
            await connection.execute("BEGIN; UPDATE servers SET closed = closed WHERE owner = 0; ROLLBACK")

    async def carry_out(self, commands: Sequence[Any], owner: int) -> Changes:
        """See `Store`."""
        async with self._away():
            batch = self._open()
            try:
                changes = await batch.carry_out(self._book(commands, owner), owner)
            except BaseException:
                batch.calls.forget()
                await _roll_back(batch.connection)
                raise
            batch.calls.commit(changes, owner)
            return changes

    async def find_reserved(self, order: Reserve) -> Admitted | None:
        """See `Store`."""
        question = RESERVED_BY.format("$1", "$2", "$3", "$4")
        async with self._away():
            return admitted_as(await self._open().connection.fetchrow(question, *reserved_by(order)))

    async def register(self, lease_until: int) -> int:
        """See `Store`."""
        order = "INSERT INTO servers (lease_until, closed) VALUES ($1, false) RETURNING owner"
        async with self._away():
            return int(await self._open().connection.fetchval(order, lease_until))

    async def renew(self, owner: int, now: int, lease_until: int) -> bool:
        """See `Store`."""
        order = "UPDATE servers SET lease_until = $1 WHERE owner = $2 AND NOT closed AND lease_until > $3 RETURNING 1"
        async with self._away():
            batch = self._open()
            renewed = await batch.connection.fetchval(order, lease_until, owner, now) is not None
            if not renewed:
                batch.calls.forget()
            return renewed

    async def fence_expired(self, now: int) -> list[int]:
        """See `Store`."""
        # Waits for a batch of that server which is being written: each holds its row (see `PostgresBatch`).
        fence = "UPDATE servers SET closed = true WHERE NOT closed AND lease_until <= $1 RETURNING owner"
        left = (
            "SELECT owner FROM servers WHERE closed AND EXISTS"
            " (SELECT 1 FROM calls WHERE calls.owner = servers.owner AND calls.state <= 2)"
        )
        async with self._away():
            connection = self._open().connection
            fenced = await connection.fetch(fence, now)
            return sorted({record[0] for record in (*fenced, *await connection.fetch(left))})

    async def close(self) -> None:
        """See `Store`."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            try:
                await batch.connection.close(timeout=1)
            except _AWAY:
                batch.connection.terminate()

    def _open(self) -> PostgresBatch:
        if self._batch is None or self._batch.connection.is_closed():
            message = "the connection to the database is closed"
            raise DatabaseAway(message)
        return self._batch

    async def _migrate(self) -> None:
        async def connect() -> Any:
            return await asyncpg.connect(self._url, timeout=CONNECT_SECONDS)

        def migrate_locked(connection: Connection) -> None:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            migrate(connection)

        engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(migrate_locked)
        except DBAPIError as error:
            message = str(error.orig)
            raise DatabaseAway(message) from error

    @asynccontextmanager
    async def _away(self) -> AsyncIterator[None]:
        """Tell what is the database's fault from what is the batch's."""
        try:
            yield
        except _CONFLICTS as error:
            raise BatchConflict(str(error)) from error
        except asyncpg.DataError:
            raise  # of the client: a value that does not fit its column
        except _AWAY as error:
            if self._batch is not None:
                self._batch.connection.terminate()
            raise DatabaseAway(str(error) or type(error).__name__) from error


async def _roll_back(connection: Any) -> None:
    try:
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
    except _AWAY:
        connection.terminate()
