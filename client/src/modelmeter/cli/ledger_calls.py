"""`modelmeter ledger calls`, `show`, `export` and `erase`."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import CallState, ErrorKind, Operation, Reconciler

from . import bill
from .connection import connection_options
from .documents import document
from .inputs import read_labels
from .ledger_face import Moment, open_ledger, time_text
from .listings import format_option, show_list, write_list
from .render import show_rows

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from modelmeter import Amount, Ledger, LedgerCall

COLUMNS = (
    "call_id",
    "generation",
    "reserved_at",
    "state",
    "outcome",
    "model",
    "certainty",
    "input_tokens",
    "output_tokens",
    "unsettled_tokens",
    "cost",
    "currency",
)
"""Of a list of calls."""

EXPORT_COLUMNS = (
    "call_id",
    "generation",
    "operation",
    "reserved_at",
    "ended_at",
    "state",
    "outcome",
    "cause",
    "stage",
    "disposition",
    "model",
    "model_served",
    "target",
    "run_id",
    "effect_key",
    "labels",
    "certainty",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "settled_tokens",
    "held_tokens",
    "unsettled_tokens",
    "written_off_tokens",
    "settled",
    "held",
    "unsettled",
    "written_off",
    "booking_currency",
    "cost",
    "currency",
    "possibly_billed",
    "attempts_total",
    "provider_request_id",
    "provider_response_id",
    "reconciled_by",
)
"""Of an export: one line for each generation of a call."""

_STATES = [state.value.lower() for state in CallState if state is not CallState.UNSPECIFIED]
_OPERATIONS = [each.value.lower() for each in Operation if each is not Operation.UNSPECIFIED]
_KINDS = [kind.value.lower() for kind in ErrorKind if kind is not ErrorKind.UNSPECIFIED]


def call_row(call: LedgerCall) -> dict[str, Any]:
    """Return a call in the columns of lists and exports; money in units of its currency."""
    booking, usage = call.booking, call.usage
    return {
        "call_id": call.call_id,
        "generation": call.generation,
        "operation": call.operation,
        "reserved_at": time_text(call.reserved_at),
        "ended_at": time_text(call.ended_at),
        "state": call.state,
        "outcome": outcome(call),
        "cause": call.cause if call.kind is not ErrorKind.UNSPECIFIED else "",
        "stage": call.stage if call.kind is not ErrorKind.UNSPECIFIED else "",
        "disposition": call.disposition,
        "model": call.model_asked,
        "model_served": call.model_served,
        "target": call.target,
        "run_id": call.run_id,
        "effect_key": call.effect_key,
        "labels": dict(call.labels),
        "certainty": call.certainty,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "settled_tokens": booking.settled.tokens,
        "held_tokens": booking.held.tokens,
        "unsettled_tokens": booking.unsettled.tokens,
        "written_off_tokens": booking.written_off.tokens,
        "settled": _money(booking.settled, booking.currency),
        "held": _money(booking.held, booking.currency),
        "unsettled": _money(booking.unsettled, booking.currency),
        "written_off": _money(booking.written_off, booking.currency),
        "booking_currency": booking.currency,
        "cost": None if call.cost is None else bill.units(call.cost.nano_units).replace(",", ""),
        "currency": "" if call.cost is None else call.cost.currency,
        "possibly_billed": booking.possibly_billed,
        "attempts_total": call.attempts_total,
        "provider_request_id": call.provider_request_id,
        "provider_response_id": call.provider_response_id,
        "reconciled_by": call.reconciled_by if call.reconciled_by is not Reconciler.UNSPECIFIED else "",
    }


def _money(amount: Amount, currency: str) -> str | None:
    return bill.units(amount.nano_units).replace(",", "") if currency else None


def outcome(call: LedgerCall) -> str:
    """Return how a call ended, in one word."""
    if call.state.is_open:
        return "OPEN"
    return "ANSWERED" if call.kind is ErrorKind.UNSPECIFIED else call.kind.value


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that narrow a list of calls."""
    for option in reversed(
        (
            click.option("--run", "run_id", default="", help="Calls of this run."),
            click.option("--model", default="", help="Calls of this model, as it was asked for."),
            click.option(
                "--state",
                "states",
                multiple=True,
                type=click.Choice(_STATES, case_sensitive=False),
                help="Calls in this state. May be repeated.",
            ),
            click.option(
                "--kind",
                "kinds",
                multiple=True,
                type=click.Choice(_KINDS, case_sensitive=False),
                help="Calls that failed this way. May be repeated.",
            ),
            click.option(
                "--operation",
                "operations",
                multiple=True,
                type=click.Choice(_OPERATIONS, case_sensitive=False),
                help="Calls that asked for this. May be repeated.",
            ),
            click.option("--answered", is_flag=True, help="Calls that answered; with --kind also those."),
            click.option(
                "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Calls with this label."
            ),
            click.option("--since", type=Moment(), help="Reserved at or after: a date, a time, or 12h, 7d."),
            click.option("--until", type=Moment(), help="Reserved before: a date, a time, or 12h, 7d."),
        )
    ):
        function = option(function)
    return function


@click.command()
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most calls.")
@format_option
@connection_options
def calls(
    limit: int,
    form: str,
    labels: Sequence[str],
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    **only: Any,
) -> None:
    """List calls, the newest first."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        found = ledger.list_calls(
            page_size=min(limit, 1000), timeout=timeout, labels=read_labels(labels), **only
        )
        show_list(form, COLUMNS, map(call_row, itertools.islice(found, limit)))


@click.command()
@filter_options
@click.option("--format", "form", type=click.Choice(("csv", "jsonl")), default="csv", show_default=True)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to write.  [default: standard output]",
)
@connection_options
def export(
    form: str,
    output: Path | None,
    labels: Sequence[str],
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    **only: Any,
) -> None:
    """Write every call as CSV or JSON lines, one for each generation, the newest first. No content is among it."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        found = ledger.list_calls(page_size=1000, timeout=timeout, labels=read_labels(labels), **only)
        if output is None:
            write_list(sys.stdout, form, EXPORT_COLUMNS, map(call_row, found))
            return
        try:
            with output.open("w", encoding="utf-8", newline="") as file:
                write_list(file, form, EXPORT_COLUMNS, map(call_row, found))
        except OSError as error:
            raise click.BadParameter(str(error), param_hint="'--output'") from None


@click.command()
@click.argument("call_id", type=click.UUID)
@click.option("--generation", type=click.IntRange(min=1), help="Which purchase.  [default: the newest]")
@click.option("--answer", is_flag=True, help="Print the stored answer and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, content included.")
@connection_options
def show(
    call_id: uuid.UUID,
    generation: int | None,
    answer: bool,
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Tell all about the call CALL_ID; works after its caller has vanished."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        if answer:
            _show_answer(ledger, call_id, generation or 0, timeout)
            return
        call = ledger.get_call(call_id, generation=generation or 0, full=True, timeout=timeout)
    if as_json:
        click.echo(document(call=call).encode("utf-8", "replace"))
    else:
        show_rows(f"{outcome(call)}, {call.state.value}", bill.of_call(call), stderr=False)


def _show_answer(ledger: Ledger, call_id: uuid.UUID, generation: int, timeout: float | None) -> None:
    call = ledger.get_call(call_id, generation=generation, timeout=timeout)
    if call.operation is Operation.EMBED:
        for vector in ledger.read_embeddings(call_id, generation=generation, timeout=timeout).vectors:
            click.echo(json.dumps(vector.tolist()))
    else:
        click.echo(ledger.read_answer(call_id, generation=generation, timeout=timeout).text)


@click.command()
@click.option("--call", "call_id", type=click.UUID, help="The content of this call.")
@click.option("--run", "run_id", help="The content of all calls of this run.")
@click.option("--everything", is_flag=True, help="All content of the tenant.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def erase(
    call_id: uuid.UUID | None,
    run_id: str | None,
    everything: bool,
    yes: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Delete stored answers, partial texts and error bodies for good. Figures and sums stay."""
    if (call_id is not None) + (run_id is not None) + everything != 1:
        message = "name one of --call, --run and --everything"
        raise click.UsageError(message)
    if everything and not yes:
        click.confirm("Delete all content of the tenant?", abort=True, err=True)
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        erased = ledger.erase(call_id=call_id, run_id=run_id, everything=everything, timeout=timeout)
    click.echo(f"{erased} {'call' if erased == 1 else 'calls'} erased")
