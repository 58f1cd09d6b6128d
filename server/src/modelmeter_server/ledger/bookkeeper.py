"""The book-keeper: turns a batch of commands into changed rows and replies. Pure: no I/O, and time is in the commands.

A batch is worked on in segments. Commands on calls share one; a command that sets a ceiling or a halt is one by itself,
because it changes what has to be loaded for those behind it. A segment loads in at most three rounds: the rows it
names; then, for tenants with ceilings or halts alone, those of its subjects, and contents to replay; then the windows
of the ceilings. Most segments need the first round only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .admission import reserve
from .books import Books, copy_of
from .commands import (
    Again,
    Checkpoint,
    CloseServer,
    Command,
    Dispatch,
    DropCeiling,
    DropHalt,
    Erase,
    PutCeiling,
    PutHalt,
    Reconcile,
    Resend,
    Reserve,
    Settle,
    WriteOff,
)
from .governance import drop_ceiling, drop_halt, put_ceiling, put_halt
from .needs import Needs
from .progress import checkpoint, dispatch, raise_figures, settle
from .recovery import close_server, write_off_expired
from .replies import Reconciled
from .trying import again, resend

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from .batch import Changes, Found, Wanted

EXPIRE_AFTER = 24 * 3600 * 1_000_000
"""How long a bound waits for a truer figure, in microseconds, unless configured."""
LIMIT = 500
"""Calls that a `CloseServer` or a `WriteOff` handles at a time."""

_ALONE = (PutCeiling, DropCeiling, PutHalt, DropHalt)


def keep_books(
    commands: Sequence[Command],
    *,
    own: int,
    expire_after: int = EXPIRE_AFTER,
    again: bool = False,
    limit: int = LIMIT,
) -> Generator[Wanted, Found, Changes]:
    """Carry out a batch, in order; see `ledger.batch` for how to drive it.

    `own` is the owner token of the server whose writer this is. `again` says that the same batch was tried before and
    that nobody knows whether it was committed: a `Reserve` that finds its own row is then admitted, not told to wait.
    """
    keeper = _Keeper(own, expire_after, limit, again=again)
    replies: list[Any] = []
    for segment in _segments(commands):
        yield from keeper.needs.load(segment, limit)
        replies += [keeper.carry_out(index, command) for index, command in enumerate(segment, len(replies))]
    return keeper.books.changes(replies)


def _segments(commands: Sequence[Command]) -> list[list[Command]]:
    """Return the commands in the groups that can load together.

    A call or an effect that is reserved twice begins a new one: what its second reservation needs depends on the first.
    """
    segments: list[list[Command]] = [[]]
    reserved: set[Any] = set()
    for command in commands:
        if isinstance(command, _ALONE):
            segments += [[command], []]
            reserved.clear()
            continue
        if isinstance(command, Reserve):
            names = _names(command)
            if not reserved.isdisjoint(names):
                segments.append([])
                reserved.clear()
            reserved.update(names)
        segments[-1].append(command)
    return [segment for segment in segments if segment]


def _names(order: Reserve) -> tuple[Any, ...]:
    effect = order.effect
    return (order.call,) if effect is None else (order.call, (order.call.tenant, effect.run_id, effect.key))


class _Keeper:
    def __init__(self, own: int, expire_after: int, limit: int, *, again: bool) -> None:
        self.books = Books()
        self.needs = Needs(self.books)
        self._own = own
        self._expire_after = expire_after
        self._limit = limit
        self._again = again

    def carry_out(self, index: int, command: Command) -> Any:
        """Carry out one command and return its reply."""
        if isinstance(command, Erase):
            self.books.erase(index, command)
            return 0  # the store counts
        return _HANDLERS[type(command)](self, command)

    def reserve(self, order: Reserve) -> Any:
        return reserve(self.books, order, again=self._again)

    def dispatch(self, order: Dispatch) -> Any:
        return dispatch(self.books, order)

    def resend(self, order: Resend) -> Any:
        return resend(self.books, order)

    def again(self, order: Again) -> Any:
        return again(self.books, order)

    def checkpoint(self, order: Checkpoint) -> Any:
        return checkpoint(self.books, order)

    def settle(self, order: Settle) -> Any:
        return settle(self.books, order, self._expire_after)

    def reconcile(self, order: Reconcile) -> Any:
        tenant, call_id = order.call.tenant, order.call.call_id
        if order.generation is None:
            row = self.books.newest.get((tenant, call_id))
        else:
            row = self.books.rows.get((tenant, call_id, order.generation))
        if row is None:
            return None
        raised = raise_figures(self.books, row, order.figures, by=order.by, reason=order.reason)
        return Reconciled(row=copy_of(row), raised=raised)

    def close_server(self, order: CloseServer) -> Any:
        return close_server(
            self.books, order, own=self._own, expire_after=self._expire_after, limit=self._limit
        )

    def write_off(self, order: WriteOff) -> Any:
        return write_off_expired(self.books, order.at, self._limit)

    def put_ceiling(self, order: PutCeiling) -> Any:
        return put_ceiling(self.books, order)

    def drop_ceiling(self, order: DropCeiling) -> Any:
        return drop_ceiling(self.books, order)

    def put_halt(self, order: PutHalt) -> Any:
        return put_halt(self.books, order)

    def drop_halt(self, order: DropHalt) -> Any:
        return drop_halt(self.books, order)


_HANDLERS: dict[type, Callable[[_Keeper, Any], Any]] = {
    Reserve: _Keeper.reserve,
    Dispatch: _Keeper.dispatch,
    Resend: _Keeper.resend,
    Again: _Keeper.again,
    Checkpoint: _Keeper.checkpoint,
    Settle: _Keeper.settle,
    Reconcile: _Keeper.reconcile,
    CloseServer: _Keeper.close_server,
    WriteOff: _Keeper.write_off,
    PutCeiling: _Keeper.put_ceiling,
    DropCeiling: _Keeper.drop_ceiling,
    PutHalt: _Keeper.put_halt,
    DropHalt: _Keeper.drop_halt,
}
