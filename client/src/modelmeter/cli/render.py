"""What the commands show: the answer on stdout, everything about it on stderr.

On a terminal the rows of a bill are a coloured grid; in a pipe or a file they are plain lines. Whatever a model or
a provider wrote is shown without its control characters: they could move the cursor, change colours or forge lines.
In a pipe the answer itself stays as it is.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .bill import Rows

# C0 and C1 controls but tab and newline, and the marks that turn the direction of text.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_WIDE = 4096
"""Characters of the widest table."""


def visible(text: str) -> str:
    """Return the text with a replacement character for every control character but tab and newline."""
    return _INVISIBLE.sub("\ufffd", text)


def line(text: str) -> str:
    """Return the text as one visible line."""
    return visible(" ".join(text.split()))


class Answer:
    """The answer's text on stdout, as it comes."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._written = ""

    def write(self, text: str) -> None:
        """Show more text at once."""
        self._put(text)
        self._written += text

    def finish(self, text: str) -> None:
        """Show what is missing of the whole text, and end its last line."""
        if not text.startswith(self._written):
            # What was shown is not the answer: begin again below it.
            self._put("\n")
            self._written = ""
        self.write(text.removeprefix(self._written))
        self.end_line()

    def end_line(self) -> None:
        """End the line that was begun, if any."""
        if self._written and not self._written.endswith("\n"):
            self.write("\n")

    @property
    def is_begun(self) -> bool:
        """Say whether anything was shown."""
        return bool(self._written)

    def _put(self, text: str) -> None:
        shown = visible(text) if self.is_terminal else text
        encoding = sys.stdout.encoding if self.is_terminal else "utf-8"
        sys.stdout.buffer.write(shown.encode(encoding or "utf-8", "replace"))
        sys.stdout.buffer.flush()


def show_rows(title: str, rows: Rows, *, error: bool = False, stderr: bool = True) -> None:
    """Show a title and labelled lines on stderr, or on stdout."""
    print_rows(Console(stderr=stderr, highlight=False), title, rows, error=error)


def print_rows(console: Console, title: str, rows: Rows, *, error: bool = False) -> None:
    """Show a title and labelled lines on a console."""
    if console.is_terminal:
        console.print(Text(line(title), style="bold red" if error else "bold"))
        console.print(_grid(rows))
        return
    width = max((len(label) for label, _ in rows), default=0)
    plain = [line(title), *(f"  {label:<{width}}  {line(text)}" for label, text in rows)]
    console.file.write("\n".join(plain) + "\n")


def _grid(rows: Rows) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(f"  {label}", Text(line(text)))
    return grid


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Show a table on stdout; in a pipe its cells are separated by tabs, without a header."""
    console = Console(highlight=False, width=_WIDE)
    if not console.is_terminal:
        sys.stdout.write("".join("\t".join(map(line, row)) + "\n" for row in rows))
        return
    cells = [[line(cell) for cell in row] for row in rows]
    used = [index for index in range(len(columns)) if any(row[index] for row in cells)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index in used:
        # An id that is folded over lines cannot be copied: a table that is too wide runs on, as a terminal wraps it.
        table.add_column(columns[index].replace("_", "\n"), no_wrap=True)
    for row in cells:
        table.add_row(*(Text(row[index]) for index in used))
    if cells:
        console.print(table)
    else:
        Console(stderr=True, highlight=False).print("none")
