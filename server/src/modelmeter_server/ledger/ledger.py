"""What the engine and the services need of a ledger. `ledger.storage` opens one for a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from .commands import Checkpoint, Dispatch, Reserve, Settle
    from .replies import ReserveReply

_Found = TypeVar("_Found")


class LedgerUnavailable(Exception):
    """The ledger's database cannot be read or written now; the message names the cause and no credentials."""


class Ledger(Protocol):
    """A ledger that is open. All calls are for the event loop that opened it."""

    @property
    def owner(self) -> int:
        """Return the fencing token of this server; it changes when a lost lease is taken anew."""

    @property
    def is_up(self) -> bool:
        """Say whether the last contact with the database succeeded."""

    async def reserve(self, order: Reserve) -> ReserveReply:
        """Hold room for a call or answer for it. Durable on return. Raises LedgerUnavailable."""

    async def dispatch(self, order: Dispatch) -> bool:
        """Say that a request leaves now. Durable on return; False when it must not. Raises LedgerUnavailable."""

    def checkpoint(self, order: Checkpoint) -> None:
        """Note what a call has told; written soon, never waited for, never raises."""

    async def settle(self, order: Settle) -> bool:
        """Book an outcome. True: it is durable. False: the database is away; the order is kept and booked on return,
        as long as this process lives."""

    async def order(self, command: Any) -> Any:
        """Carry out any other command; see `commands` for its reply. Raises LedgerUnavailable."""

    async def read(self, query: Callable[[Connection], _Found]) -> _Found:
        """Run a read-only query on a connection of its own. Raises LedgerUnavailable."""

    async def aclose(self) -> None:
        """Write what waits, give the lease back and close."""
