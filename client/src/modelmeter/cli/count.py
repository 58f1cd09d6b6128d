"""`modelmeter count`: how many input tokens a call would have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelmeter.errors import ModelmeterError

from . import bill
from .call import MODES
from .connection import connect, connection_options
from .documents import document
from .exits import exit_of
from .failures import show_failure
from .inputs import read_json, read_prompt, read_tools, sensitivity_option
from .render import show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--system", help="Instructions for the model.")
@click.option("--schema", metavar="FILE|JSON", help="JSON Schema that the answer would have to satisfy.")
@click.option(
    "--schema-mode",
    type=click.Choice(MODES, case_sensitive=False),
    help="How the answer would be held to the schema.  [default: as configured for the model]",
)
@click.option(
    "--tool",
    "tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="JSON file with a tool to offer. May be repeated.",
)
@sensitivity_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: the count or the error.")
@connection_options
def count(
    model: str,
    prompt: str | None,
    system: str | None,
    schema: str | None,
    schema_mode: str | None,
    tools: Sequence[Path],
    sensitivity: str | None,
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Count the input tokens of PROMPT for MODEL without asking it.

    The figure goes to standard output; that it is an estimate, and how large it can be, to standard error. Counting is
    free. The exit codes are those of `modelmeter call`.
    """
    try:
        with connect(address, tls=tls, ca_file=ca_file) as client:
            counted = client.count_tokens(
                model,
                read_prompt(prompt),
                system=system,
                schema=read_json(schema, "--schema"),
                schema_mode=schema_mode,
                tools=read_tools(tools),
                sensitivity=sensitivity,
                timeout=timeout,
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except ModelmeterError as error:
        show_failure(error, as_json=as_json)
        sys.exit(exit_of(error))
    if as_json:
        click.echo(document(count=counted))
        return
    click.echo(str(counted.input_tokens))
    if counted.is_estimate:
        show_rows("an estimate: the provider has no endpoint that counts", bill.of_estimate(counted))
