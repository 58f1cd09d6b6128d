"""The group of all commands: the client's own, and those that other distributions register.

Commands of the entry point group `modelmeter.commands` are loaded when they are asked for, so that
`modelmeter call` starts without the server's code.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from modelmeter._version import __version__

from .call import call
from .count import count
from .embed import embed
from .insights import insights
from .ledger import ledger
from .models import models
from .session import session
from .watch import watch

ENTRY_POINTS = "modelmeter.commands"
"""Each entry point names a `click.Command`."""

_SERVER_COMMANDS = ("config", "demo", "healthcheck", "serve", "tokens")


class Program(click.Group):
    """A group whose further commands come from entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, without loading any."""
        return sorted(
            {*super().list_commands(ctx), *(point.name for point in entry_points(group=ENTRY_POINTS))}
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of the client's own, or load the one that is registered under this name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for point in entry_points(group=ENTRY_POINTS, name=cmd_name):
            command = point.load()
            if isinstance(command, click.Command):
                return command
        if cmd_name in _SERVER_COMMANDS:
            ctx.fail(f'"{cmd_name}" comes with the server: pip install modelmeter-server')
        return None


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def program() -> None:
    """Call language models and be told what every call cost, also when it failed."""


program.add_command(call)
program.add_command(count)
program.add_command(embed)
program.add_command(insights)
program.add_command(ledger)
program.add_command(models)
program.add_command(watch)
program.add_command(session)
