"""Open a ledger by its URL, and hold together what one consists of: a store, a writer, a lease and readers."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import structlog

from .bookkeeper import keep_books
from .lease import Lease
from .ledger import LedgerUnavailable
from .readers import PostgresReader, SqliteReader
from .sqlite_store import SqliteStore
from .stores import DatabaseAway, SchemaMismatch
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sqlalchemy import Connection

    from .batch import Changes, Found, Wanted
    from .commands import Checkpoint, Dispatch, Reserve, Settle
    from .readers import Reader
    from .replies import ReserveReply, SoftLimit
    from .stores import Book, Store

_Found = TypeVar("_Found")

DURABILITIES = ("process", "power")
"""What an acknowledged record outlives: a kill of the process, or a loss of power."""

CLOSING_SECONDS = 4.0
"""What the outcomes that still wait get to be booked at the end. A database that is silent, or a migration of another
server that this one waits for, would hold up the shutdown."""

PARTING_SECONDS = 1.0
"""What each last word to the database gets."""

_log = structlog.get_logger(module="ledger")


class LedgerUrlError(ValueError):
    """The URL names no ledger that can be opened; the message says what is wrong and quotes no credentials."""


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a ledger is opened."""

    url: str
    """`sqlite:///FILE` (relative; four slashes for an absolute path) or `postgresql://[USER[:PASSWORD]@]HOST/DATABASE`."""
    durability: str = "process"
    """One of `DURABILITIES`."""
    lease_seconds: float = 10.0
    expire_after: float = 86_400.0
    """Seconds until what is unsettled is written off."""
    settle_wait: float = 2.0
    """How long an outcome waits for the database before it is told as not settled."""


class StoredLedger:
    """A `Ledger` on a database."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        settings: StorageSettings,
        on_soft_limit: Callable[[SoftLimit], None] | None = None,
    ) -> None:
        """Put it together; `start` opens it."""
        self._store = store
        self._reader = reader
        self._place = _place(settings.url)
        self._settle_wait = settings.settle_wait
        self._writer = Writer(store, on_soft_limit=on_soft_limit)
        self._lease = Lease(self._writer, store, seconds=settings.lease_seconds)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, take a lease, and give up the calls of servers that are gone. Raises LedgerUnavailable."""
        try:
            await self._store.connect()
        except SchemaMismatch:
            raise
        except DatabaseAway as error:
            message = f"the ledger cannot be opened: {error} ({self._place}); see to [ledger] url"
            raise LedgerUnavailable(message) from error
        await self._lease.register()
        self._tasks = [asyncio.create_task(self._writer.run(), name="ledger writer")]
        await self._lease.close_expired()
        self._tasks.append(asyncio.create_task(self._lease.run(), name="ledger lease"))

    @property
    def owner(self) -> int:
        """See `Ledger`."""
        return self._writer.owner

    @property
    def is_up(self) -> bool:
        """See `Ledger`."""
        return self._writer.is_up

    async def until_up(self) -> None:
        """Wait until the database is back."""
        await self._writer.up.wait()

    @property
    def cause(self) -> str:
        """Say why the ledger is not up; empty when it is."""
        return self._writer.cause

    async def reserve(self, order: Reserve) -> ReserveReply:
        """See `Ledger`."""
        reply: ReserveReply = await self._writer.submit(order)
        return reply

    async def dispatch(self, order: Dispatch) -> bool:
        """See `Ledger`."""
        return bool(await self._writer.submit(order))

    def checkpoint(self, order: Checkpoint) -> None:
        """See `Ledger`."""
        self._writer.checkpoint(order)

    async def settle(self, order: Settle) -> bool:
        """See `Ledger`."""
        booked = self._writer.submit(order)
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        late = loop.call_later(self._settle_wait, _tell, told, False)
        booked.add_done_callback(lambda done: _tell(told, not done.cancelled() and done.exception() is None))
        try:
            return bool(await told)
        finally:
            late.cancel()

    async def order(self, command: Any) -> Any:
        """See `Ledger`."""
        return await self._writer.submit(command)

    async def read(self, query: Callable[[Connection], _Found]) -> _Found:
        """See `Ledger`."""
        try:
            return await self._reader.read(query)
        except DatabaseAway as error:
            raise LedgerUnavailable(str(error)) from error

    async def aclose(self) -> None:
        """See `Ledger`."""
        writer, *lease = self._tasks
        for task in lease:
            task.cancel()
        await asyncio.gather(*lease, return_exceptions=True)
        self._writer.finish()
        await asyncio.wait((writer,), timeout=CLOSING_SECONDS)
        if writer.done():
            await writer
            with contextlib.suppress(TimeoutError):  # it ends by itself
                async with asyncio.timeout(PARTING_SECONDS):
                    await self._lease.give_back()
        else:
            writer.cancel()
            await asyncio.wait((writer,), timeout=PARTING_SECONDS)
        if self._writer.backlog:
            _log.error("ledger: outcomes could not be booked before the end", outcomes=self._writer.backlog)
        await self._store.close()
        await self._reader.close()


def _place(url: str) -> str:
    """Return where a ledger is and what that asks for, without who logs in."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return f"{_sqlite_path(rest)}, in a folder that must be there and writable"
    parts = urlsplit(url)
    return f"PostgreSQL at {parts.hostname or 'the local socket'}:{parts.port or 5432}, database {parts.path[1:]}"


def _tell(told: asyncio.Future[bool], answer: bool) -> None:
    if not told.done():
        told.set_result(answer)


async def open_ledger(
    settings: StorageSettings, *, on_soft_limit: Callable[[SoftLimit], None] | None = None
) -> StoredLedger:
    """Open a ledger, migrate its schema if it is an older one, and take a lease.

    Raises LedgerUrlError for a URL that names none, SchemaMismatch for a database of a newer version, LedgerUnavailable
    when the database cannot be used.
    """
    store, reader = _parts(settings)
    ledger = StoredLedger(store, reader, settings, on_soft_limit)
    try:
        await ledger.start()
    except (LedgerUnavailable, SchemaMismatch):
        await store.close()
        await reader.close()
        raise
    return ledger


def _parts(settings: StorageSettings) -> tuple[Store, Reader]:
    if settings.durability not in DURABILITIES:
        message = f"durability is one of {', '.join(DURABILITIES)}"
        raise LedgerUrlError(message)
    power = settings.durability == "power"
    expire_after = int(settings.expire_after * 1_000_000)

    def book(commands: Sequence[Any], owner: int) -> Generator[Wanted, Found, Changes]:
        return keep_books(commands, own=owner, expire_after=expire_after)

    scheme, _, rest = settings.url.partition(":")
    if scheme == "sqlite":
        path = _sqlite_path(rest)
        return SqliteStore(path, book=book, power=power), SqliteReader(path)
    if scheme in ("postgresql", "postgres"):
        return _postgres_parts(f"postgresql:{rest}", book, power=power)
    message = 'a ledger\'s URL begins with sqlite:/// or postgresql://, and "none" stands for no ledger'
    raise LedgerUrlError(message)


def _sqlite_path(rest: str) -> Path:
    if not rest.startswith("///") or len(rest) == 3:
        message = (
            "write sqlite:///FILE for a file beside the server, sqlite:////FOLDER/FILE for an absolute path"
        )
        raise LedgerUrlError(message)
    if rest == "///:memory:":
        message = "a ledger in memory would forget what was bought: name a file"
        raise LedgerUrlError(message)
    if "?" in rest:
        message = "the URL of a SQLite ledger takes no options after a question mark"
        raise LedgerUrlError(message)
    return Path(unquote(rest[3:]))


def _postgres_parts(url: str, book: Book, *, power: bool) -> tuple[Store, Reader]:
    try:
        parts = urlsplit(url)
        has_database = len(parts.path) > 1 and parts.port != 0
    except ValueError:
        message = "the URL of the ledger cannot be read: is its port a number, are signs in its password escaped (%40)?"
        raise LedgerUrlError(message) from None
    if not has_database:
        message = "name the database: postgresql://USER@HOST:PORT/DATABASE"
        raise LedgerUrlError(message)
    try:
        from .postgres_store import PostgresStore
    except ModuleNotFoundError as error:
        message = 'a ledger on PostgreSQL needs asyncpg: pip install "modelmeter-server[postgres]"'
        raise LedgerUrlError(message) from error
    return PostgresStore(url, book=book, power=power), PostgresReader(url)


def check_url(url: str) -> None:
    """Raise LedgerUrlError unless the URL names a ledger; nothing is opened."""
    _parts(StorageSettings(url=url))
