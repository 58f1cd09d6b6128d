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


def show_error(error: ModelmeterError, *, partial: bool = False) -> None:
    """Show an error with its mistakes and its bill; `partial` says that text stands above it."""
    rows = bill.of_error(error)
    if partial:
        rows.insert(0, ("partial", "the text above is not an answer"))
    rows[:0] = [
        (violation.field.removeprefix("request."), violation.description) for violation in error.violations
    ]
    show_rows(f"{bill.title(error)}: {error.message}", rows, error=True)
