"""JSON text that callers wrote: read strictly, and fit to be embedded in a provider's body as it stands.

Key order steers generation and prompt caches, and integers must stay integers, so that caller JSON is embedded as
text and not written anew. What is judged here must then be what the provider reads: text that two parsers could read
in two ways is refused.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from .json_text import NotJson, dumps_compact, loads_strict
from .text import cut_utf8, well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

REMEMBERED_TEXTS: Final = 256
REMEMBERED_LENGTH: Final = 16_384
"""Characters of a text that is remembered; with `REMEMBERED_TEXTS` at most 16 MiB for each function."""

_SHOWN_NAME_BYTES: Final = 64
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_$-]{1,64}")
# A text, also one that never ends. Possessive: no input makes it look twice.
_TEXT: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


class CallerJson(msgspec.Struct, frozen=True):
    """One JSON document of a caller."""

    value: object
    text: str
    """The text to embed: the caller's own, unless it needs mending to be valid UTF-8."""


def read_caller_json(text: str) -> CallerJson:
    """Read one JSON document. Raises NotJson for what `loads_strict` refuses and for a name told twice.

    Of a name that is told twice one parser takes the first value and another the last: the document that is checked
    here could differ from the document that the provider obeys.
    """
    value = loads_strict(text)
    _UNIQUE.decode(well_formed(text))
    if _SURROGATE_ESCAPE.search(text):
        # Half a character can stand in an escape and in no UTF-8; writing the value anew joins or replaces it.
        return CallerJson(value, dumps_compact(value))
    return CallerJson(value, well_formed(text))


def most_values(text: str) -> int:
    """Return how many values JSON text has at most; nothing is parsed, so that it costs next to nothing."""
    return 1 + text.count(",") + text.count("[") + text.count("{")


def count_values(text: str, limit: int) -> int:
    """Return how many values JSON text has, or any number above `limit` if it has more; nothing is parsed.

    A comma parts two values, and an array or object that is not empty begins with one. An empty one with white space
    in it counts as two.
    """
    values, names_and_texts, position = 1, 0, 0
    while True:
        quote = text.find('"', position)
        end = len(text) if quote < 0 else quote
        values += sum(text.count(mark, position, end) for mark in (",", "[", "{"))
        values -= text.count("[]", position, end) + text.count("{}", position, end)
        if quote < 0 or values > limit:
            return values
        names_and_texts += 1
        if names_and_texts > 2 * limit:  # more than there can be names and values
            return limit + 1
        match = _TEXT.match(text, quote)
        assert match is not None
        position = match.end()


def remembering(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
    """Return a function that remembers its results: agents send the same tools and schemas with every turn."""
    remembered = lru_cache(REMEMBERED_TEXTS)(function)

    def recall(text: str) -> _Result:
        return remembered(text) if len(text) <= REMEMBERED_LENGTH else function(text)

    return recall


def field_path(path: str, step: str | int) -> str:
    """Return the path one step deeper, in the spelling of field paths; odd names are quoted and cut."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if _PLAIN_NAME.fullmatch(step):
        return f"{path}.{step}" if path else step
    return f"{path}[{dumps_compact(cut_utf8(step, _SHOWN_NAME_BYTES))}]"


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # add returns None
        reason = f"the name {dumps_compact(cut_utf8(twice, _SHOWN_NAME_BYTES))} stands twice in one object"
        raise NotJson(reason)
    return members


_UNIQUE: Final = json.JSONDecoder(object_pairs_hook=_unique_names)
