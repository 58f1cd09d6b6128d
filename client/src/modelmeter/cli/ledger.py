"""`modelmeter ledger`: what calls cost, what may still be spent, and how figures become true."""

from __future__ import annotations

import click

from .connection import add_tenant_option
from .ledger_calls import calls, erase, export, show
from .ledger_limits import ceilings, halt
from .ledger_reconcile import reconcile
from .ledger_spend import spend


@click.group()
def ledger() -> None:
    """Look into a server's ledger: calls, spend, ceilings, halts."""


for _command in (calls, show, export, erase, spend, ceilings, halt, reconcile):
    add_tenant_option(_command)
    ledger.add_command(_command)
