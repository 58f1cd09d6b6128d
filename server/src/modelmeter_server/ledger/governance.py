"""What operators set: ceilings and halts, and who may loosen what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core.ceilings import Scope

from .replies import Guarded

if TYPE_CHECKING:
    from modelmeter_server.core.ceilings import Ceiling

    from .books import Books
    from .commands import DropCeiling, DropHalt, PutCeiling, PutHalt

_OF_TENANTS: Final = (Scope.RUN.value,)
"""What a tenant may bound by itself: its runs. Its own ceiling and those of its models are an admin's to set."""


def put_ceiling(books: Books, order: PutCeiling) -> Ceiling | Guarded:
    """Set a ceiling and return it; the one that it replaces keeps its id, its age and its windows.

    Soft limits that were told in a window are not told again for its new bound.
    """
    ceiling = order.ceiling
    if not ceiling.by_admin and ceiling.subject.scope not in _OF_TENANTS:
        return Guarded()
    for old in books.ceilings.get(ceiling.subject, ()):
        if (old.window, old.currency) == (ceiling.window, ceiling.currency):
            if old.by_admin and not ceiling.by_admin:
                return Guarded()
            ceiling = msgspec.structs.replace(ceiling, ceiling_id=old.ceiling_id, created_at=old.created_at)
    books.put_ceiling(ceiling)
    return ceiling


def drop_ceiling(books: Books, order: DropCeiling) -> bool | Guarded:
    """Delete a ceiling and return whether there was one."""
    if not order.by_admin and _is_guarded(books, order):
        return Guarded()
    return books.drop_ceiling(order.tenant, order.ceiling_id)


def _is_guarded(books: Books, order: DropCeiling) -> bool:
    return any(
        ceiling.by_admin or subject.scope not in _OF_TENANTS
        for subject, ceilings in books.ceilings.items()
        for ceiling in ceilings
        if (subject.tenant, ceiling.ceiling_id) == (order.tenant, order.ceiling_id)
    )


def put_halt(books: Books, order: PutHalt) -> bool | Guarded:
    """Set a halt; one on the same subject is replaced."""
    old = books.halts.get(order.halt.subject)
    if old is not None and old.by_admin and not order.halt.by_admin:
        return Guarded()
    books.put_halt(order.halt.subject, order.halt)
    return True


def drop_halt(books: Books, order: DropHalt) -> bool | Guarded:
    """Clear a halt and return whether there was one."""
    old = books.halts.get(order.subject)
    if old is not None and old.by_admin and not order.by_admin:
        return Guarded()
    return books.put_halt(order.subject, None)
