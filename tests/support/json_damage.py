"""Damage to JSON documents: any value replaced by junk, as a hostile or broken provider might send it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from modelmeter_server.core.json_text import MAX_DEPTH, NotJson, loads_lenient

from .wire_bytes import body

Path = tuple[str | int, ...]

_RAW = {
    "raw:infinite": b"1e999",
    "raw:long": b"9" * 10_000,
    "raw:longer-than-int64": b"9" * 40,
    "raw:nan": b"NaN",
    "raw:minus-infinity": b"-Infinity",
    "raw:deep": b"[" * 3000 + b"]" * 3000,
    "raw:deep-enough": b'{"a":' * 400 + b"1" + b"}" * 400,
    "raw:half-a-character": b'"\\ud83d"',
    "raw:bad-utf-8": b'"\xff\xfe"',
    "raw:control": b'"\x00\x07"',
}
"""Text of values that `json.dumps` does not write, by the string that stands for it."""

UNREADABLE = ("raw:deep",)
"""Stand-ins whose presence makes a whole document unreadable."""

JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [None, True, False, 0, -1, 1.5, 2**63, -(2**70), "", "7", [], {}, [None], {"a": None}, [[]]]
    ),
    st.sampled_from(list(_RAW)),
    st.text(max_size=3),
)


def paths(document: object, prefix: Path = ()) -> Iterator[Path]:
    """Yield the path of every value in a document but its root."""
    if isinstance(document, dict):
        children: list[tuple[str | int, object]] = list(document.items())
    else:
        children = list(enumerate(document)) if isinstance(document, list) else []
    for name, child in children:
        yield (*prefix, name)
        yield from paths(child, (*prefix, name))


def replaced(document: Any, path: Path, value: object) -> Any:
    """Return a copy of the document with another value at the path."""
    document = copy.deepcopy(document)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return document


def without(document: Any, path: Path) -> Any:
    """Return a copy of the document without the member at the path."""
    document = copy.deepcopy(document)
    place = document
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return document


def spelled(document: object) -> bytes:
    """Return the document's JSON with the stand-ins replaced by what they stand for."""
    text = body(document)
    for name, raw in _RAW.items():
        text = text.replace(f'"{name}"'.encode(), raw)
    return text


def nest(depth: int) -> str:
    """Return JSON text of that many nested arrays."""
    return "[" * depth + "1" + "]" * depth


def critical_depths() -> list[int]:
    """Return depths of nesting at which readers and writers give up: where ours stops, and around Python's limit.

    What can be read from a shallow stack can perhaps not be written from a deeper one.
    """
    low, high = 100, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_readable(middle) else (low, middle)
    return [*range(MAX_DEPTH - 2, MAX_DEPTH + 3), *range(low - 40, low + 10), 100_000]


def _is_readable(depth: int) -> bool:
    try:
        loads_lenient(nest(depth).encode())
    except NotJson:
        return False
    return True
