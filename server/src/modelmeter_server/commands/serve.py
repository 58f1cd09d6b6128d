"""`modelmeter serve`: run the server until a signal ends it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .config import MISTAKES

if TYPE_CHECKING:
    from modelmeter_server.config import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

CANNOT_LISTEN = 1
"""Exit code when an address cannot be listened on, or the ledger cannot be opened."""


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="MODELMETER_CONFIG",
    show_envvar=True,
    help="The configuration. Without one the embedded replay provider is served.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    multiple=True,
    help="host:port, [IPv6]:port or unix:/path; may be repeated. Goes before the file and the environment.",
)
def serve(file: Path | None, listen: Sequence[str]) -> None:
    """Run the server until SIGTERM or SIGINT; calls in flight may end first, a second signal cuts them.

    Calls are booked in the file modelmeter.db of the working directory unless the configuration names another ledger.
    The exit code is 0 after a signal, 1 if an address or the ledger cannot be opened, and 2 for a configuration with
    mistakes, which are all told at once.
    """
    from modelmeter_server.config import ConfigError, load

    try:
        settings = load(file, os.environ, listen=listen)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(MISTAKES)
    _run(settings)


def _run(settings: Settings) -> None:
    from modelmeter_server import app
    from modelmeter_server.ledger.ledger import LedgerUnavailable
    from modelmeter_server.ledger.stores import SchemaMismatch
    from modelmeter_server.rpc.listen import ListenError

    from .ports import check_free

    try:
        for address in settings.server.listen:
            check_free(address)
        app.run(settings, announce=_announce)
    except ListenError as error:
        click.echo(str(error), err=True)
        sys.exit(CANNOT_LISTEN)
    except (LedgerUnavailable, SchemaMismatch) as error:
        click.echo(str(error), err=True)
        sys.exit(CANNOT_LISTEN)


def _announce(addresses: Sequence[str]) -> None:
    click.echo(f"modelmeter is listening on {', '.join(addresses)}")
