"""All scripts of one provider instance by name: those that are always there, and those of a file."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parse import parse_scripts
from .tables import ScriptMistake, ScriptMistakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .script import Script

_BUILTIN = Path(__file__).with_name("builtin.toml")


class ScriptBook:
    """Find scripts by name."""

    def __init__(self, scripts: Iterable[Script]) -> None:
        """Take the scripts in the order in which messages list them."""
        self._scripts = {script.name: script for script in scripts}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all scripts."""
        return tuple(self._scripts)

    def find(self, name: str) -> Script | None:
        """Return the script of this name, or `None`."""
        return self._scripts.get(name)

    def __iter__(self) -> Iterator[Script]:
        """Yield the scripts in that order."""
        return iter(self._scripts.values())


@cache
def builtin_scripts() -> ScriptBook:
    """Return the scripts that are always there."""
    return ScriptBook(parse_scripts(_document(_BUILTIN)))


def load_scripts(path: Path) -> ScriptBook:
    """Return the built-in scripts and those of a TOML file.

    Raises:
        ScriptMistakes: with every mistake, or the one that keeps the file from being read.
    """
    own = parse_scripts(_document(path))
    taken = [script.name for script in own if builtin_scripts().find(script.name)]
    if taken:
        raise ScriptMistakes(
            ScriptMistake(("scripts", name), "is the name of a built-in script", "choose another name")
            for name in taken
        )
    return ScriptBook([*builtin_scripts(), *own])


def _document(path: Path) -> dict[str, Any]:
    try:
        # Editors on Windows put a byte order mark in front.
        return tomllib.loads(path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))
    except OSError as error:
        problem, fix = f"cannot be read: {error.strerror}", "correct the path or its permissions"
    except UnicodeDecodeError as error:
        problem, fix = f"is not UTF-8 at byte {error.start}", "save it as UTF-8"
    except ValueError as error:
        problem, fix = f"is not TOML: {error}", "correct the syntax; further mistakes show only then"
    except RecursionError:
        problem, fix = "is nested too deeply", "write flatter tables"
    raise ScriptMistakes([ScriptMistake((), problem, fix)])
