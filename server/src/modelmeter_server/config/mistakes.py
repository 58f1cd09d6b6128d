"""Mistakes of a configuration: all of them at once, each with its place and the way to mend it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.toml_words import KeyPath, written

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .positions import SourceLines


class Mistake(msgspec.Struct, frozen=True):
    """One mistake."""

    where: str
    """`file:line`, or what else the value came from, such as `environment variable MODELMETER_LISTEN`."""
    path: str
    """The key as one would write it in TOML; empty for a file that is not TOML."""
    problem: str
    fix: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.path, f"{self.problem}; {self.fix}") if part)


class ConfigError(Exception):
    """The configuration has mistakes; the server does not start with a part of it."""

    def __init__(self, mistakes: Iterable[Mistake], files: Iterable[Path] = ()) -> None:
        """`files` are those that the configuration names, whether or not they could be read."""
        self.mistakes = tuple(mistakes)
        self.files = tuple(files)
        super().__init__("\n".join(map(str, self.mistakes)))


class Mistakes:
    """Gather the mistakes of one document, and know where each of its values came from."""

    def __init__(self, source: str, lines: SourceLines | None = None) -> None:
        """`source` is the file's name as messages show it; without `lines` they show it alone."""
        self._source = source
        self._lines = lines
        self.files: dict[KeyPath, Path] = {}
        """The files that keys of the document name."""
        self._origins: dict[KeyPath, str] = {}
        self._found: list[tuple[int, Mistake]] = []

    def __len__(self) -> int:
        return len(self._found)

    def set_origin(self, path: KeyPath, origin: str) -> None:
        """Remember that this value did not come from the file."""
        self._origins[path] = origin

    def add(self, path: KeyPath, problem: str, fix: str) -> None:
        """Add a mistake. Neither text may quote a value that could be a secret."""
        line = self._lines.line(path) if self._lines else 0
        found = (line, Mistake(self._where(path, line), written(path), problem, fix))
        if found not in self._found:  # what several targets have in common is read for each of them
            self._found.append(found)

    def add_from(self, path: KeyPath, mistake: Mistake) -> None:
        """Add a mistake of another file, which this key names."""
        self._found.append((self._lines.line(path) if self._lines else 0, mistake))

    def _where(self, path: KeyPath, line: int) -> str:
        for end in range(len(path), 0, -1):
            if path[:end] in self._origins:
                return self._origins[path[:end]]
        return f"{self._source}:{line}" if self._lines else self._source

    def raise_if_any(self) -> None:
        """Raise ConfigError with every mistake in the order of the file, if there is one."""
        if self._found:
            found = sorted(self._found, key=lambda found: found[0])
            raise ConfigError((mistake for _, mistake in found), self.files.values())


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is closest to this one, or `None` when none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return close[0] if close else None
