"""What operators set: ceilings and halts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from modelmeter_server.core.ceilings import Ceiling

    from .books import Books
    from .commands import DropCeiling, DropHalt, PutCeiling, PutHalt


def put_ceiling(books: Books, order: PutCeiling) -> Ceiling:
    """Set a ceiling and return it; the one that it replaces keeps its id, its age and its windows.

    Soft limits that were told in a window are not told again for its new bound.
    """
    ceiling = order.ceiling
    for old in books.ceilings.get(ceiling.subject, ()):
        if (old.window, old.currency) == (ceiling.window, ceiling.currency):
            ceiling = msgspec.structs.replace(ceiling, ceiling_id=old.ceiling_id, created_at=old.created_at)
    books.put_ceiling(ceiling)
    return ceiling


def drop_ceiling(books: Books, order: DropCeiling) -> bool:
    """Delete a ceiling and return whether there was one."""
    return books.drop_ceiling(order.tenant, order.ceiling_id)


def put_halt(books: Books, order: PutHalt) -> bool:
    """Set a halt; one on the same subject is replaced."""
    books.put_halt(order.halt.subject, order.halt)
    return True


def drop_halt(books: Books, order: DropHalt) -> bool:
    """Clear a halt and return whether there was one."""
    return books.put_halt(order.subject, None)
