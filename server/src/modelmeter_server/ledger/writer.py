"""The one that writes: takes commands in, carries them out in batches, keeps outcomes while the database is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from .commands import Again, CallRef, Checkpoint, Dispatch, Reserve, Settle
from .gathering import Gathering
from .ledger import LedgerUnavailable
from .replies import Admitted
from .stores import BatchConflict, DatabaseAway
from .unsent import never_sent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .batch import Changes
    from .replies import SoftLimit
    from .stores import Store

_Reply = TypeVar("_Reply")

MAX_BATCH = 256
"""Commands of one transaction: bounds how long its locks are held."""

PROBE_SECONDS = 0.5
"""How often a database that is away is tried."""

_CONFLICTS = 5
"""How often a batch that another server was in the way of is tried before the database counts as away."""

_log = structlog.get_logger(module="ledger")


class _Entry:
    """A command that waits, and whoever waits for its reply."""

    __slots__ = ("command", "reply")

    def __init__(self, command: Any, reply: asyncio.Future[Any] | None) -> None:
        self.command = command
        self.reply = reply

    def answer(self, reply: Any) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, error: Exception) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(error)

    @property
    def is_kept(self) -> bool:
        """Say whether it outlives a failure of the database: what was bought must be booked."""
        return isinstance(self.command, Settle)

    @property
    def is_wanted(self) -> bool:
        """Say whether anybody still waits; a settlement is wanted always."""
        return self.is_kept or self.reply is None or not self.reply.done()


class Writer:
    """Carry out commands on a store, in order, many in one transaction.

    What comes in while one batch is written is the next one, with what comes shortly after (see `Gathering`). All
    methods are for the event loop that runs `run`.
    """

    def __init__(self, store: Store, *, on_soft_limit: Callable[[SoftLimit], None] | None = None) -> None:
        """Write to a store that is connected."""
        self.owner = 0
        self.up = asyncio.Event()
        """Set while the last contact with the database succeeded."""
        self.up.set()
        self.cause = ""
        """Why the last contact with the database failed."""
        self._store = store
        self._on_soft_limit = on_soft_limit
        self._waiting: list[_Entry] = []
        self._checkpoints: dict[CallRef, Checkpoint] = {}
        self._gathering = Gathering()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._closing = False
        self._doubtful: list[Reserve] = []

    def submit(self, command: Any) -> asyncio.Future[Any]:
        """Take a command in. The future raises LedgerUnavailable when it was not carried out; a `Settle` never does,
        it waits for the database."""
        reply = asyncio.get_running_loop().create_future()
        entry = _Entry(command, reply)
        if entry.is_kept:
            # The outcome says all that a checkpoint could.
            self._checkpoints.pop(command.ref, None)
            self._gathering.ended(command.ref.call)
        elif not self.is_up or self._closing:
            reply.set_exception(LedgerUnavailable(self.cause or "the ledger is closing"))
            return reply
        elif isinstance(command, Dispatch):
            self._gathering.asked(command.ref.call)
        elif isinstance(command, Again):
            self._checkpoints.pop(command.ref, None)
        self._waiting.append(entry)
        self._wake.set()
        return reply

    def checkpoint(self, command: Checkpoint) -> None:
        """Take a checkpoint in; it replaces an older one of the same call that still waits."""
        self._checkpoints[command.ref] = command
        self._wake.set()

    async def exclusively(self, act: Callable[[], Awaitable[_Reply]]) -> _Reply:
        """Let the lease use the store between two batches. Raises LedgerUnavailable."""
        if not self.is_up:
            raise LedgerUnavailable(self.cause)
        async with self._turn:
            try:
                return await act()
            except DatabaseAway as error:
                self._note_away(str(error))
                raise LedgerUnavailable(str(error)) from error

    async def run(self) -> None:
        """Write until `finish`."""
        while not (self._closing and self._is_idle):
            if self.is_up:
                await self._wake.wait()
                self._wake.clear()
                await self._write_all()
            elif not await self._came_back() and self._closing:
                return

    def finish(self) -> None:
        """Let `run` end once nothing waits, or at the next probe that fails."""
        self._closing = True
        self._wake.set()
        self._gathering.stop()

    @property
    def is_up(self) -> bool:
        """Say whether the last contact with the database succeeded."""
        return self.up.is_set()

    @property
    def backlog(self) -> int:
        """Return how many outcomes wait to be booked."""
        return sum(entry.is_kept for entry in self._waiting)

    @property
    def _is_idle(self) -> bool:
        return not self._waiting and not self._checkpoints

    async def _write_all(self) -> None:
        while self.is_up and not self._is_idle:
            if not self._closing:
                await self._gathering.wait()
            # A turn for each batch: under steady load there is always a next one, and the lease must get its turn.
            async with self._turn:
                await self._write_next()

    async def _write_next(self) -> None:
        # The lease may have found the database away while this waited for its turn.
        if self.is_up and (batch := self._next_batch()):
            self._gathering.wrote(len(batch))
            await self._write(batch)

    def _next_batch(self) -> list[_Entry]:
        # Checkpoints first: the outcome of the same call, if it comes in the same batch, has removed its checkpoint.
        checkpoints = list(self._checkpoints.values())[:MAX_BATCH]
        for command in checkpoints:
            del self._checkpoints[command.ref]
        taken = self._waiting[:MAX_BATCH]
        del self._waiting[:MAX_BATCH]
        batch = [_Entry(command, None) for command in checkpoints]
        return batch + [entry for entry in taken if entry.is_wanted]

    async def _write(self, batch: list[_Entry]) -> None:
        try:
            changes = await self._carry_out([entry.command for entry in batch])
        except DatabaseAway as error:
            self._note_away(str(error))
            self._put_back(batch, str(error))
        except asyncio.CancelledError:
            self._put_back(batch, "the ledger is closing")
            raise
        except Exception as error:  # noqa: BLE001 (one command that cannot be written must not take others with it)
            await self._write_singly(batch, error)
        else:
            self._hand_out(batch, changes)

    async def _carry_out(self, commands: Sequence[Any]) -> Changes:
        conflict: BatchConflict | None = None
        for _ in range(_CONFLICTS):
            try:
                return await self._store.carry_out(commands, self.owner)
            except BatchConflict as error:
                conflict = error
        message = f"other servers were in the way {_CONFLICTS} times: {conflict}"
        raise DatabaseAway(message)

    async def _write_singly(self, batch: list[_Entry], error: Exception) -> None:
        if len(batch) > 1:
            for entry in batch:
                await self._write([entry])
            return
        command = type(batch[0].command).__name__
        _log.error("ledger: a command cannot be written", command=command, error=repr(error))
        batch[0].fail(LedgerUnavailable(f"the ledger cannot write this ({type(error).__name__})"))

    def _hand_out(self, batch: list[_Entry], changes: Changes) -> None:
        for entry, reply in zip(batch, changes.replies, strict=True):
            if isinstance(reply, Admitted):
                self._gathering.admitted(reply.ref(entry.command).call)
                if not entry.is_wanted:
                    self.submit(never_sent(entry.command, reply))
            elif isinstance(entry.command, Dispatch):
                self._gathering.answered(entry.command.ref.call)
            entry.answer(reply)
        if self._on_soft_limit is not None:
            for limit in changes.soft_limits:
                self._on_soft_limit(limit)

    def _put_back(self, batch: list[_Entry], cause: str) -> None:
        """Keep outcomes and checkpoints in their order; whoever waits for anything else is told at once."""
        kept = [entry for entry in batch if entry.is_kept]
        settled = {entry.command.ref for entry in (*kept, *self._waiting) if entry.is_kept}
        for entry in batch:
            if isinstance(entry.command, Checkpoint) and entry.command.ref not in settled:
                self._checkpoints.setdefault(entry.command.ref, entry.command)
        self._doubtful += [entry.command for entry in batch if isinstance(entry.command, Reserve)]
        lost = [entry for entry in (*batch, *self._waiting) if not entry.is_kept]
        self._waiting = kept + [entry for entry in self._waiting if entry.is_kept]
        for entry in lost:
            entry.fail(LedgerUnavailable(cause))

    def _note_away(self, cause: str) -> None:
        if self.is_up or cause != self.cause:
            _log.error("ledger: the database is away", cause=cause, backlog=self.backlog)
        self.up.clear()
        self.cause = cause
        self._put_back([], cause)
        self._wake.set()  # the lease may be the one that noticed, and what is submitted now wakes nobody

    async def _came_back(self) -> bool:
        await asyncio.sleep(PROBE_SECONDS)
        async with self._turn:
            try:
                await self._store.connect()
                await self._release_doubtful()
            except DatabaseAway as error:
                self._note_away(str(error))
                return False
        _log.warning("ledger: the database is back", backlog=self.backlog)
        self.up.set()
        self.cause = ""
        self._wake.set()
        return True

    async def _release_doubtful(self) -> None:
        """Give back what a batch may have reserved whose commit broke off: its callers were told that it had not."""
        for order in self._doubtful:
            admitted = await self._store.find_reserved(order)
            if admitted is not None:
                self.submit(never_sent(order, admitted))
        self._doubtful = []
