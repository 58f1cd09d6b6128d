"""`modelmeter demo`: how calls end on the embedded provider, and what the ledger has of them."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
def demo() -> None:
    """Show how calls end and what the ledger has of them; needs no key and no network.

    A server with the embedded replay provider and a SQLite ledger is started on a free port of this machine and called
    through the Python client. The exit code is 0 if every call ended and was booked as promised.
    """
    from .scenes import show

    sys.exit(not asyncio.run(show()))
