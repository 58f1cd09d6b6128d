"""Typed reading of TOML tables that gathers mistakes instead of stopping at the first.

A wrong value is noted and its default returned, so that reading goes on and finds the next mistake.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from modelmeter_server.core.toml_words import KeyPath, choices

from .mistakes import Mistake, Mistakes, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path


_Word = TypeVar("_Word", bound=Enum)

_TYPE_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "an array",
    dict: "a table",
}


class Table:
    """One table of the document. Read every key that may stand in it, then call `close`."""

    def __init__(
        self,
        values: dict[str, Any],
        path: KeyPath,
        mistakes: Mistakes,
        moved: Mapping[str, KeyPath] | None = None,
        lacking: KeyPath | None = None,
    ) -> None:
        """`moved` says of keys that stand elsewhere in the document where that is.

        `lacking` is where a key that is in neither place should have been; `None` for the table itself.
        """
        self.path = path
        self._values = values
        self._mistakes = mistakes
        self._moved = moved or {}
        self._lacking = path if lacking is None else lacking
        self._known: list[str] = []

    @property
    def name(self) -> str:
        """Return the last key of the path: the name of a provider or a model."""
        return str(self.path[-1])

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def peek(self, key: str) -> Any:
        """Return the value as it stands in the file, to tell which type it is; reading it is another's business."""
        return self._values.get(key)

    @property
    def mistakes_noted(self) -> int:
        """Return how many mistakes of the whole document were noted so far: a reader adds to them, or does not."""
        return len(self._mistakes)

    def mistake(self, key: str | None, problem: str, fix: str) -> None:
        """Note a mistake at a key of this table, or at the table itself."""
        self._mistakes.add(self.path if key is None else self._place(key), problem, fix)

    def mistake_of(self, key: str, other: Mistake) -> None:
        """Note a mistake of the file that a key names."""
        self._mistakes.add_from(self._place(key), other)

    def merged(self, other: Table, keys: Iterable[str], without: Iterable[str]) -> Table:
        """Return this table without some of its keys, and with some of another one, which keep their places.

        The keys left out are somebody else's to read.
        """
        without = tuple(without)
        moved = {key: (*other.path, key) for key in keys if key in other}
        left_out = {*without, *moved}
        values = {key: value for key, value in self._values.items() if key not in left_out}
        values.update((key, other.peek(key)) for key in moved)
        merged = Table(values, self.path, self._mistakes, moved, other.path)
        merged._known += without
        return merged

    def _place(self, key: str) -> KeyPath:
        return self._moved.get(key, (*self.path, key))

    def names_file(self, key: str, path: Path) -> None:
        """Note that a key names this file, so that it can be looked at again."""
        self._mistakes.files[(*self.path, key)] = path

    def close(self) -> None:
        """Note every key that nobody asked for."""
        for key in self._values:
            if key not in self._known:
                meant = did_you_mean(key, self._known)
                fix = f'did you mean "{meant}"?' if meant else "remove it: known here are " + self._listed()
                self.mistake(key, "unknown key", fix)

    def _listed(self) -> str:
        return ", ".join(sorted(self._known)) or "no keys"

    def get(self, key: str, kind: type | tuple[type, ...], expected: str) -> Any:
        """Return the value, or `None` when it is absent or, which is noted, of another type."""
        self._known.append(key)
        value = self._values.get(key)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # A bool is an int in Python, and not in TOML.
        if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
            return value
        self.mistake(key, f"is {_TYPE_NAMES.get(type(value), 'a date or time')}", f"write {expected}")
        return None

    def refuse(self, key: str, problem: str, fix: str) -> bool:
        """Note a mistake if this key is there, whatever its value; say whether it is."""
        self._known.append(key)
        if key in self._values:
            self.mistake(key, problem, fix)
        return key in self._values

    def text(self, key: str) -> str | None:
        """Return a string; an empty one is a mistake."""
        value: str | None = self.get(key, str, "a string in quotes")
        if value is not None and not value.strip():
            self.mistake(key, "is empty", "give it a value or remove it")
            return None
        return value

    def required_text(self, key: str, fix: str) -> str | None:
        """Return a string that must be there; `None` when it is not, which is noted with this fix."""
        if key not in self._values:
            self._mistakes.add(self._lacking, f'lacks "{key}"', fix)
        return self.text(key)

    def word(self, key: str, default: _Word) -> _Word:
        """Return the member of the default's enum that has this value."""
        known = [member.value for member in type(default)]
        value = self.choice(key, known, default.value)
        return type(default)(value)

    def choice(self, key: str, known: Iterable[str], default: str) -> str:
        """Return one of the known strings."""
        value = self.get(key, str, choices(known))
        if value is None or value in known:
            return value or default
        meant = did_you_mean(value, known)
        self.mistake(
            key,
            f'"{value}" is not a known value',
            f'did you mean "{meant}"?' if meant else f"write {choices(known)}",
        )
        return default

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return the strings of an array; a single string stands for an array of one."""
        expected = "a string or an array of strings"
        value = self.get(key, (str, list), expected)
        items = [value] if isinstance(value, str) else value
        if items is None:
            return None
        for index, item in enumerate(items):
            if not isinstance(item, str) or not item.strip():
                self._mistakes.add((*self.path, key, index), "is not a string with text", f"write {expected}")
        return tuple(item for item in items if isinstance(item, str) and item.strip())

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        """Return an integer within bounds, both included."""
        value = self.get(key, int, f"an integer from {least:,} to {most:,}")
        if value is None:
            return default
        if not least <= value <= most:
            self.mistake(key, f"{value} is out of range", f"write an integer from {least:,} to {most:,}")
            return default
        return int(value)

    def optional_integer(self, key: str, *, least: int = 1, most: int) -> int | None:
        """Return an integer within bounds, both included; `None` when it is absent."""
        if key in self:
            return self.integer(key, least, least=least, most=most)
        self.get(key, int, "")  # a known key, for whoever misspells it
        return None

    def seconds(self, key: str, default: float, *, zero: bool = False) -> float:
        """Return a number of seconds above 0, or from 0 on; `inf` is allowed."""
        expected = f"a number of seconds {'from 0 on' if zero else 'above 0'}"
        value = self.get(key, (int, float), expected)
        if value is None:
            return default
        if math.isnan(value) or value < 0 or (value == 0 and not zero):
            self.mistake(key, f"{value} is out of range", f"write {expected}")
            return default
        return float(value)

    def share(self, key: str, default: float) -> float:
        """Return a number above 0 and up to 1."""
        value = self.get(key, (int, float), "a number above 0, up to 1")
        if value is None:
            return default
        if not 0 < value <= 1:
            self.mistake(key, f"{value} is out of range", "write a number above 0, up to 1")
            return default
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self.get(key, bool, "true or false")
        return default if value is None else bool(value)

    def table(self, key: str, expected: str = "a table") -> Table:
        """Return a table inside this one; an empty one when it is absent."""
        value = self.get(key, dict, expected)
        return Table(value or {}, (*self.path, key), self._mistakes)

    def named_tables(self, key: str) -> Iterator[Table]:
        """Yield the tables inside a table whose keys are names, such as `[providers.NAME]`."""
        outer = self.table(key)
        for name in outer:
            if outer.get(name, dict, f"a table: [{key}.NAME]") is not None:
                yield outer.table(name)

    def tables(self, key: str) -> Iterator[Table]:
        """Yield the tables of an array."""
        for index, value in enumerate(self.get(key, list, "an array of tables") or []):
            path = (*self.path, key, index)
            if isinstance(value, dict):
                yield Table(value, path, self._mistakes)
            else:
                self._mistakes.add(path, "is not a table", "write { key = value, ... }")

    def checked(self, key: str, value: str | None, check: Callable[[str], object]) -> bool:
        """Note what `check` raises as ValueError about a value; the message must say what would be right."""
        if value is None:
            return False
        try:
            check(value)
        except ValueError as error:
            self.mistake(key, "is not valid", str(error))
            return False
        return True
