"""Lists as tables, CSV or JSON lines. A cell of CSV that a spreadsheet would run as a formula is made text."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from .documents import plain
from .render import show_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMATS = ("table", "csv", "jsonl")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print: a table (tabs in a pipe), CSV with a header, or one JSON object a line.",
)


def show_list(form: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows on standard output."""
    if form == "table":
        show_table(columns, ([_cell(row[column]) for column in columns] for row in rows))
    else:
        write_list(sys.stdout, form, columns, rows)


def write_list(out: TextIO, form: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as they come, as `csv` or `jsonl`; return how many."""
    count = 0
    writer = csv.writer(out, lineterminator="\n")
    if form == "csv":
        writer.writerow(columns)
    for row in rows:
        count += 1
        if form == "csv":
            writer.writerow([_safe(row[column]) for column in columns])
        else:
            out.write(
                json.dumps({column: plain(row[column]) for column in columns}, ensure_ascii=False) + "\n"
            )
    return count


def _cell(value: object) -> str:
    if value is None:
        return ""
    value = plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _safe(value: object) -> str:
    text = _cell(value)
    is_number = isinstance(value, int | float)
    return "'" + text if text.startswith(_FORMULA) and not is_number else text
