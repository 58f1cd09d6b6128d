"""Read-only connections beside the writer's, for queries of SQLAlchemy Core."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from .stores import DatabaseAway

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection

_Found = TypeVar("_Found")

READERS = 4
"""Connections that read at once; more queries wait."""

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
"""How long a query on PostgreSQL may take."""

_OPERATIONAL = ("08", "28", "3D", "53", "55", "57", "58")
"""Classes of SQLSTATE: connections, who may connect, databases that are not there or let nobody in, resources such as
disk and memory, an operator's or a time limit's word, and the system (PostgreSQL's manual, appendix A)."""


class Reader(Protocol):
    """Runs queries."""

    async def read(self, query: Callable[[Connection], _Found]) -> _Found:
        """Run a query in a read-only transaction, which sees one state of the ledger. Raises DatabaseAway."""

    async def close(self) -> None:
        """Disconnect."""


class SqliteReader:
    """Queries in threads."""

    def __init__(self, path: Path) -> None:
        """Read from a file that a store has made."""
        self._threads = ThreadPoolExecutor(READERS, "ledger-reader")
        uri = f"{path.absolute().as_uri()}?mode=rw"

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA query_only = ON")
            return connection

        self._engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=READERS)

        @event.listens_for(self._engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    async def read(self, query: Callable[[Connection], _Found]) -> _Found:
        """See `Reader`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, query)

    async def close(self) -> None:
        """See `Reader`."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._engine.dispose)
        self._threads.shutdown(wait=False)

    def _read(self, query: Callable[[Connection], _Found]) -> _Found:
        try:
            with self._engine.connect() as connection:
                return query(connection)
        except (OperationalError, sqlite3.OperationalError) as error:
            raise DatabaseAway(_cause(error)) from error


class PostgresReader:
    """Queries on asyncpg."""

    def __init__(self, url: str) -> None:
        """Read from the database of a `postgresql:` URL."""

        import asyncpg

        # Raised as they are while a connection is made; later SQLAlchemy wraps them.
        self._raw = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

        async def connect() -> Any:
            settings = {
                "default_transaction_read_only": "on",
                "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
                "application_name": "modelmeter reader",
            }
            return await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings=settings)

        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connect,
            pool_size=READERS,
            max_overflow=0,
            pool_pre_ping=True,
            isolation_level="REPEATABLE READ",
        )

    async def read(self, query: Callable[[Connection], _Found]) -> _Found:
        """See `Reader`."""
        try:
            async with self._engine.connect() as connection:
                return await connection.run_sync(query)
        except (OperationalError, InterfaceError, *self._raw) as error:
            raise DatabaseAway(_cause(error)) from error
        except DBAPIError as error:
            if not (error.connection_invalidated or _is_operational(error)):
                raise
            raise DatabaseAway(_cause(error)) from error

    async def close(self) -> None:
        """See `Reader`."""
        await self._engine.dispose()


def _is_operational(error: DBAPIError) -> bool:
    """Say whether the server and not the question is at fault, which SQLAlchemy does not tell of asyncpg's errors."""
    return str(getattr(error.orig, "sqlstate", None))[:2] in _OPERATIONAL


def _cause(error: BaseException) -> str:
    """Return the driver's own words: SQLAlchemy's add the statement and its parameters."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(origin) or type(origin).__name__
