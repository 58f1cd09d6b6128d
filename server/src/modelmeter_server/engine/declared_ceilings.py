"""Ceilings that the deployment declares: set at start, and again whenever what is declared changes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.commands import PutCeiling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelmeter_server.core.ceilings import Ceiling
    from modelmeter_server.ledger.ledger import Ledger


async def declare(ledger: Ledger, ceilings: Iterable[Ceiling]) -> None:
    """Set each ceiling; one that is set already stays as it is, with its id and what was counted against it.

    Ceilings that are declared no longer stay: only an operator deletes what bounds money. Raises LedgerUnavailable.
    """
    for ceiling in ceilings:
        made = msgspec.structs.replace(ceiling, ceiling_id=str(uuid.uuid4()), created_at=now(), by_admin=True)
        await ledger.order(PutCeiling(ceiling=made))
