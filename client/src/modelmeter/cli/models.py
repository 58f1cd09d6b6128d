"""`modelmeter models`: what a server serves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from modelmeter.enums import ModelTask
from modelmeter.errors import ModelmeterError

from . import bill
from .connection import connect, connection_options
from .documents import document
from .exits import exit_of
from .failures import show_refusal
from .render import show_rows, show_table

if TYPE_CHECKING:
    from pathlib import Path

    from modelmeter.results import Model


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@connection_options
def models(
    name: str | None,
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """List the models of a server, or tell all about the model NAME."""
    try:
        with connect(address, tls=tls, ca_file=ca_file) as client:
            if name is None:
                _show_list(client.models(timeout=timeout), as_json=as_json)
            else:
                _show_model(client.model(name, timeout=timeout), as_json=as_json)
    except ModelmeterError as error:
        if as_json:
            click.echo(document(error=error))
        else:
            show_refusal(error)
        sys.exit(exit_of(error))


def _show_list(found: list[Model], *, as_json: bool) -> None:
    if as_json:
        click.echo(document(models=found))
        return
    columns = ("model", "provider", "kind", "provider's model", "most output", "in / out per million")
    show_table(columns, map(_row, found))


def _row(model: Model) -> tuple[str, ...]:
    return (
        model.name,
        f"{len(model.targets)} targets" if model.targets else model.provider,
        model.provider_kind,
        model.provider_model,
        "" if model.task is ModelTask.EMBEDDING else str(model.max_output_tokens),
        bill.rates_of(model),
    )


def _show_model(model: Model, *, as_json: bool) -> None:
    if as_json:
        click.echo(document(model=model))
    else:
        show_rows(model.name, bill.of_model(model), stderr=False)
