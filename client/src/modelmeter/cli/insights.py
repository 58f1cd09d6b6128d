"""`modelmeter insights`: what the latest calls of a server looked like."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from modelmeter.errors import ModelmeterError

from . import bill
from .connection import add_tenant_option, connect, connection_options, named_tenant
from .documents import document
from .exits import exit_of
from .failures import show_refusal
from .ledger_face import time_text
from .render import show_rows, show_table
from .spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path

    from modelmeter.watched import Distribution, Insights, InsightsSpend

COLUMNS = ("by", "name", "calls", "input_tokens", "output_tokens", "cost", "currency", "certainty")
AT_LEAST = "at least"


@click.command()
@click.option("--last", "window", type=Span(), metavar="TIME", help="Only calls that ended within: 15m, 12h.")
@click.option("--model", default="", help="Only calls of this model.")
@click.option("--conversation", "conversation_id", default="", help="Only calls of this conversation.")
@click.option("--run", "run_id", default="", help="Only calls of this run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@connection_options
def insights(
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    window: timedelta | None,
    **wanted: Any,
) -> None:
    """Sum up the latest calls of a server: times, failures, tokens and money.

    It tells of the one server process that answers, as far back as that remembers; `modelmeter ledger spend` has the
    sums of all.
    """
    try:
        with connect(address, tls=tls, ca_file=ca_file) as client:
            found = client.events.of(named_tenant()).insights(window=window, timeout=timeout, **wanted)
    except ModelmeterError as error:
        if as_json:
            click.echo(document(error=error))
        else:
            show_refusal(error)
        sys.exit(exit_of(error))
    if as_json:
        click.echo(document(insights=found))
        return
    show_rows(f"seen by process {found.process}", rows_of(found), stderr=False)
    spent = list(_spent(found))
    if spent:
        show_table(COLUMNS, spent)


def rows_of(found: Insights) -> bill.Rows:
    """Return everything but the sums by name, as lines of label and text."""
    rows = [
        ("calls", _calls(found)),
        ("looks back", _reach(found)),
        ("since", time_text(found.since)),
        ("latency", _times(found.latency)),
        ("first token", _times(found.first_token)),
        ("failed", ", ".join(f"{kind} {count:,}" for kind, count in found.errors.items())),
        ("tokens", _tokens(found)),
        ("cost", _cost(found)),
        ("certainty", _certainty(found)),
    ]
    return [(label, text) for label, text in rows if text]


def _calls(found: Insights) -> str:
    replayed = f", {found.replayed:,} of them replayed" if found.replayed else ""
    return f"{found.calls:,}: {found.answered:,} answered, {found.failed:,} failed{replayed}"


def _reach(found: Insights) -> str:
    gone = ": older ones are gone" if found.older_calls_evicted else ""
    return f"at most {found.most_calls:,} calls of this process{gone}"


def _times(measured: Distribution) -> str:
    if not measured.count:
        return ""
    named = {name: getattr(measured, name) for name in ("p50", "p90", "p95", "p99")}
    told = [f"{name} {micros / 1e6:.3f} s" for name, micros in (*named.items(), ("longest", measured.most))]
    return f"{', '.join(told)}, of {measured.count:,}"


def _is_floor(found: Insights | InsightsSpend) -> bool:
    return bool(found.at_least or found.untold)


def _floor(is_floor: bool) -> str:
    return f"{AT_LEAST} " if is_floor else ""


def _tokens(found: Insights) -> str:
    if not found.total:
        return ""
    read, written = (
        sum(getattr(each, side) for each in found.total) for side in ("input_tokens", "output_tokens")
    )
    return f"{_floor(_is_floor(found))}input {read:,}, output {written:,}"


def _cost(found: Insights) -> str:
    """Return the money by currency; calls without a price are told, and are no zero.

    A call of which nothing was told has no price, and may have cost money of any currency.
    """
    is_untold = any(each.untold for each in found.total if not each.currency)
    costs = [
        f"{_floor(is_untold or _is_floor(each))}{bill.units(each.nano_units)} {each.currency}"
        for each in found.total
        if each.currency
    ]
    without = sum(each.calls for each in found.total if not each.currency)
    parts = [", ".join(costs)] if costs else []
    if without:
        parts.append(f"{without:,} {'call' if without == 1 else 'calls'} without a price")
    return "; ".join(parts)


def _certainty(found: Insights) -> str:
    """Return which calls make the sums lower bounds; empty where every figure is exact."""
    doubts = (
        (found.at_least, "told in part"),
        (found.untold, "may have consumed something that nobody told"),
    )
    told = [f"{count:,} {'call' if count == 1 else 'calls'} {what}" for count, what in doubts if count]
    return f"{AT_LEAST}: {', '.join(told)}; the sums that they are in are lower bounds" if told else ""


def _spent(found: Insights) -> Iterator[tuple[str, ...]]:
    """Yield the sums by name; those that hold a call that is told in part, or not at all, are lower bounds."""
    groups: dict[str, Any] = {
        "model": found.by_model,
        "conversation": found.by_conversation,
        "run": found.by_run,
    }
    for by, sums in groups.items():
        for each in sums:
            yield (by, *_figures(each), AT_LEAST if _is_floor(each) else "")


def _figures(spent: InsightsSpend) -> tuple[str, ...]:
    counts = (spent.calls, spent.input_tokens, spent.output_tokens)
    cost = bill.units(spent.nano_units).replace(",", "") if spent.currency else ""
    return (spent.name, *map(str, counts), cost, spent.currency)


add_tenant_option(insights)
