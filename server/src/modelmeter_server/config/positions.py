"""Where each key of a TOML document stands: `tomllib` gives values without positions.

The scanner reads documents that `tomllib` has accepted, so that it need not judge anything. It shares no code
with `tomllib`; a property test holds the two together.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelmeter_server.core.toml_words import KeyPath

_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}'
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class SourceLines:
    """Tell the line of every key of a document."""

    def __init__(self, text: str) -> None:
        """Index a document that `tomllib` accepts."""
        self._offsets = _Scanner(text).scan()
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def line(self, path: KeyPath) -> int:
        """Return the line, from 1, of a key, or of the nearest key around it that the document has."""
        while path and path not in self._offsets:
            path = path[:-1]
        return 1 + bisect_right(self._ends, self._offsets[path] - 1) if path else 1

    @property
    def paths(self) -> frozenset[KeyPath]:
        """Return every key, table and array element of the document."""
        return frozenset(self._offsets)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._offsets: dict[KeyPath, int] = {}
        self._array_tables: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip(_BLANK_LINES) < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
        return self._offsets

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        assert match is not None, "tomllib accepted what the scanner cannot read"
        self._at = match.end()
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        start = self._at
        return self._text[start : self._skip(pattern)]

    def _header(self) -> KeyPath:
        """Read `[table]` or `[[array of tables]]` and return what the following keys stand in."""
        start = self._at
        brackets = 2 if self._text.startswith("[[", start) else 1
        self._at += brackets
        *parents, last = self._key()
        self._at += brackets
        path: KeyPath = ()
        for key in parents:
            path = self._entered((*path, key))
            self._offsets.setdefault(path, start)
        path = (*path, last)
        if brackets == 2:
            self._offsets.setdefault(path, start)
            self._array_tables[path] = self._array_tables.get(path, -1) + 1
            path = self._entered(path)
        self._offsets[path] = start
        return path

    def _entered(self, path: KeyPath) -> KeyPath:
        """Name the last table of an array of tables, which is where its header leads."""
        return (*path, self._array_tables[path]) if path in self._array_tables else path

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        path = table
        for key in self._key():
            path = (*path, key)
            self._offsets.setdefault(path, start)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        """Read a key with its dots, up to the sign after it."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            if self._text[self._at] in "\"'":
                # tomllib knows the escapes.
                keys.extend(tomllib.loads(f"{self._take(_STRING)} = 0"))
            else:
                keys.append(self._take(_BARE_KEY))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        match self._text[self._at]:
            case '"' | "'":
                self._skip(_STRING)
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case _:
                self._skip(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        index = 0
        while self._more("]"):
            self._offsets[(*path, index)] = self._at
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        while self._more("}"):
            self._pair(path)

    def _more(self, closing: str) -> bool:
        """Step over an opening bracket or a comma, and over the closing bracket when nothing else follows."""
        self._skip(_BLANK_LINES)
        if self._text[self._at] != closing:
            self._at += 1
            self._skip(_BLANK_LINES)
        if self._text[self._at] != closing:
            return True
        self._at += 1
        return False
