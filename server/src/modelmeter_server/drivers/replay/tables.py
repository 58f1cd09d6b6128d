"""Strict reading of a script file's tables: every mistake is gathered, none is passed over.

A wrong value is noted and its default returned, so that reading goes on and finds the next mistake.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.toml_words import KeyPath, choices, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_SECONDS = 1_000_000


class ScriptMistake(msgspec.Struct, frozen=True):
    """One mistake in a script file."""

    path: KeyPath
    """Empty when the file as a whole cannot be read."""
    problem: str
    fix: str

    def __str__(self) -> str:
        return ": ".join(part for part in (written(self.path), f"{self.problem}; {self.fix}") if part)


class ScriptMistakes(ValueError):
    """Scripts that cannot be played, with every mistake in them."""

    def __init__(self, mistakes: Iterable[ScriptMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class Table:
    """One table. Read every key that may stand in it, then call `close`."""

    def __init__(self, values: dict[str, Any], path: KeyPath, mistakes: list[ScriptMistake]) -> None:
        """Read from `values`, which stand at `path`; add what is wrong to `mistakes`."""
        self.path = path
        self._values = values
        self._mistakes = mistakes
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def mistake(self, key: str | None, problem: str, fix: str) -> None:
        """Note a mistake at a key of this table, or at the table itself."""
        path = self.path if key is None else (*self.path, key)
        self._mistakes.append(ScriptMistake(path, problem, fix))

    def is_mistaken(self, key: str) -> bool:
        """Say whether a mistake was noted at this very key."""
        return any(mistake.path == (*self.path, key) for mistake in self._mistakes)

    def close(self) -> None:
        """Note every key that nobody asked for."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                fix = (
                    f'did you mean "{near[0]}"?'
                    if near
                    else f"known here are {', '.join(sorted(self._known))}"
                )
                self.mistake(key, "unknown key", fix)

    def value(self, key: str) -> Any:
        """Return the value as it stands, or `None` when it is absent."""
        self._known.append(key)
        return self._values.get(key)

    def _typed(self, key: str, kinds: type | tuple[type, ...], expected: str) -> Any:
        value = self.value(key)
        # A bool is an int in Python, and not in TOML.
        if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
            return value
        self.mistake(key, "has the wrong type", f"write {expected}")
        return None

    def text(self, key: str) -> str | None:
        """Return a string, which may be empty."""
        value: str | None = self._typed(key, str, "a string in quotes")
        return value

    def word(self, key: str) -> str | None:
        """Return a string that is not empty."""
        value = self.text(key)
        if value is not None and not value.strip():
            self.mistake(key, "is empty", "give it a value or remove it")
            return None
        return value

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        """Return one of the allowed words."""
        value = self.word(key)
        if value is not None and value not in allowed:
            self.mistake(key, f'"{value}" is not known', f"write {choices(allowed)}")
            return None
        return value

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        """Return an integer within bounds, both included."""
        expected = f"an integer from {least:,} to {most:,}"
        value: int | None = self._typed(key, int, expected)
        if value is not None and not least <= value <= most:
            self.mistake(key, "is out of range", f"write {expected}")
            return None
        return value

    def seconds(self, key: str) -> float:
        """Return a number of seconds, 0 when it is absent."""
        expected = f"a number of seconds from 0 to {_MOST_SECONDS:,}"
        value = self._typed(key, (int, float), expected)
        if value is not None and not 0 <= value <= _MOST_SECONDS:
            self.mistake(key, "is out of range", f"write {expected}")
            return 0.0
        return float(value or 0)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.mistake(key, "has the wrong type", "write true or false")
        return default

    def table(self, key: str, expected: str = "a table") -> Table | None:
        """Return the table inside this one, or `None` when it is absent."""
        value = self._typed(key, dict, expected)
        return None if value is None else self._inner(value, key)

    def named_tables(self) -> Iterator[tuple[str, Table]]:
        """Yield the tables in here, whose keys are names."""
        for name in list(self._values):
            table = self.table(name)
            if table is not None:
                yield name, table

    def tables(self, key: str) -> list[Table]:
        """Return the tables of an array; none when it is absent."""
        found = []
        for index, value in enumerate(self._typed(key, list, "an array of tables") or []):
            if isinstance(value, dict):
                found.append(self._inner(value, key, index))
            else:
                path = (*self.path, key, index)
                self._mistakes.append(ScriptMistake(path, "is not a table", "write { key = value, ... }"))
        return found

    def _inner(self, values: dict[str, Any], *keys: str | int) -> Table:
        return Table(values, (*self.path, *keys), self._mistakes)
