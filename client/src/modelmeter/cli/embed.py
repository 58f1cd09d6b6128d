"""`modelmeter embed`: texts as vectors, then the bill."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import EmbeddingInputType
from modelmeter.errors import ModelmeterError

from . import bill
from .connection import connect, connection_options
from .documents import document
from .exits import exit_of
from .failures import show_failure
from .inputs import read_json, read_labels, read_lines, sensitivity_option
from .purchase import purchase_options, read_purchase
from .render import show_rows

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

_TYPES = [each.value.lower() for each in EmbeddingInputType if each is not EmbeddingInputType.UNSPECIFIED]


@click.command()
@click.argument("model")
@click.argument("texts", nargs=-1)
@click.option("--dimensions", type=int, help="Components of each vector.  [default: the model's own]")
@click.option(
    "--input-type", type=click.Choice(_TYPES, case_sensitive=False), help="What the vectors are for."
)
@sensitivity_option
@click.option("--call-id", type=click.UUID, help="The id of the call.  [default: a new one]")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Label the call. May be repeated."
)
@click.option("--provider-options", metavar="FILE|JSON", help="Options in the provider's own format.")
@purchase_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: the vectors or the error.")
@connection_options
def embed(
    model: str,
    texts: Sequence[str],
    dimensions: int | None,
    input_type: str | None,
    sensitivity: str | None,
    call_id: uuid.UUID | None,
    labels: Sequence[str],
    provider_options: str | None,
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    **purchase: Any,
) -> None:
    """Turn TEXTS into vectors with the embedding model MODEL and show what it cost.

    Each vector is a line of JSON on standard output; the bill goes to standard error. Without TEXTS, each line of
    standard input is a text. The exit codes are those of `modelmeter call`.
    """
    try:
        with connect(address, tls=tls, ca_file=ca_file) as client:
            answer = client.embed(
                model,
                texts or read_lines(),
                dimensions=dimensions,
                input_type=input_type,
                sensitivity=sensitivity,
                call_id=call_id,
                labels=read_labels(labels),
                provider_options=read_json(provider_options, "--provider-options"),
                **read_purchase(**purchase),
                timeout=timeout,
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except ModelmeterError as error:
        show_failure(error, as_json=as_json)
        sys.exit(exit_of(error))
    if as_json:
        click.echo(document(embeddings=answer))
        return
    for vector in answer.vectors:
        click.echo(json.dumps(vector.tolist()))
    show_rows("embedded", bill.of_embeddings(answer))
