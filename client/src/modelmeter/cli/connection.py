"""The options by which every command of the client finds its server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from modelmeter import DEFAULT_TIMEOUT, AsyncClient, Client, tls_credentials

DEFAULT_ADDRESS = "127.0.0.1:50051"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Client = TypeVar("_Client", Client, AsyncClient)


def _named(_context: click.Context, _option: click.Parameter, address: str) -> str:
    if not address.strip():
        message = "it is empty; name a server as HOST:PORT"
        raise click.BadParameter(message)
    return address


def _kept(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep what an option says for `connect`, so that no command need pass it on."""
    context.meta[f"{__name__}.{option.name}"] = value


def _said(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"{__name__}.{name}")


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_CREDENTIALS = (
    click.option(
        "--token-file",
        type=_FILE,
        envvar="MODELMETER_TOKEN_FILE",
        show_envvar=True,
        expose_value=False,
        callback=_kept,
        help="File with the bearer token; or the token itself in MODELMETER_TOKEN.",
    ),
    click.option(
        "--allow-insecure-token",
        is_flag=True,
        expose_value=False,
        callback=_kept,
        help="Send the token without TLS to another machine: something else encrypts the way.",
    ),
    click.option(
        "--client-cert",
        type=_FILE,
        envvar="MODELMETER_CLIENT_CERT",
        show_envvar=True,
        expose_value=False,
        callback=_kept,
        help="PEM file of the client's own certificate; speaks TLS.",
    ),
    click.option(
        "--client-key",
        type=_FILE,
        envvar="MODELMETER_CLIENT_KEY",
        show_envvar=True,
        expose_value=False,
        callback=_kept,
        help="PEM file of its key.",
    ),
)


def add_tenant_option(command: click.Command) -> None:
    """Let a command, or those of a group, take `--tenant`; `named_tenant` knows what it said."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_tenant_option(inner)
        return
    option = click.Option(
        ["--tenant"],
        metavar="NAME",
        expose_value=False,
        callback=_kept,
        help="Whose, in place of your own tenant; for admins.",
    )
    command.params.insert(0, option)


def named_tenant() -> str:
    """Return what `--tenant` said; empty without it."""
    return _said("tenant") or ""


def connection_options(function: _Function) -> _Function:
    """Add `--address`, `--tls`, `--ca-file` and `--timeout` to a command, and what it proves who it is with.

    The latter are not passed to the command: `connect` knows them.
    """
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
            *_CREDENTIALS,
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


def connect_async(
    address: str, *, tls: bool, ca_file: Path | None, timeout: float | None = None
) -> AsyncClient:
    """Return a client for asyncio for the server that the options name; raises what `connect` does."""
    return _connected(AsyncClient, address, tls=tls, ca_file=ca_file, timeout=timeout)


def connect(address: str, *, tls: bool, ca_file: Path | None, timeout: float | None = None) -> Client:
    """Return a client for the server that the options name. Raises click.UsageError for options that do not fit."""
    return _connected(Client, address, tls=tls, ca_file=ca_file, timeout=timeout)


def _connected(
    kind: type[_Client], address: str, *, tls: bool, ca_file: Path | None, timeout: float | None
) -> _Client:
    certificate, key = _said("client_cert"), _said("client_key")
    secure = tls or ca_file is not None or certificate is not None
    try:
        return kind(
            address,
            credentials=tls_credentials(ca_file=ca_file, certificate=certificate, key=key)
            if secure
            else None,
            token=_token(),
            allow_insecure_token=bool(_said("allow_insecure_token")),
            timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _token() -> str | None:
    """Return the token of `--token-file`, else that of the environment; never an option: others see command lines."""
    file: Path | None = _said("token_file")
    text = os.environ.get("MODELMETER_TOKEN", "") if file is None else file.read_text(encoding="utf-8")
    return text.strip() or None
