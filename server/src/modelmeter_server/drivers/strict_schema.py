"""Whether a schema lies in the subset that strict mode enforces. It is never rewritten, only refused with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.caller_json import field_path, remembering
from modelmeter_server.core.json_text import NotJson, loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_COMPLAINTS: Final = 8
"""Complaints that are told; a schema that was never meant for strict mode has one at every node."""

_LISTS: Final = ("anyOf", "oneOf", "allOf")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
_SINGLES: Final = ("items", "not")
_UNSUPPORTED: Final = (
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "default",
)
_KINDS: Final = ("type", "anyOf", "$ref", "enum", "const")


@remembering
def strict_complaints(text: str) -> tuple[str, ...]:
    """Return why the provider would reject the schema, with the place of each; empty if it would not."""
    try:
        document = loads_strict(text)
    except NotJson as error:
        return (f"it is not JSON: {error}",)
    if not isinstance(document, dict):
        return ("it is not a JSON Schema as an object",)
    found = [
        f"{place or 'the root'}: {complaint}"
        for place, node in _nodes(document)
        for complaint in _judge(node)
    ]
    if document.get("type") != "object":
        found.insert(0, 'the root: must have "type": "object"')
    return tuple(found[:MAX_COMPLAINTS])


def _nodes(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the schemas of the document, outer ones first, in the order of the text."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, dict):
            yield place, node
            waiting.extend(reversed(list(_inner(place, node))))


def _inner(place: str, node: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for keyword, value in node.items():
        where = field_path(place, keyword)
        if keyword in _SINGLES:
            yield where, value
        elif keyword in _LISTS and isinstance(value, list):
            yield from ((field_path(where, index), member) for index, member in enumerate(value))
        elif keyword in _MAPS and isinstance(value, dict):
            yield from ((field_path(where, name), member) for name, member in value.items())


def _judge(node: dict[str, Any]) -> Iterator[str]:
    for keyword in _UNSUPPORTED:
        if keyword in node:
            yield f"`{keyword}` is not supported"
    if not any(keyword in node for keyword in _KINDS):
        yield "needs one of `type`, `anyOf`, `$ref`, `enum`, `const`"
    kind = node.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "array" in kinds and "items" not in node:
        yield "an array needs `items`"
    if "object" in kinds:
        yield from _judge_object(node, is_nullable=len(kinds) > 1)


def _judge_object(node: dict[str, Any], *, is_nullable: bool) -> Iterator[str]:
    if is_nullable:
        yield "a nullable object must be written with `anyOf`"
    if node.get("additionalProperties") is not False:
        yield "an object needs `additionalProperties: false`"
    properties = node.get("properties")
    required = node.get("required")
    listed = required if isinstance(required, list) else []
    names = properties if isinstance(properties, dict) else {}
    optional = sum(name not in listed for name in names)
    if optional:
        yield f"every property must be in `required`; {optional} missing"
