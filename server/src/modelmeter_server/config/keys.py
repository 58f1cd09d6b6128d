"""The keys of a provider instance: from the environment, from files, from commands, one or several."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from modelmeter_server.drivers.keys import is_key, read_key_file
from modelmeter_server.drivers.keys.command import TTL

from .files import readable_file
from .secret import Secret
from .settings import KeySettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .kinds import ProviderKind
    from .tables import Table

_CONVENTIONAL_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_SOURCES = ("api_key_env", "api_key_envs", "api_key_file", "api_key_command", "api_keys")
_Source = tuple[str, ...]
"""What tells one source of keys from another: its sort, and where it is."""

_NO_KEY = "store the bare key: one word of printable ASCII"


def has_key(table: Table) -> bool:
    """Say whether the table names a source of keys."""
    return any(source in table for source in _SOURCES)


def refuse_key(table: Table, example: str) -> bool:
    """Note a key that stands in the file itself; say whether there is one."""
    return table.refuse("api_key", "a key may not stand in the file", _advice(example))


def _advice(example: str) -> str:
    return f'put the key into the environment and write api_key_env = "{example}"'


class KeyReader:
    """Read the keys of provider instances."""

    def __init__(self, environ: Mapping[str, str] | None, folder: Path) -> None:
        """Relative paths start at `folder`. With `environ` of `None` keys are left unread and unchecked."""
        self._environ = environ
        self._folder = folder

    def read(self, table: Table, kind: ProviderKind, *, needed: bool) -> tuple[KeySettings, ...]:
        """Return the keys of one instance; its mistakes are noted."""
        if refuse_key(table, kind.key_example):
            return ()
        named = [source for source in _SOURCES if source in table]
        for source in named[1:]:
            fix = f"remove this or {named[0]}, or write api_keys = [...]"
            table.mistake(source, "there are two sources for one key", fix)
        if needed and not named:
            table.mistake(None, "has no key", f"{_advice(kind.key_example)}, or api_key_file")
        found = tuple(self._found(table))
        return () if self._environ is None else found

    def _found(self, table: Table) -> Iterator[KeySettings]:
        seen: set[_Source] = set()
        variables = (table.text("api_key_env"), *(table.texts("api_key_envs") or ()))
        for variable in filter(None, variables):
            key = "api_key_env" if variable == variables[0] else "api_key_envs"
            yield from self._of_variable(table, key, variable, seen)
        yield from self._of_file(table, "api_key_file", seen)
        ttl = table.seconds("api_key_ttl", TTL)
        if "api_key_ttl" in table and "api_key_command" not in table:
            table.mistake("api_key_ttl", "goes with api_key_command", "remove it")
        yield from self._of_command(table, "api_key_command", ttl, seen)
        for each in table.tables("api_keys"):
            yield from self._of_table(each, seen)
        for key in ("api_key_envs", "api_keys"):
            if key in table and not table.peek(key):
                table.mistake(key, "names no key", "name one at least, or remove it")

    def _of_table(self, table: Table, seen: set[_Source]) -> Iterator[KeySettings]:
        named = [key for key in ("env", "file", "command") if key in table]
        if len(named) != 1:
            fix = 'write { env = "NAME" }, { file = "PATH" } or { command = ["PROGRAM"] }'
            table.mistake(None, "needs one source of one key", fix)
        variable = table.text("env")
        if variable is not None:
            yield from self._of_variable(table, "env", variable, seen)
        yield from self._of_file(table, "file", seen)
        ttl = table.seconds("ttl", TTL)
        if "ttl" in table and "command" not in table:
            table.mistake("ttl", "goes with command", "remove it")
        yield from self._of_command(table, "command", ttl, seen)
        table.close()

    def _of_variable(
        self, table: Table, key: str, variable: str, seen: set[_Source]
    ) -> Iterator[KeySettings]:
        _note(table, key, ("env", variable), seen)
        if self._environ is None:
            return
        value = self._environ.get(variable, "").strip()
        if value and is_key(value):
            yield KeySettings(value=Secret(value))
        elif value:
            table.mistake(key, "what it names holds no key", _NO_KEY)
        else:
            # Whoever pasted the key itself here must not find it in a log.
            name = f" {variable}" if _CONVENTIONAL_VARIABLE.fullmatch(variable) else " that it names"
            problem = f"the environment variable{name} is not set"
            table.mistake(key, problem, "set it, or use api_key_file")

    def _of_file(self, table: Table, key: str, seen: set[_Source]) -> Iterator[KeySettings]:
        name = table.text(key)
        path = readable_file(table, key, name, self._folder) if self._environ is not None else None
        if path is None:
            return
        _note(table, key, ("file", str(path.resolve())), seen)
        value = read_key_file(path)
        if is_key(value):
            yield KeySettings(value=Secret(value), file=path)
        else:
            table.mistake(key, "what it names holds no key", _NO_KEY)

    def _of_command(self, table: Table, key: str, ttl: float, seen: set[_Source]) -> Iterator[KeySettings]:
        argv = table.get(key, list, 'an array such as ["PROGRAM", "ARGUMENT"]: no shell reads it')
        if argv is None:
            return
        if not argv or not all(isinstance(each, str) and "\0" not in each for each in argv) or not argv[0]:
            table.mistake(key, "is no command", 'write ["PROGRAM", "ARGUMENT"]: no shell reads it')
            return
        program = argv[0]
        if "/" in program:
            program = str(self._folder / os.path.expanduser(program))
        if self._environ is not None and shutil.which(program, path=self._environ.get("PATH")) is None:
            table.mistake(key, f"there is no program {program}", "correct the name, or install it")
            return
        _note(table, key, ("command", program, *argv[1:]), seen)
        yield KeySettings(command=(program, *argv[1:]), ttl=ttl)


def _note(table: Table, key: str, source: _Source, seen: set[_Source]) -> None:
    """Note a mistake where a source is named that was named before: its key would count as two."""
    if source in seen:
        table.mistake(key, "names a key that is there already", "name each key once")
    seen.add(source)
