"""The index of lines agrees with tomllib about what stands in a document, and with the text about where."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.config.positions import SourceLines
from modelmeter_server.core.toml_words import KeyPath

PRINTABLE = st.characters(exclude_categories=["Cs", "Cc"])
BARE_KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True)
QUOTED_KEYS = st.text(PRINTABLE, max_size=4).map(lambda key: json.dumps(key, ensure_ascii=False))
LITERAL_KEYS = st.text(PRINTABLE, max_size=4).filter(lambda key: "'" not in key).map(lambda key: f"'{key}'")
KEYS = st.one_of(BARE_KEYS, QUOTED_KEYS, LITERAL_KEYS)
SCALARS = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "inf",
        "true",
        "1979-05-27 07:32:00",
        '""',
        "''",
        r'"# [x] = \" , }"',
        r"'C:\# [x] = , }'",
        '"""one\ntwo # no comment ""\\"" """',
        '"""\nends with two quotes"""""',
        "'''a\n[table]\nb = 1 ''' ",
        "'''''two'''",
    ]
)
GAPS = st.sampled_from(["", " ", "\n", " # [comment] = 'x'\n", "\n\n\t"])
SPACES = st.sampled_from(["", " ", "\t "])


class Writer:
    """Writes a document as drawn and notes the line of every key as it writes it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[KeyPath, int] = {}

    def put(self, *parts: str | st.SearchStrategy[str]) -> None:
        for part in parts:
            self.text += part if isinstance(part, str) else self.draw(part)

    def note(self, path: KeyPath) -> None:
        self.lines[path] = 1 + self.text.count("\n")

    def fresh_key(self, taken: set[str]) -> tuple[str, str]:
        """Return a key as written and as meant, not yet among `taken`."""
        spelled = self.draw(KEYS.filter(lambda key: meaning(key) not in taken))
        taken.add(meaning(spelled))
        return spelled, meaning(spelled)

    def pair(self, path: KeyPath, taken: set[str], depth: int) -> None:
        first, key = self.fresh_key(taken)
        path = (*path, key)
        self.note(path)
        self.put(first, SPACES)
        for part in self.draw(st.lists(KEYS, max_size=2)):
            path = (*path, meaning(part))
            self.note(path)
            self.put(".", SPACES, part, SPACES)
        self.put("=", SPACES)
        self.value(path, depth)

    def value(self, path: KeyPath, depth: int) -> None:
        form = self.draw(st.sampled_from(["scalar", "array", "table"])) if depth else "scalar"
        if form == "array":
            self.put("[", GAPS)
            for index in range(self.draw(st.integers(0, 3))):
                self.note((*path, index))
                self.value((*path, index), depth - 1)
                self.put(GAPS, ",", GAPS)
            self.put("]")
        elif form == "table":
            count, taken = self.draw(st.integers(0, 2)), set[str]()
            self.put("{", SPACES)
            for index in range(count):
                self.put(", " if index else "")
                self.pair(path, taken, depth - 1)
            self.put(SPACES, "}")
        else:
            self.put(SCALARS)

    def pairs(self, path: KeyPath, taken: set[str]) -> None:
        for _ in range(self.draw(st.integers(0, 2))):
            self.pair(path, taken, depth=2)
            self.put(st.sampled_from(["\n", " # comment\n"]), GAPS, "\n")

    def header(self, opening: str, spelled: str, closing: str, path: KeyPath) -> None:
        self.note(path)
        self.put(opening, SPACES, spelled, SPACES, closing, "\n")

    def section(self, taken: set[str]) -> None:
        spelled, key = self.fresh_key(taken)
        if self.draw(st.booleans()):
            for index in range(self.draw(st.integers(1, 3))):
                if index == 0:
                    self.note((key,))
                self.subsection("[[", spelled, "]]", (key, index))
        else:
            self.subsection("[", spelled, "]", (key,))

    def subsection(self, opening: str, spelled: str, closing: str, path: KeyPath) -> None:
        inside: set[str] = set()
        self.header(opening, spelled, closing, path)
        self.pairs(path, inside)
        if self.draw(st.booleans()):
            more, key = self.fresh_key(inside)
            self.header("[", f"{spelled} . {more}", "]", (*path, key))
            self.pairs((*path, key), set())


def meaning(spelled: str) -> str:
    return next(iter(tomllib.loads(f"{spelled} = 0")))


@st.composite
def documents(draw: st.DrawFn) -> Writer:
    writer, taken = Writer(draw), set[str]()
    writer.put(GAPS, "\n")
    writer.pairs((), taken)
    for _ in range(draw(st.integers(0, 3))):
        writer.section(taken)
    return writer


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


@given(documents())
def test_the_index_holds_the_paths_that_tomllib_finds_and_no_other(document):
    assert SourceLines(document.text).paths == set(paths(tomllib.loads(document.text)))


@given(documents())
def test_every_key_is_told_at_the_line_where_it_was_written(document):
    lines = SourceLines(document.text)
    assert {path: lines.line(path) for path in document.lines} == document.lines


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("nowhere",), 1),
        (("a",), 3),
        (("a", "missing", "deeper"), 3),
        (("a", "b"), 2),
        (("a", "b", "missing"), 2),
        (("c", 1), 6),
        (("c", 1, "missing"), 6),
        (("c", 9), 5),
    ],
)
def test_what_is_missing_is_told_at_the_nearest_key_around_it(path, line):
    assert SourceLines("\n[a.b]\n[a]\n\n[[c]]\n[[c]]\n").line(path) == line
