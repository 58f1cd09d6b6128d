"""What the writer and the lease need of a database, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .replies import Admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from .batch import Changes, Found, Wanted
    from .commands import Reserve

    Book = Callable[[Sequence[Any], int], Generator[Wanted, Found, Changes]]
    """The book-keeper: commands and the own fencing token to what is wanted, and at last to the changes."""


class DatabaseAway(Exception):
    """The database cannot be used now; the message names the cause and no credentials. The batch was not written, or,
    if the connection broke in the commit, it may have been."""


class BatchConflict(Exception):
    """Another server was in the way; the same batch may be tried again at once."""


class SchemaMismatch(DatabaseAway):
    """The database's schema is one that this version does not know; the message names both."""


class Store(Protocol):
    """A database, used by one task at a time. Everything raises DatabaseAway; what is not its fault, itself."""

    async def connect(self) -> None:
        """Connect, or connect anew, and prove that writing works."""

    async def carry_out(self, commands: Sequence[Any], owner: int) -> Changes:
        """Carry out a batch in one transaction; durable on return. May raise BatchConflict."""

    async def find_reserved(self, order: Reserve) -> Admitted | None:
        """Return what exactly this order has reserved, if it did and nothing has happened since."""

    async def register(self, lease_until: int) -> int:
        """Return the fencing token of a new server."""

    async def renew(self, owner: int, now: int, lease_until: int) -> bool:
        """Prolong a lease; False when it has run out or was taken away."""

    async def fence_expired(self, now: int) -> list[int]:
        """Take the leases away that have run out, and return every such server that still has open calls."""

    async def close(self) -> None:
        """Disconnect."""


RESERVED_BY = (
    "SELECT call_id, generation, dispatch FROM calls WHERE tenant = {0} AND call_id = {1} AND owner = {2}"
    " AND reserved_at = {3} AND state = 1"
)
"""See `Store.find_reserved`; the places are parameters."""


def reserved_by(order: Reserve) -> tuple[str, str, int, int]:
    """Return the parameters of `RESERVED_BY`."""
    return (order.call.tenant, order.call.call_id, order.owner, order.at)


def admitted_as(record: Sequence[Any] | None) -> Admitted | None:
    """Return the answer that a record of `RESERVED_BY` stands for."""
    if record is None:
        return None
    call_id, generation, dispatch = record
    return Admitted(call_id=call_id, generation=generation, dispatch=dispatch, output_tokens=0)
