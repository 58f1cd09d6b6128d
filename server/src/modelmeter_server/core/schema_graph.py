"""How much work a schema can make: loops that never end, and references that multiply.

Validators evaluate a referred schema where it is referred to. Ten definitions that each refer twice to the next are
a thousand evaluations, forty are a million million; a loop that does not go into the document never ends (one
overflowed the validator's stack). Both were found by running random schemas against the validator; with the limit
here, its slowest check of 40,000 took milliseconds. The validator remembers what it saw on its way through a loop
that goes into the document, so that a loop counts once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EVALUATIONS: Final = 50_000
"""Schemas evaluated with all references put in place. Five times what a document without references can hold."""

# Collecting what was evaluated repeats the work below it, about 2.6 times (measured).
_UNEVALUATED: Final = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_REPEATS: Final = 3

_HERE_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf"))
_HERE: Final = frozenset(("not", "if", "then", "else"))
_HERE_MAPS: Final = frozenset(("dependentSchemas", "dependencies"))
_REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_BELOW: Final = frozenset(
    ("items", "additionalItems", "contains", "additionalProperties", "propertyNames", *_UNEVALUATED)
)
_BELOW_LISTS: Final = frozenset(("items", "prefixItems"))
_BELOW_MAPS: Final = frozenset(("properties", "patternProperties"))
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")

_Edge = tuple[object, int, int]
"""The schema that is evaluated, how often, and 1 if it looks into the document, else 0."""


class SchemaLoop(ValueError):
    """Report a schema that refers to itself at one and the same place of the document."""


class SchemaSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a check costs at most."""

    recursive: bool
    checkable: bool
    """At most `MAX_EVALUATIONS` schemas are evaluated."""


def measure(schema: dict[str, object]) -> SchemaSize:
    """Count the schemas that a check evaluates, along every path. Raises SchemaLoop."""
    graph = _Graph(schema)
    evaluations = 0
    recursive = False
    places: dict[int, int] = {}  # of the schemas on the path: how far into the document each was reached
    waiting: list[tuple[object, int, int]] = [(schema, 1, 0)]
    while waiting:
        node, times, place = waiting.pop()
        if place < 0:
            del places[id(node)]
            continue
        evaluations += times
        if evaluations > MAX_EVALUATIONS:
            return SchemaSize(recursive=True, checkable=False)
        if not isinstance(node, dict):
            continue
        if id(node) in places:
            if places[id(node)] == place:
                raise SchemaLoop
            recursive = True
            continue
        places[id(node)] = place
        waiting.append((node, 0, -1))
        waiting.extend((child, times * factor, place + step) for child, factor, step in graph.edges(node))
    return SchemaSize(recursive=recursive, checkable=True)


class _Graph:
    """The schemas of one document and what each one leads to."""

    def __init__(self, root: dict[str, object]) -> None:
        self._root = root
        self._edges: dict[int, list[_Edge]] = {}
        self._anchors: dict[str, object] | None = None

    def edges(self, node: dict[str, object]) -> list[_Edge]:
        known = self._edges.get(id(node))
        if known is None:
            known = self._edges[id(node)] = list(self._own_edges(node))
        return known

    def _own_edges(self, node: dict[str, object]) -> Iterator[_Edge]:
        factor = _REPEATS if _UNEVALUATED & node.keys() else 1
        for name, value in node.items():
            if name in _REFERENCES and isinstance(value, str):
                yield self._target(value), factor, 0
            elif name in _HERE_LISTS and isinstance(value, list):
                yield from ((child, factor, 0) for child in value)
            elif name in _HERE:
                yield value, factor, 0
            elif name in _HERE_MAPS and isinstance(value, dict):
                yield from ((child, factor, 0) for child in value.values())
            elif name in _BELOW_LISTS and isinstance(value, list):
                yield from ((child, 1, 1) for child in value)
            elif name in _BELOW_MAPS and isinstance(value, dict):
                yield from ((child, 1, 1) for child in value.values())
            elif name in _BELOW:
                yield value, factor if name in _UNEVALUATED else 1, 1

    def _target(self, reference: str) -> object:
        """Return what a local reference refers to; `None` if nothing, which is the validator's to report."""
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            return self._named().get(fragment)
        node: object = self._root
        for step in fragment.split("/")[1:]:
            node = _member(node, step.replace("~1", "/").replace("~0", "~"))
        return node

    def _named(self) -> dict[str, object]:
        if self._anchors is None:
            self._anchors = {}
            waiting: list[object] = [self._root]
            while waiting:
                node = waiting.pop()
                if isinstance(node, dict):
                    for keyword in ("$anchor", "$dynamicAnchor", "$id"):
                        name = node.get(keyword)
                        if isinstance(name, str):
                            self._anchors[name.removeprefix("#")] = node
                waiting.extend(
                    node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
                )
        return self._anchors


def _member(node: object, step: str) -> object:
    if isinstance(node, dict):
        return node.get(step)
    if isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
        return node[int(step)]
    return None
