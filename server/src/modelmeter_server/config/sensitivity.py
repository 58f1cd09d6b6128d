"""How confidential things are, as configurations spell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.requests import Sensitivity

if TYPE_CHECKING:
    from .tables import Table

WORDS = {each.name.lower(): each for each in Sensitivity}


def read_sensitivity(table: Table, key: str, default: Sensitivity) -> Sensitivity:
    """Return the level that a key names; a word that is none is noted."""
    return WORDS[table.choice(key, WORDS, default.name.lower())]
