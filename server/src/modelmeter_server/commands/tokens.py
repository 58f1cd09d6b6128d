"""`modelmeter tokens`: the bearer tokens of callers."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modelmeter.cli.connection import connect, connection_options
from modelmeter.cli.spans import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from modelmeter import NewToken, Token

    from .token_desk import TokenDesk

    _Function = TypeVar("_Function", bound=Callable[..., Any])

UNCHANGED = 1
"""Exit code when nothing was done, because of what the file holds."""


def _place_options(function: _Function) -> _Function:
    path = click.Path(path_type=Path, dir_okay=False)
    named = click.option("--file", type=path, help="Work on this file of tokens; no server need run.")
    configured = click.option(
        "--config", type=path, help="Work on the file that this configuration names (identity.tokens_file)."
    )
    return named(configured(connection_options(function)))


def _lifetime_option(otherwise: str) -> Callable[[_Function], _Function]:
    return click.option(
        "--expires-in",
        "lifetime",
        type=Span(),
        metavar="TIME",
        help=f"Its life: 90d, 12h.  [default: {otherwise}]",
    )


@click.group()
def tokens() -> None:
    """Make, list and end the bearer tokens of callers.

    Through the server at --address, for admins; or, with --file or --config, on the file of tokens itself, which
    servers look at once a second. The exit code is that of `modelmeter call`, and 1 if the file was left as it was.
    """


@tokens.command()
@click.option("--tenant", required=True, help="The tenant that the token is to stand for.")
@click.option("--name", default="", help="What it is for.")
@_lifetime_option("no end")
@_place_options
def create(tenant: str, name: str, lifetime: timedelta | None, **place: Any) -> None:
    """Make a token and print it. It is shown this once: only its hash is kept."""
    with _desk(**place) as desk:
        _hand_out(desk.create(tenant, name, lifetime))


@tokens.command(name="list")
@click.option("--tenant", default="", help="Only those of this tenant.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@_place_options
def list_(tenant: str, as_json: bool, **place: Any) -> None:
    """List what is known of the tokens, the oldest first; never the tokens themselves."""
    from modelmeter.cli.render import show_table

    with _desk(**place) as desk:
        rows = [_row(each) for each in desk.tokens(tenant)]
    if as_json:
        click.echo(json.dumps({"tokens": rows}, indent=2))
    else:
        columns = ("token_id", "tenant", "name", "state", "created_at", "expires_at")
        show_table(columns, [tuple(row[column] or "" for column in columns) for row in rows])


@tokens.command()
@click.argument("token_id")
@click.option(
    "--overlap",
    type=Span(),
    default="0s",
    show_default=True,
    metavar="TIME",
    help="How long the old one still opens.",
)
@_lifetime_option("as long as the old one's; no end only if that has none")
@_place_options
def rotate(token_id: str, overlap: timedelta, lifetime: timedelta | None, **place: Any) -> None:
    """Make a successor of a token, print it, and end the old one.

    The successor lives from now on as long as the old one from its making to its end, unless --expires-in says
    otherwise. To put one without an end in the place of one that ends, create it and revoke the old one.
    """
    with _desk(**place) as desk:
        _hand_out(desk.rotate(_id(token_id), overlap, lifetime))


@tokens.command()
@click.argument("token_id")
@click.option("--in", "after", type=Span(), required=True, metavar="TIME", help="From now on: 7d, 0s.")
@_place_options
def expire(token_id: str, after: timedelta, **place: Any) -> None:
    """Set when a token ends."""
    with _desk(**place) as desk:
        token = desk.expire(_id(token_id), datetime.now(UTC) + after)
    click.echo(f"{token.token_id} of {token.tenant} ends {_written(token.expires_at)}")


@tokens.command()
@click.argument("token_id")
@_place_options
def revoke(token_id: str, **place: Any) -> None:
    """End a token now and for good."""
    with _desk(**place) as desk:
        token = desk.revoke(_id(token_id))
    click.echo(f"{token.token_id} of {token.tenant} is revoked")


@contextmanager
def _desk(
    file: Path | None,
    config: Path | None,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> Iterator[TokenDesk]:
    """Open the place that the options name; what it refuses is told, and ends the command."""
    from modelmeter import ModelmeterError
    from modelmeter.cli import bill
    from modelmeter.cli.exits import exit_of
    from modelmeter.cli.render import show_rows
    from modelmeter_server.config import ConfigError

    from .token_desk import FileDesk, ServerDesk, Unchanged, configured_desk

    if file is not None and config is not None:
        message = "give --file or --config"
        raise click.UsageError(message)
    try:
        if file is not None:
            yield FileDesk(file)
        elif config is not None:
            yield configured_desk(config)
        else:
            with connect(address, tls=tls, ca_file=ca_file, timeout=timeout) as client:
                yield ServerDesk(client)
    except (Unchanged, ConfigError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNCHANGED)
    except ModelmeterError as error:
        show_rows(f"{bill.title(error)}: {error.message}", [], error=True)
        sys.exit(exit_of(error))


def _id(text: str) -> str:
    from .token_desk import named_id

    return named_id(text)


def _hand_out(new: NewToken) -> None:
    """Print the token alone on stdout, for a pipe, and what it is on stderr."""
    end = "has no end" if new.token.expires_at is None else f"ends {_written(new.token.expires_at)}"
    click.echo(f"token {new.token.token_id} of {new.token.tenant} {end}; it is shown this once", err=True)
    if new.previous is not None:
        click.echo(f"token {new.previous.token_id} ends {_written(new.previous.expires_at)}", err=True)
    click.echo(new.secret)


def _row(token: Token) -> dict[str, str | None]:
    return {
        "token_id": token.token_id,
        "tenant": token.tenant,
        "name": token.name,
        "state": token.state.value,
        "created_at": _written(token.created_at),
        "expires_at": _written(token.expires_at),
        "revoked_at": _written(token.revoked_at),
    }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
