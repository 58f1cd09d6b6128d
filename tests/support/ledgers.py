"""A real ledger in a file for tests, and one whose database can be taken away."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelmeter_server.core.ceilings import Ceiling, Subject
from modelmeter_server.core.tenants import DEFAULT_TENANT
from modelmeter_server.ledger import queries
from modelmeter_server.ledger.commands import Checkpoint, Dispatch, PutCeiling, Reserve, Settle
from modelmeter_server.ledger.ledger import Ledger, LedgerUnavailable
from modelmeter_server.ledger.questions import CallsAsked
from modelmeter_server.ledger.rows import CallRow
from modelmeter_server.ledger.storage import StorageSettings, StoredLedger, open_ledger


@asynccontextmanager
async def ledger_in(folder: Path, **settings: Any) -> AsyncIterator[StoredLedger]:
    """Open a ledger in a file of this folder."""
    ledger = await open_ledger(StorageSettings(url=f"sqlite:///{folder / 'ledger.db'}", **settings))
    try:
        yield ledger
    finally:
        await ledger.aclose()


async def rows_of(ledger: Ledger) -> list[CallRow]:
    """Return every call of the default tenant, the newest first."""
    return await ledger.read(lambda c: queries.list_calls(c, CallsAsked(tenant=DEFAULT_TENANT, limit=10_000)))


async def put_ceiling(ledger: Ledger, *, scope: str = "TENANT", name: str = "", **bounds: Any) -> Ceiling:
    """Set a ceiling of the default tenant."""
    subject = Subject(tenant=DEFAULT_TENANT, scope=scope, name=name)
    stored = await ledger.order(
        PutCeiling(ceiling=Ceiling(ceiling_id=str(uuid.uuid4()), subject=subject, **bounds))
    )
    assert isinstance(stored, Ceiling)
    return stored


@dataclass
class Interruptible:
    """A ledger whose database goes away and comes back on the test's word, and which remembers what it was told."""

    inner: Ledger
    is_up: bool = True
    heard: list[Any] = field(default_factory=list)
    waiting: list[Settle] = field(default_factory=list)
    goes_before: type | None = None
    """The database goes away when the first order of this kind comes."""

    @property
    def owner(self) -> int:
        return self.inner.owner

    async def reserve(self, order: Reserve) -> Any:
        self._hear(order)
        return await self.inner.reserve(order)

    async def dispatch(self, order: Dispatch) -> bool:
        self._hear(order)
        return await self.inner.dispatch(order)

    def checkpoint(self, order: Checkpoint) -> None:
        self.heard.append(order)
        if self.is_up:
            self.inner.checkpoint(order)

    async def settle(self, order: Settle) -> bool:
        try:
            self._hear(order)
        except LedgerUnavailable:
            self.waiting.append(order)
            return False
        return await self.inner.settle(order)

    async def order(self, command: Any) -> Any:
        self._hear(command)
        return await self.inner.order(command)

    async def read(self, query: Any) -> Any:
        return await self.inner.read(query)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def come_back(self) -> None:
        """Bring the database back and book what waited."""
        self.is_up, self.goes_before = True, None
        for order in self.waiting:
            assert await self.inner.settle(order)

    def orders(self, kind: type) -> list[Any]:
        """Return what was heard of one kind."""
        return [order for order in self.heard if isinstance(order, kind)]

    def _hear(self, order: Any) -> None:
        self.heard.append(order)
        if self.goes_before is not None and isinstance(order, self.goes_before):
            self.is_up = False
        if not self.is_up:
            message = "the database is away"
            raise LedgerUnavailable(message)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds that no event announces."""
    while not condition():  # noqa: ASYNC110 - what is awaited is a property, not an event
        await asyncio.sleep(0)


async def until_settled(ledger: Ledger, count: int = 1) -> list[CallRow]:
    """Wait until so many calls have ended; callers may have left before them."""
    rows: list[CallRow] = []
    while len(rows) < count:
        rows = [row for row in await rows_of(ledger) if row.ended_at is not None]
    return rows


def tables(folder: Path) -> sqlite3.Connection:
    """Connect to the file of a ledger past everything that guards it."""
    return sqlite3.connect(folder / "ledger.db")
