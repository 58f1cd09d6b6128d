"""Servers whose lease has run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from ..rows import ServerRow
from ..tables import servers

if TYPE_CHECKING:
    from sqlalchemy import Connection


def list_expired_servers(connection: Connection, at: int) -> list[ServerRow]:
    """Return the servers whose lease ended at or before a moment and whose calls were not given up yet."""
    question = (
        select(servers.c.owner, servers.c.lease_until, servers.c.closed)
        .where(~servers.c.closed, servers.c.lease_until <= at)
        .order_by(servers.c.owner)
    )
    return [
        ServerRow(owner=owner, lease_until=lease_until, closed=closed)
        for owner, lease_until, closed in connection.execute(question)
    ]
