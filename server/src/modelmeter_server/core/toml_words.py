"""How mistakes in a TOML file name its keys and what they may be. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KeyPath = tuple[str | int, ...]
"""Keys from the root of the file; an integer is a position in an array."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def written(path: KeyPath) -> str:
    """Write a path as TOML would: `models."my model".price.tiers[1]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if _BARE_KEY.fullmatch(key) else f'"{key}"')
    return text


def choices(allowed: Iterable[str]) -> str:
    """Write the allowed words as a sentence has them: `a`, `b` or `c`."""
    *rest, last = [f'"{word}"' for word in allowed]
    return f"{', '.join(rest)} or {last}" if rest else last
