"""`modelmeter ledger ceilings` and `modelmeter ledger halt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import Scope, WindowKind
from modelmeter.records import Window

from . import bill
from .connection import connection_options
from .ledger_face import Money, open_ledger, time_text
from .listings import format_option, show_list

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelmeter import Ceiling, Standing

COLUMNS = (
    "ceiling_id",
    "scope",
    "name",
    "window",
    "currency",
    "allowed",
    "settled",
    "held",
    "unsettled",
    "left",
    "room_at",
)
HALT_COLUMNS = ("scope", "name", "mode", "since", "reason")
_SCOPES = ("tenant", "run", "model")
_KINDS = [kind.value.lower() for kind in WindowKind if kind is not WindowKind.UNSPECIFIED]


def _subject(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.argument("name", default="")(function)
    return click.argument("scope", type=click.Choice(_SCOPES))(function)


@click.group()
def ceilings() -> None:
    """Bound what a tenant, a run or a model may consume."""


@ceilings.command("list")
@format_option
@connection_options
def list_ceilings(form: str, address: str, tls: bool, ca_file: Path | None, timeout: float | None) -> None:
    """List every ceiling and where its subject stands: of a ceiling on EVERY RUN the run that has used most of it."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        found = ledger.ceilings(timeout=timeout)
    show_list(form, COLUMNS, [row for each in found for row in ceiling_rows(each)])


def ceiling_rows(ceiling: Ceiling) -> list[dict[str, Any]]:
    """Return a row for each standing; or for each bound, as long as nobody has spent anything."""
    if ceiling.standings:
        return [_row(ceiling, each.name, each.currency, each) for each in ceiling.standings]
    bounds = [("", ceiling.tokens), (ceiling.currency, ceiling.nano_units)]
    return [
        {**_row(ceiling, ceiling.subject.name, currency, None), "allowed": _amount(bound, currency)}
        for currency, bound in bounds
        if bound is not None
    ]


def _row(ceiling: Ceiling, name: str, currency: str, standing: Standing | None) -> dict[str, Any]:
    counted = ("allowed", "settled", "held", "unsettled")
    row: dict[str, Any] = {column: _amount(getattr(standing, column, None), currency) for column in counted}
    is_of_every_run = ceiling.subject.scope is Scope.RUN and not ceiling.subject.name
    return row | {
        "ceiling_id": ceiling.ceiling_id,
        "scope": "EVERY RUN" if is_of_every_run else ceiling.subject.scope,
        "name": name,
        "window": _window(ceiling.window),
        "currency": currency,
        "left": _amount(None if standing is None else standing.room, currency),
        "room_at": time_text(None if standing is None else standing.room_at),
    }


def _window(window: Window) -> str:
    detail = window.time_zone or (f"{window.seconds} s" if window.seconds else "")
    return f"{window.kind} {detail}".rstrip()


def _amount(value: int | None, currency: str) -> str | int | None:
    """Return tokens as they are, money in units of its currency."""
    if value is None or not currency:
        return value
    return bill.units(value).replace(",", "")


@ceilings.command("set")
@_subject
@click.option("--tokens", type=click.IntRange(min=0), help="Most tokens, input and output together.")
@click.option("--money", type=Money(), metavar="AMOUNT", help="Most money, such as 12.50USD.")
@click.option("--window", type=click.Choice(_KINDS), default="total", show_default=True)
@click.option("--time-zone", default="", help="Zone in which days and months begin.  [default: UTC]")
@click.option("--seconds", type=int, default=0, help="Length of a rolling window.")
@connection_options
def set_ceiling(
    scope: str,
    name: str,
    tokens: int | None,
    money: tuple[int, str] | None,
    window: str,
    time_zone: str,
    seconds: int,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Set a ceiling on the tenant, on the run or model NAME, or on every run by itself (`run` without a NAME).

    A ceiling of the same subject, window and currency is replaced.
    """
    nanos, currency = money or (None, "")
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        kept = ledger.set_ceiling(
            scope,
            name,
            tokens=tokens,
            nano_units=nanos,
            currency=currency,
            window=Window(window, time_zone, seconds),
            timeout=timeout,
        )
    click.echo(kept.ceiling_id)


@ceilings.command("delete")
@click.argument("ceiling_id")
@connection_options
def delete_ceiling(
    ceiling_id: str, address: str, tls: bool, ca_file: Path | None, timeout: float | None
) -> None:
    """Delete the ceiling CEILING_ID."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        ledger.delete_ceiling(ceiling_id, timeout=timeout)


@click.group()
def halt() -> None:
    """Stop a tenant, a run or a model."""


@halt.command("set")
@_subject
@click.option("--cut", is_flag=True, help="Cut the calls under way as well.")
@click.option("--reason", default="", help="Why, for those who meet it.")
@connection_options
def set_halt(
    scope: str,
    name: str,
    cut: bool,
    reason: str,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Refuse new calls of the tenant, or of the run or model NAME."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        ledger.halt(scope, name, mode="CUT" if cut else "ADMISSION", reason=reason, timeout=timeout)


@halt.command("clear")
@_subject
@connection_options
def clear_halt(
    scope: str, name: str, address: str, tls: bool, ca_file: Path | None, timeout: float | None
) -> None:
    """Let the tenant, or the run or model NAME, go on."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        ledger.clear_halt(scope, name, timeout=timeout)


@halt.command("list")
@format_option
@connection_options
def list_halts(form: str, address: str, tls: bool, ca_file: Path | None, timeout: float | None) -> None:
    """List the halts that are set."""
    with open_ledger(address, tls=tls, ca_file=ca_file) as ledger:
        found = ledger.halts(timeout=timeout)
    rows = (
        {
            "scope": each.subject.scope,
            "name": each.subject.name,
            "mode": each.mode,
            "since": time_text(each.created_at),
            "reason": each.reason,
        }
        for each in found
    )
    show_list(form, HALT_COLUMNS, rows)
