"""`modelmeter config check`: every mistake of a configuration, before a server is started with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

MISTAKES = 2
"""Exit code of a configuration with mistakes, here and in `modelmeter serve`."""


@click.group()
def config() -> None:
    """Work with configuration files."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), envvar="MODELMETER_CONFIG")
@click.option("--no-keys", is_flag=True, help="Do not look for the providers' keys, which may be elsewhere.")
def check(file: Path, no_keys: bool) -> None:
    """Tell every mistake in FILE, each with its line and the way to mend it.

    The exit code is 0 without a mistake and 2 with any. Variables that override the file are checked too.
    """
    from modelmeter_server.config import ConfigError, load

    try:
        settings = load(file, os.environ, read_keys=not no_keys)
    except ConfigError as error:
        click.echo(str(error))
        count = len(error.mistakes)
        click.echo(f"{count} mistake{'s' if count > 1 else ''}", err=True)
        sys.exit(MISTAKES)
    names = [*(model.name for model in settings.models), *(route.name for route in settings.routes)]
    named = ", ".join(names) or "none by name"
    click.echo(f"{file} is correct; it serves on {', '.join(settings.server.listen)}: {named}")
    for model in settings.models:
        price = model.price
        if price is not None and price.source:
            bound = "; costs may be lower bounds" if price.apart else ""
            entry = f"{price.source_entry} of {price.source} {price.source_version}{bound}"
            click.echo(f"{model.name} is priced by {entry}")
