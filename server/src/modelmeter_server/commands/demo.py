"""`modelmeter demo`: the endings that a call can have, on the embedded provider, through the real client."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
def demo() -> None:
    """Show how calls end and what is known of their cost; needs no key and no network.

    A server with the embedded replay provider is started on a free port of this machine and called through the Python
    client. The exit code is 0 if every call ended as promised.
    """
    from .scenes import show

    sys.exit(not asyncio.run(show()))
