"""The key `scripts` of a replay provider: a file of its own, whose mistakes are told with its own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.toml_words import written
from modelmeter_server.drivers.replay.book import ScriptBook, builtin_scripts, load_scripts
from modelmeter_server.drivers.replay.tables import ScriptMistake, ScriptMistakes

from .files import readable_file
from .mistakes import Mistake
from .positions import SourceLines

if TYPE_CHECKING:
    from pathlib import Path

    from .tables import Table


def read_scripts(table: Table, folder: Path) -> ScriptBook:
    """Return what the provider plays: the built-in scripts, and those of the file that `scripts` names."""
    path = readable_file(table, "scripts", table.text("scripts"), folder)
    if path is None:
        return builtin_scripts()
    try:
        return load_scripts(path)
    except ScriptMistakes as error:
        for mistake in error.mistakes:
            table.mistake_of("scripts", _placed(mistake, path))
        return builtin_scripts()


def _placed(mistake: ScriptMistake, path: Path) -> Mistake:
    where = str(path)
    if mistake.path:
        # A mistake that has a path is one of a file that could be read as TOML.
        lines = SourceLines(path.read_text(encoding="utf-8-sig"))
        where = f"{path}:{lines.line(mistake.path)}"
    return Mistake(where, written(mistake.path), mistake.problem, mistake.fix)
