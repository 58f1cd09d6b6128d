"""`modelmeter serve`: run the server until a signal ends it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .config import MISTAKES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.config import Settings

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
@click.option(
    "--workers",
    type=int,
    metavar="NUMBER",
    help="Processes that share the addresses. Goes before the file and the environment.",
)
@click.option("--worker", "place", hidden=True, help="INDEX/COUNT: be one of several workers.")
@click.option("--lifeline", type=int, hidden=True, help="Descriptor that ends with the supervisor.")
def serve(
    file: Path | None, listen: Sequence[str], workers: int | None, place: str | None, lifeline: int | None
) -> None:
    """Run the server until SIGTERM or SIGINT; calls in flight may end first, a second signal cuts them.

    SIGHUP reads the configuration again, as does a change of one of its files. Calls are booked in the file
    modelmeter.db of the working directory unless the configuration names another ledger.
    The exit code is 0 after a signal, 1 if an address or the ledger cannot be opened or a worker had to be given up,
    and 2 for a configuration with mistakes, which are all told at once.
    """
    _hear_early_signals()
    from modelmeter_server.config import ConfigError, load
    from modelmeter_server.core.shares import Share

    share = None if place is None else Share(*map(int, place.split("/")))

    def read() -> Settings:
        return load(file, os.environ, listen=listen, workers=workers, share=share)

    try:
        settings = read()
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(MISTAKES)
    if share is None and settings.server.workers > 1:
        _supervise(settings, file, listen, workers)
    _run(settings, read, lifeline)


def _hear_early_signals() -> None:
    """Let SIGTERM end a start, and SIGHUP do no harm, until the server hears them itself.

    The first process of a container would not hear SIGTERM, and be killed when its grace is over; any other one would
    be ended by SIGHUP. What is read afterwards is what SIGHUP asks for.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _run(settings: Settings, read: Callable[[], Settings], lifeline: int | None) -> None:
    from modelmeter_server import serving
    from modelmeter_server.ledger.ledger import LedgerUnavailable
    from modelmeter_server.ledger.stores import SchemaMismatch
    from modelmeter_server.rpc.listen import ListenError

    from .ports import check_free

    try:
        own = settings.server.private_listen
        for address in (*settings.server.listen, *([own] if own else [])) if lifeline is None else ():
            check_free(address)
        announce = _announce if lifeline is None else _announcing(lifeline)
        serving.run(settings, announce=announce, read_again=read, lifeline=lifeline)
    except ListenError as error:
        click.echo(str(error), err=True)
        sys.exit(CANNOT_LISTEN)
    except (LedgerUnavailable, SchemaMismatch) as error:
        click.echo(str(error), err=True)
        sys.exit(CANNOT_LISTEN)


def _announce(addresses: Sequence[str]) -> None:
    click.echo(f"modelmeter is listening on {', '.join(addresses)}")


def _announcing(lifeline: int) -> Callable[[Sequence[str]], None]:
    """Return what tells the supervisor that this worker serves."""

    def tell(addresses: Sequence[str]) -> None:
        try:
            os.write(lifeline, json.dumps(list(addresses)).encode())
        except OSError:  # it is gone, and the lifeline says so as well
            return

    return tell


def _supervise(settings: Settings, file: Path | None, listen: Sequence[str], workers: int | None) -> None:
    """Become the supervisor: a program without gRPC, from which workers can be started at any time."""
    from modelmeter_server.rpc.listen import ListenError
    from modelmeter_server.supervisor import Order, command_line

    from .ports import reserve

    try:
        reserved = [reserve(address) for address in settings.server.listen]
    except ListenError as error:
        click.echo(str(error), err=True)
        sys.exit(CANNOT_LISTEN)
    # A port of 0 must be the same one for all; otherwise workers read where to listen as this process did.
    told = listen if tuple(reserved) == settings.server.listen else reserved
    options = [*(("--config", str(file)) if file is not None else ()), *_each("--listen", told)]
    options += [] if workers is None else ["--workers", str(workers)]
    order = Order(
        workers=settings.server.workers,
        command=(sys.executable, "-P", "-m", "modelmeter.cli", "serve", *options),
        log_level=settings.server.log_level,
    )
    arguments = command_line(order)
    sys.stdout.flush()
    os.execv(arguments[0], arguments)  # noqa: S606 - the interpreter that runs already, and no shell


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
