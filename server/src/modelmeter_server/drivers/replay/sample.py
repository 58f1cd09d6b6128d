"""A sample value for a JSON Schema: small, the same every time, and satisfying the schema where that is easy.

Understood are types, `enum`, `const`, `$ref` within the document, `allOf`, `anyOf`, `oneOf`, properties, items, bounds,
`multipleOf`, lengths, `uniqueItems` and the common formats. `pattern`, `not`, `if`, `contains` and their kin are not:
a script gives its own `structured` value for such a schema. Whatever the schema, the work is bounded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_STEPS = 2_000
"""Schemas visited for one sample; a schema without a finite value uses them up."""
MOST_DEPTH = 24
MOST_ITEMS = 100
MOST_CHARACTERS = 10_000

WORD = "sample"

_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "sample@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/sample",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_TYPE_BY_KEYWORD = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


class _NoSample(Exception):
    """There is no value within the bounds."""


def sample(schema: Any) -> Any:
    """Return a value for the schema; `None` where no value can be found."""
    try:
        return _Sampler(schema).value(schema)
    except _NoSample:
        return None


class _Sampler:
    """Walk one schema document."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def value(self, schema: Any, depth: int = 0, variant: int = 0) -> Any:
        """Return a value; `variant` numbers the items of an array, which may have to differ."""
        if schema is False:
            raise _NoSample
        if not isinstance(schema, dict):
            return WORD
        for plain in self._alternatives(schema, depth):
            try:
                return self._plain(plain, depth, variant)
            except _NoSample:
                continue
        raise _NoSample

    def _alternatives(self, schema: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
        """Yield the schema without references and combinations, one for each way to satisfy them."""
        self._steps += 1
        if depth > MOST_DEPTH or self._steps > MOST_STEPS:
            raise _NoSample
        if "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            yield from self._alternatives(_merged(self._resolved(schema["$ref"]), rest), depth + 1)
        elif "allOf" in schema:
            whole = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                whole = _merged(whole, part)
            yield from self._alternatives(whole, depth + 1)
        elif key := next((key for key in ("anyOf", "oneOf") if key in schema), None):
            rest = {name: value for name, value in schema.items() if name != key}
            # What refers elsewhere may come back here; an alternative that does not ends the walk.
            for each in sorted(schema[key], key=lambda each: "$ref" in str(each)):
                try:
                    yield from self._alternatives(_merged(rest, each), depth + 1)
                except _NoSample:
                    continue
        else:
            yield schema

    def _resolved(self, reference: Any) -> Any:
        target = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _NoSample
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                raise _NoSample
        return target

    def _plain(self, schema: dict[str, Any], depth: int, variant: int) -> Any:
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][variant % len(schema["enum"])]
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as type:
                return _number(schema, variant, is_integer=type == "integer")
            case "boolean":
                return variant % 2 == 0
            case "null":
                return None
            case _:
                return _string(schema, variant)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        value = {}
        for name, inner in properties.items():
            if name in required:
                value[name] = self.value(inner, depth + 1)
            elif "maxProperties" not in schema:
                self._add_optional(value, name, inner, depth)
        for name in required:
            if name not in value:
                value[name] = self.value(schema.get("additionalProperties", True), depth + 1)
        return value

    def _add_optional(self, value: dict[str, Any], name: str, schema: Any, depth: int) -> None:
        # An optional reference may lead back to where we are, without end.
        if isinstance(schema, dict) and "$ref" in schema:
            return
        try:
            value[name] = self.value(schema, depth + 1)
        except _NoSample:
            return

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        most = min(schema.get("maxItems", MOST_ITEMS), MOST_ITEMS)
        first = (schema.get("prefixItems") or [])[: int(most)]
        value = [self.value(each, depth + 1) for each in first]
        items = schema.get("items", True)
        # One item shows what the others would be; a reference may lead back to where we are.
        is_shown = isinstance(items, dict) and items and "$ref" not in items
        count = min(max(schema.get("minItems", 0), 1 if is_shown else 0), most)
        must_differ = schema.get("uniqueItems") is True
        while len(value) < count:
            value.append(self.value(items, depth + 1, len(value) - len(first) if must_differ else 0))
        return value


def _merged(one: Any, other: Any) -> dict[str, Any]:
    """Return a schema that asks for both, as far as plain keywords go."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        if one is False or other is False:
            raise _NoSample
        return one if isinstance(one, dict) else other if isinstance(other, dict) else {}
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    if "allOf" in one and "allOf" in other:
        both["allOf"] = [*one["allOf"], *other["allOf"]]
    return both


def _type_of(schema: dict[str, Any]) -> str:
    type = schema.get("type")
    if isinstance(type, list):
        return next((each for each in type if each != "null"), "null")
    if isinstance(type, str):
        return type
    return next((type for type, keys in _TYPE_BY_KEYWORD if any(key in schema for key in keys)), "string")


def _number(schema: dict[str, Any], variant: int, *, is_integer: bool) -> float | int:
    """Return 1, moved as little as bounds and steps ask for."""
    low, high = _bounds(schema, is_integer=is_integer)
    step = schema.get("multipleOf") or (1 if is_integer else 0)
    value = min(max(1, low), high)
    if step:
        value = math.ceil(value / step) * step
        value = value if value <= high else math.floor(high / step) * step
    shift = variant * (step or 1)
    if value + shift <= high:
        value += shift
    elif value - shift >= low:
        value -= shift
    return int(value) if is_integer else value


def _bounds(schema: dict[str, Any], *, is_integer: bool) -> tuple[float, float]:
    """Return the least and the greatest value that will do."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if is_integer:
        return max(low, math.floor(above) + 1 if above > -math.inf else above), min(
            high, math.ceil(below) - 1 if below < math.inf else below
        )
    return max(low, math.nextafter(above, math.inf)), min(high, math.nextafter(below, -math.inf))


def _string(schema: dict[str, Any], variant: int) -> str:
    text = _FORMATS.get(schema.get("format", ""))
    if text is None:
        text = WORD if not variant else f"{WORD} {variant + 1}"
    least = min(schema.get("minLength", 0), MOST_CHARACTERS)
    text = text.ljust(least, ".")
    return text[: schema["maxLength"]] if "maxLength" in schema else text
