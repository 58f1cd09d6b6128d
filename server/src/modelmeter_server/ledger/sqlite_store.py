"""The ledger in one SQLite file: one connection that writes, in one thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from .migrations import migrate
from .sqlite_batch import SqliteBatch
from .stores import RESERVED_BY, DatabaseAway, admitted_as, reserved_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .batch import Changes
    from .commands import Reserve
    from .replies import Admitted
    from .stores import Book

_Reply = TypeVar("_Reply")

BUSY_SECONDS = 2.0
"""How long a statement waits for another process that writes."""

_BUSY_PAUSE = 0.005

CACHE_KIB = 65_536
"""Pages of the indexes over which calls scatter; a million calls have about 90 MB of them, of which few are hot."""

_CHECKPOINT_PAGES = 16_000
"""64 MiB: index pages that many calls touch are copied into the file once for all of them."""
_PROBE_BYTES = 65_536
"""More than the free space inside pages that are there already."""


class SqliteStore:
    """A `Store` on a file in WAL mode.

    `process`: written to the operating system when a batch returns, so a kill of the process loses nothing. `power`:
    on the disk.
    """

    def __init__(self, path: Path, *, book: Book, power: bool, max_pages: int = 0) -> None:
        """Name the file; nothing is opened yet. `max_pages` bounds its size, 0 does not."""
        self.path = path
        self.max_pages = max_pages
        self._power = power
        self._book = book
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._batch: SqliteBatch | None = None
        self._file: tuple[int, int] | None = None

    async def connect(self) -> None:
        """See `Store`. After the first time the file must be there: a lost ledger is not replaced by an empty one."""
        await self._run(self._connect)

    async def carry_out(self, commands: Sequence[Any], owner: int) -> Changes:
        """See `Store`."""
        return await self._run(self._carry_out, commands, owner)

    async def find_reserved(self, order: Reserve) -> Admitted | None:
        """See `Store`."""
        return await self._run(self._find_reserved, order)

    async def register(self, lease_until: int) -> int:
        """See `Store`."""
        return await self._run(self._register, lease_until)

    async def renew(self, owner: int, now: int, lease_until: int) -> bool:
        """See `Store`."""
        return await self._run(self._renew, owner, now, lease_until)

    async def fence_expired(self, now: int) -> list[int]:
        """See `Store`."""
        return await self._run(self._fence_expired, now)

    async def close(self) -> None:
        """See `Store`."""
        await self._run(self._disconnect)
        self._thread.shutdown(wait=False)

    async def _run(self, act: Callable[..., _Reply], *args: Any) -> _Reply:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act, *args)

    def _connect(self) -> None:
        self._disconnect()
        with self._away():
            mode = "rwc" if self._file is None else "rw"
            self._require_same_file()
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
            self._batch = SqliteBatch(connection)
            self._prepare(connection)
            _migrate(connection)
            _require_room(connection)
            stat = self.path.stat()
            self._file = (stat.st_dev, stat.st_ino)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {'FULL' if self._power else 'OFF'}",
            f"cache_size = -{CACHE_KIB}",
            "temp_store = MEMORY",
            "secure_delete = FAST",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            *((f"max_page_count = {self.max_pages}",) if self.max_pages else ()),
        ):
            patiently(connection, f"PRAGMA {pragma}")

    def _require_same_file(self) -> None:
        """Writes to a file that was moved away or replaced would go to where nobody reads them."""
        if self._file is None:
            return
        try:
            stat = self.path.stat()
        except OSError as error:
            message = f"the file of the ledger is gone ({error.strerror})"
            raise DatabaseAway(message) from error
        if (stat.st_dev, stat.st_ino) != self._file:
            message = (
                "the file of the ledger was replaced by another one; start the server anew to use that one"
            )
            raise DatabaseAway(message)

    def _disconnect(self) -> None:
        if self._batch is not None:
            batch, self._batch = self._batch, None
            try:
                batch.connection.close()
            except sqlite3.Error:
                pass

    def _open(self) -> SqliteBatch:
        self._require_same_file()
        if self._batch is None:
            message = "the ledger is not connected"
            raise DatabaseAway(message)
        return self._batch

    def _carry_out(self, commands: Sequence[Any], owner: int) -> Changes:
        with self._away():
            batch = self._open()
            try:
                with _transaction(batch.connection):
                    changes = batch.carry_out(self._book(commands, owner), owner)
            except BaseException:
                batch.calls.forget()
                raise
            batch.calls.commit(changes, owner)
            return changes

    def _find_reserved(self, order: Reserve) -> Admitted | None:
        question = RESERVED_BY.format("?", "?", "?", "?")
        with self._away():
            return admitted_as(self._open().connection.execute(question, reserved_by(order)).fetchone())

    def _register(self, lease_until: int) -> int:
        with self._away():
            order = "INSERT INTO servers (lease_until, closed) VALUES (?, 0)"
            owner = self._open().connection.execute(order, (lease_until,)).lastrowid
        assert owner is not None
        return owner

    def _renew(self, owner: int, now: int, lease_until: int) -> bool:
        order = "UPDATE servers SET lease_until = ? WHERE owner = ? AND NOT closed AND lease_until > ?"
        with self._away():
            renewed = self._open().connection.execute(order, (lease_until, owner, now)).rowcount == 1
            if not renewed:
                self._open().calls.forget()
            return renewed

    def _fence_expired(self, now: int) -> list[int]:
        # Reading first: a write lock for nothing each few seconds would be in the way of batches of other processes.
        expired = "SELECT owner FROM servers WHERE NOT closed AND lease_until <= ?"
        left = (
            "SELECT owner FROM servers WHERE closed AND EXISTS"
            " (SELECT 1 FROM calls WHERE calls.owner = servers.owner AND calls.state <= 2)"
        )
        with self._away():
            connection = self._open().connection
            found = [owner for (owner,) in connection.execute(expired, (now,))]
            for owner in found:
                order = "UPDATE servers SET closed = 1 WHERE owner = ? AND lease_until <= ?"
                connection.execute(order, (owner, now))
            return sorted({*found, *(owner for (owner,) in connection.execute(left))})

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Tell what is the database's fault from what is the batch's."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            self._disconnect()
            raise DatabaseAway(str(error)) from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)):
                raise
            self._disconnect()  # the file is no database, or it is damaged
            raise DatabaseAway(str(error)) from error


def patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement for which SQLite itself does not wait.

    Going into WAL mode fails at once with SQLITE_BUSY where another process does the same: workers that open a new
    file together.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _require_room(connection: sqlite3.Connection) -> None:
    """Prove that there is room, not only that the lock can be had."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE room (filler)")
        connection.execute("INSERT INTO room VALUES (zeroblob(?))", (_PROBE_BYTES,))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date on the writer's own connection, under the write lock."""
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as migrating:
            migrate(migrating)
    except DBAPIError as error:
        raise error.orig or error from error
