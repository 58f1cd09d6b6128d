"""How commands show a call that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import bill
from .documents import document
from .render import show_rows

if TYPE_CHECKING:
    from modelmeter.errors import ModelmeterError


def show_failure(error: ModelmeterError, *, as_json: bool) -> None:
    """Show an error as a JSON document on stdout, or in words on stderr."""
    if as_json:
        click.echo(document(error=error))
    else:
        show_error(error)


def show_refusal(error: ModelmeterError) -> None:
    """Show the error of a question, which has no bill."""
    rows = [*bill.of_mistakes(error), *bill.advice_on_connecting(error)]
    show_rows(f"{error.reason or bill.title(error)}: {bill.sentence(error)}", rows, error=True)


def show_error(error: ModelmeterError, *, partial: bool = False) -> None:
    """Show an error with its mistakes and its bill; `partial` says that text stands above it."""
    rows = bill.of_error(error)
    if partial:
        rows.insert(0, ("partial", "the text above is not an answer"))
    rows = [*bill.of_mistakes(error), *rows]
    show_rows(f"{bill.title(error)}: {bill.sentence(error)}", rows, error=True)
