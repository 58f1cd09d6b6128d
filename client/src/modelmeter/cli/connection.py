"""The options by which every command of the client finds its server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import grpc

from modelmeter import AsyncClient, Client

DEFAULT_ADDRESS = "127.0.0.1:50051"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _named(_context: click.Context, _option: click.Parameter, address: str) -> str:
    if not address.strip():
        message = "it is empty; name a server as HOST:PORT"
        raise click.BadParameter(message)
    return address


def connection_options(function: _Function) -> _Function:
    """Add `--address`, `--tls`, `--ca-file` and `--timeout` to a command."""
    for option in reversed(
        (
            click.option(
                "--address",
                envvar="MODELMETER_ADDRESS",
                default=DEFAULT_ADDRESS,
                show_default=True,
                show_envvar=True,
                metavar="HOST:PORT",
                callback=_named,
                help="The server.",
            ),
            click.option(
                "--tls",
                is_flag=True,
                envvar="MODELMETER_TLS",
                show_envvar=True,
                help="Speak TLS to the server.",
            ),
            click.option(
                "--ca-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                envvar="MODELMETER_CA_FILE",
                show_envvar=True,
                help="PEM file of the only authorities to trust; speaks TLS.",
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(min=0, min_open=True),
                metavar="SECONDS",
                help="Give up after this time.  [default: 600]",
            ),
        )
    ):
        function = option(function)
    return function


def connect_async(address: str, *, tls: bool, ca_file: Path | None) -> AsyncClient:
    """Return a client for asyncio for the server that the options name."""
    if not tls and ca_file is None:
        return AsyncClient(address)
    roots = None if ca_file is None else ca_file.read_bytes()
    return AsyncClient(address, credentials=grpc.ssl_channel_credentials(roots))


def connect(address: str, *, tls: bool, ca_file: Path | None) -> Client:
    """Return a client for the server that the options name."""
    if not tls and ca_file is None:
        return Client(address)
    roots = None if ca_file is None else ca_file.read_bytes()
    return Client(address, credentials=grpc.ssl_channel_credentials(roots))
