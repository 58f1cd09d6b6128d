"""The lease of this server, and what is done for servers that lost theirs and for what has expired.

A server that holds a lease may dispatch. One that does not renew it in time is fenced off by whoever notices: its token
is closed first, so that it can dispatch no more, then its open calls are given up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from .clock import now
from .commands import CloseServer, Erase, WriteOff
from .ledger import LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stores import Store
    from .writer import Writer

SWEEP_SECONDS = 30.0
"""How often what has expired is written off and deleted."""

_MICROSECONDS = 1_000_000

_log = structlog.get_logger(module="ledger")


class Lease:
    """Keep this server's lease, and close others."""

    def __init__(
        self, writer: Writer, store: Store, *, seconds: float, clock: Callable[[], int] = now
    ) -> None:
        """A lease lasts `seconds`, at least 1, and is renewed every third of that."""
        self._writer = writer
        self._store = store
        self._length = int(seconds * _MICROSECONDS)
        self._clock = clock
        self._next_sweep = 0

    async def register(self) -> None:
        """Become a server of the ledger. Raises LedgerUnavailable."""
        until = self._clock() + self._length
        self._writer.owner = await self._writer.exclusively(lambda: self._store.register(until))

    async def run(self) -> None:
        """Renew until cancelled; an absent database is no reason to stop."""
        while True:
            await asyncio.sleep(self._length / 3 / _MICROSECONDS)
            await self.turn()

    async def turn(self) -> None:
        """Do once what `run` does again and again."""
        try:
            await self._renew()
            await self.close_expired()
            if self._clock() >= self._next_sweep:
                self._next_sweep = self._clock() + int(SWEEP_SECONDS * _MICROSECONDS)
                await self.sweep()
        except LedgerUnavailable:
            pass  # the writer has named the cause in the log and tries again

    async def give_back(self) -> None:
        """End the lease: whatever is still open under it is given up at once by the next server, not after a while."""
        owner = self._writer.owner
        now = self._clock()
        try:
            await self._writer.exclusively(lambda: self._store.renew(owner, now, now))
        except LedgerUnavailable:
            pass  # it ends by itself

    async def _renew(self) -> None:
        owner, now = self._writer.owner, self._clock()
        until = now + self._length
        if await self._writer.exclusively(lambda: self._store.renew(owner, now, until)):
            return
        await self.register()
        _log.error("ledger: the lease was lost and taken anew", lost=owner, owner=self._writer.owner)

    async def close_expired(self) -> None:
        """Give up the calls of every server whose lease has run out."""
        now = self._clock()
        for owner in await self._writer.exclusively(lambda: self._store.fence_expired(now)):
            closed = await self._repeat(lambda: CloseServer(owner=owner, at=self._clock()))  # noqa: B023
            if closed:
                _log.warning("ledger: calls of a server that is gone were closed", owner=owner, calls=closed)

    async def sweep(self) -> None:
        """Write off what nobody will tell any more, and delete contents that are kept no longer."""
        await self._repeat(lambda: WriteOff(at=self._clock()))
        await self._repeat(lambda: Erase(expired_at=self._clock()))

    async def _repeat(self, order: Callable[[], Any]) -> int:
        """Carry out an order that does some at a time, until none is left; return how many there were."""
        done = 0
        while some := await self._writer.submit(order()):
            done += some
        return done
