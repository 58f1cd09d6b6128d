"""`modelmeter ledger reconcile`: a truer figure for one call, or a provider's export against the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelmeter.records import Figure
from modelmeter.results import Usage

from . import bill
from .connection import connection_options
from .ledger_calls import outcome
from .ledger_face import Money, open_ledger
from .listings import format_option, show_list
from .render import show_rows
from .usage_exports import Compared, ExportUnreadable, compare, read_export, share, total

if TYPE_CHECKING:
    import uuid

    from modelmeter import Ledger

    from .usage_exports import ExportRow

COLUMNS = (
    "key",
    "model",
    "provider_calls",
    "ledger_calls",
    "provider_tokens",
    "ledger_tokens",
    "capture",
    "provider_cost",
    "ledger_cost",
)
_SLACK = timedelta(days=2)
"""A call may be reserved a while before the provider books it, and an id tells no day."""


@click.command()
@click.argument("call_id", type=click.UUID, required=False)
@click.option("--generation", type=click.IntRange(min=1), help="Which purchase.  [default: the newest]")
@click.option(
    "--input-tokens", type=click.IntRange(min=0), help="The operator's figure: input, cached included."
)
@click.option("--output-tokens", type=click.IntRange(min=0), help="The operator's figure: output.")
@click.option("--money", type=Money(), metavar="AMOUNT", help="What it cost, such as 0.12USD.")
@click.option("--at-least", is_flag=True, help="The figure is a lower bound, not exact.")
@click.option("--reason", default="", help="Where the figure is from; required with a figure.")
@click.option(
    "--import",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare a provider's usage export (CSV, JSON, JSON lines) with the ledger, and change nothing.",
)
@format_option
@connection_options
def reconcile(
    call_id: uuid.UUID | None,
    generation: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    money: tuple[int, str] | None,
    at_least: bool,
    reason: str,
    file: Path | None,
    form: str,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Ask the provider for a truer figure of the call CALL_ID, or book your own from its invoice."""
    if (call_id is None) == (file is None):
        message = "give a CALL_ID, or --import FILE"
        raise click.UsageError(message)
    if file is not None:
        rows = _export(file)
        with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
            _show_comparison(compare(rows, _calls_of(ledger, rows, timeout)), form)
        return
    assert call_id is not None
    figure = None
    is_told = input_tokens is not None or output_tokens is not None
    if is_told != bool(reason) or (not is_told and (money is not None or at_least)):
        message = "a figure is --input-tokens, --output-tokens or both, with a --reason"
        raise click.UsageError(message)
    if is_told:
        nanos, currency = money or (None, "")
        figure = Figure(
            usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens),
            reason=reason,
            certainty="AT_LEAST" if at_least else "EXACT",
            nano_units=nanos,
            currency=currency,
        )
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        done = ledger.reconcile(call_id, figure, generation=generation or 0, timeout=timeout)
    raised = "the figure was taken" if done.raised else "nothing changed: what is booked is as certain"
    show_rows(
        f"{outcome(done.call)}, {done.call.state.value}: {raised}", bill.of_call(done.call), stderr=False
    )


def _export(file: Path) -> list[ExportRow]:
    try:
        return read_export(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ExportUnreadable as error:
        reason = str(error)
    msg = f"{file}: {reason}"
    raise click.BadParameter(msg, param_hint="'--import'")


def _calls_of(ledger: Ledger, rows: list[ExportRow], timeout: float | None) -> Any:
    """Return the calls of the days of an export; all of them when it tells no days."""
    days = [row.day for row in rows if row.day is not None]
    if len(days) < len(rows):
        return ledger.list_calls(page_size=1000, timeout=timeout)
    slack = _SLACK if any(row.by_id for row in rows) else timedelta()
    since = datetime.combine(min(days), time(), UTC) - slack
    until = datetime.combine(max(days), time(), UTC) + timedelta(days=1) + slack
    return ledger.list_calls(page_size=1000, timeout=timeout, since=since, until=until)


def _show_comparison(compared: list[Compared], form: str) -> None:
    whole = total(compared)
    show_list(form, COLUMNS, map(_row, compared))
    tokens = share(whole.ledger.tokens, whole.provider.tokens)
    cost = share(whole.ledger.nano_units, whole.provider.nano_units)
    rates = [
        f"{_percent(rate)} of {what}"
        for rate, what in ((tokens, "tokens"), (cost, "cost"))
        if rate is not None
    ]
    click.echo(f"capture rate: {', '.join(rates) or 'the export tells neither tokens nor cost'}", err=True)


def _row(each: Compared) -> dict[str, Any]:
    return {
        "key": each.key,
        "model": each.model,
        "provider_calls": each.provider.calls,
        "ledger_calls": each.ledger.calls,
        "provider_tokens": each.provider.tokens,
        "ledger_tokens": each.ledger.tokens,
        "capture": None if each.rate is None else _percent(each.rate),
        "provider_cost": bill.units(each.provider.nano_units).replace(",", ""),
        "ledger_cost": bill.units(each.ledger.nano_units).replace(",", ""),
    }


def _percent(rate: float) -> str:
    return f"{rate * 100:.2f} %"
