"""What an output schema may look like before a validator sees it: its size, its references, its price.

Callers send schemas, so that a schema is input like any other: it must not make this service fetch anything, and
checking an answer against it must end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .caller_json import count_values, field_path, most_values, read_caller_json, remembering
from .json_text import NotJson
from .schema_graph import SchemaLoop, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 256 * 1024
"""Bytes of UTF-8."""
MAX_DEPTH: Final = 64
"""Nested arrays and objects."""
MAX_NODES: Final = 10_000
"""Values: objects, arrays, texts, numbers, booleans and nulls."""
MAX_PATTERNS: Final = 64
"""Regular expressions: a compiled one takes up to 1 MiB and 6 ms (measured with Unicode classes)."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS: Final = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
_DATA: Final = frozenset(("const", "enum", "default", "examples"))
_SHOWN_FAULTS: Final = 5


class SchemaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An output schema that keeps the limits."""

    schema: dict[str, object]
    patterns: int
    """How many regular expressions it holds."""
    recursive: bool
    """It refers to itself."""
    checkable: bool
    """An answer can be checked against it in bounded time."""


class SchemaUnfit(ValueError):
    """Report a schema that keeps not to the limits; the message says how and what to do."""


def read_schema(text: str) -> SchemaDocument:
    """Read an output schema. Raises SchemaUnfit with everything that is wrong with it."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        msg = f"must be at most {MAX_BYTES // 1024} KiB"
        raise SchemaUnfit(msg)
    if most_values(text) > MAX_NODES and count_values(text, MAX_NODES) > MAX_NODES:
        msg = f"must hold at most {MAX_NODES:,} values"
        raise SchemaUnfit(msg)
    try:
        schema = read_caller_json(text).value
    except NotJson as error:
        msg = f"must be JSON: {error}"
        raise SchemaUnfit(msg) from None
    if not isinstance(schema, dict):
        msg = "must be a JSON Schema as an object"
        raise SchemaUnfit(msg)
    patterns = sum(_patterns(schema, is_map=False))
    faults = [*_size_faults(schema, patterns), *_reference_faults(schema, "", is_map=False)]
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise SchemaUnfit("; ".join(faults[:_SHOWN_FAULTS]) + more)
    try:
        size = measure(schema)
    except SchemaLoop:
        msg = "refers to itself without going into the document, so that a check would never end"
        raise SchemaUnfit(msg) from None
    return SchemaDocument(
        schema=schema, patterns=patterns, recursive=size.recursive, checkable=size.checkable
    )


@remembering
def schema_complaint(text: str) -> str | None:
    """Return what `read_schema` finds wrong, or `None`."""
    try:
        read_schema(text)
    except SchemaUnfit as error:
        return str(error)
    return None


def _size_faults(schema: dict[str, object], patterns: int) -> Iterator[str]:
    nodes, depth = _extent(schema)
    if depth > MAX_DEPTH:
        yield f"must be nested at most {MAX_DEPTH} levels deep"
    if nodes > MAX_NODES:
        yield f"must hold at most {MAX_NODES:,} values"
    if patterns > MAX_PATTERNS:
        yield f"must hold at most {MAX_PATTERNS} regular expressions"


def _extent(value: object) -> tuple[int, int]:
    """Return how many values there are, and how deep arrays and objects are nested."""
    level, nodes, depth = [value], 0, 0
    while level:
        nodes += len(level)
        depth += any(isinstance(parent, dict | list) for parent in level)
        level = [child for parent in level for child in _children(parent)]
    return nodes, depth


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _patterns(node: object, *, is_map: bool) -> Iterator[int]:
    if isinstance(node, dict) and not is_map:
        yield isinstance(node.get("pattern"), str)
        named = node.get("patternProperties")
        yield len(named) if isinstance(named, dict) else 0
    for _, child, child_is_map in _schema_children(node, is_map=is_map):
        yield from _patterns(child, is_map=child_is_map)


def _reference_faults(node: object, path: str, *, is_map: bool) -> Iterator[str]:
    """Find what points out of the document; `is_map` says that the names of `node` are not keywords."""
    if isinstance(node, dict) and not is_map:
        yield from _own_faults(node, path)
    for step, child, child_is_map in _schema_children(node, is_map=is_map):
        yield from _reference_faults(child, field_path(path, step), is_map=child_is_map)


def _own_faults(node: dict[str, object], path: str) -> Iterator[str]:
    for keyword in _REFERENCES:
        target = node.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            yield f"`{field_path(path, keyword)}` must begin with `#`: nothing is ever fetched"
    name = node.get("$id")
    # An inner `$id` opens another document, to which `#` then refers. A fragment is an anchor of older drafts.
    if path and isinstance(name, str) and not name.startswith("#"):
        yield f"`{field_path(path, '$id')}` must stand at the top only"
    if isinstance(node.get("$schema"), str) and "draft-04" in str(node["$schema"]):
        yield f"`{field_path(path, '$schema')}` must not be draft 4: use draft 2020-12"


def _schema_children(node: object, *, is_map: bool) -> Iterator[tuple[str | int, object, bool]]:
    """Return the children that may hold schemas, unknown keywords included: a reference could lead into them."""
    if isinstance(node, list):
        yield from ((index, child, False) for index, child in enumerate(node))
    elif isinstance(node, dict):
        for name, child in node.items():
            if is_map or name not in _DATA:
                yield name, child, not is_map and name in _MAPS
