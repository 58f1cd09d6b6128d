"""`modelmeter ledger spend`: sums, and a small chart of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import GroupBy, Period

from . import bill
from .connection import connection_options
from .ledger_face import Moment, on_quarter, open_ledger, time_text
from .listings import format_option, show_list

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelmeter import Spend

COLUMNS = (
    "period",
    "value",
    "calls",
    "input_tokens",
    "output_tokens",
    "settled_tokens",
    "held_tokens",
    "unsettled_tokens",
    "written_off_tokens",
    "settled",
    "held",
    "unsettled",
    "written_off",
    "currency",
    "possibly_billed_calls",
)

CHART_DAYS = 14
BAR = 40
"""Characters of the longest bar."""

_BLOCKS = " ▏▎▍▌▋▊▉"
_AMOUNTS = ("settled", "held", "unsettled", "written_off")
_WORDS = [each.value.lower() for each in GroupBy if each not in (GroupBy.UNSPECIFIED, GroupBy.LABEL)]
_PERIODS = [each.value.lower() for each in Period if each is not Period.UNSPECIFIED]


def spend_row(found: Spend) -> dict[str, Any]:
    """Return a sum in columns; money in units of its currency, empty without one."""
    row: dict[str, Any] = {
        "period": time_text(found.starts_at),
        "value": found.value,
        "calls": found.calls,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "currency": found.currency,
        "possibly_billed_calls": found.possibly_billed_calls,
    }
    for name in _AMOUNTS:
        amount = getattr(found, name)
        row[f"{name}_tokens"] = amount.tokens
        row[name] = bill.units(amount.nano_units).replace(",", "") if found.currency else None
    return row


@click.command()
@click.option("--by", type=click.Choice(_WORDS), help="Tell calls apart by run, model or kind of outcome.")
@click.option("--label", metavar="KEY", default="", help="Tell calls apart by the values of this label.")
@click.option(
    "--value", "values", multiple=True, help="Only this run, model, kind or value. May be repeated."
)
@click.option("--per", "period", type=click.Choice(_PERIODS), help="Cut the time by hour, day or month.")
@click.option("--time-zone", default="", help="Zone in which days and months begin.  [default: UTC]")
@click.option("--since", type=Moment(), help="From this time on: a date, a time, or 12h, 7d, 4w.")
@click.option("--until", type=Moment(), help="Before this time.")
@click.option("--chart", is_flag=True, help=f"Draw spend per day, of the last {CHART_DAYS} days unless told.")
@format_option
@connection_options
def spend(
    by: str | None,
    label: str,
    values: Sequence[str],
    period: str | None,
    time_zone: str,
    since: datetime | None,
    until: datetime | None,
    chart: bool,
    form: str,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Sum up what calls consumed: settled, held while they run, unsettled, written off."""
    if by is not None and label:
        message = "name one of --by and --label"
        raise click.UsageError(message)
    if chart and (by is not None or label):
        message = "--chart draws all calls together: leave --by and --label out"
        raise click.UsageError(message)
    if chart:
        period = "day"
        since = since or datetime.now(UTC) - timedelta(days=CHART_DAYS - 1)
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        found = ledger.spend(
            by=by,
            label=label,
            values=values,
            period=period,
            time_zone=time_zone,
            since=on_quarter(since),
            until=on_quarter(until),
            timeout=timeout,
        )
    if chart:
        click.echo("\n".join(chart_lines(found)))
    else:
        show_list(form, COLUMNS, map(spend_row, found))


def chart_lines(found: Sequence[Spend]) -> list[str]:
    """Return a bar for each day and currency: money where there is a price, tokens otherwise."""
    if not found:
        return ["nothing was spent"]
    amounts = [_counted(each) for each in found]
    most = {currency: max(n for n, c in amounts if c == currency) for _, currency in amounts}
    lines = []
    for each, (amount, currency) in zip(found, amounts, strict=True):
        day = "" if each.starts_at is None else each.starts_at.strftime("%Y-%m-%d")
        told = f"{bill.units(amount)} {currency}" if currency else f"{amount:,} tokens"
        lines.append(f"{day}  {bar(amount, most[currency]):<{BAR}}  {told}")
    return lines


def _counted(found: Spend) -> tuple[int, str]:
    """Return what counts against ceilings, and what was written off on top."""
    parts = [getattr(found, name) for name in _AMOUNTS]
    if found.currency:
        return sum(part.nano_units for part in parts), found.currency
    return sum(part.tokens for part in parts), ""


def bar(amount: int, most: int) -> str:
    """Return a bar of eighths of characters; anything above nothing shows."""
    eighths = 0 if amount <= 0 else max(1, amount * BAR * 8 // max(most, 1))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_BLOCKS[rest] if rest else "")
