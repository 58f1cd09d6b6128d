"""The limits of an output schema, before any validator sees it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from modelmeter_server.core.schema_document import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    MAX_PATTERNS,
    SchemaUnfit,
    read_schema,
)


def read(schema: Any):
    return read_schema(json.dumps(schema))


def unfit(schema: Any) -> str:
    with pytest.raises(SchemaUnfit) as caught:
        read(schema)
    return str(caught.value)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def doubling(count: int, keyword: str = "allOf") -> dict[str, Any]:
    """Return definitions that each refer twice to the next."""
    rows: dict[str, Any] = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(count)}
    return {"$defs": {**rows, f"d{count}": {"type": "string"}}, "$ref": "#/$defs/d0"}


NEXT = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
TREE = {"$defs": {"node": {"type": "object", "properties": {"next": NEXT}}}, "$ref": "#/$defs/node"}


def test_bytes_are_limited():
    room = MAX_BYTES - len(json.dumps({"title": ""}))
    assert not read({"title": "x" * room}).recursive
    assert "256 KiB" in unfit({"title": "x" * (room + 1)})


def test_depth_is_limited():
    assert read(nested(MAX_DEPTH)).checkable
    assert "64 levels" in unfit(nested(MAX_DEPTH + 1))


def test_nodes_are_limited():
    assert read({"enum": [0] * (MAX_NODES - 2)}).checkable
    assert "10,000 values" in unfit({"enum": [0] * (MAX_NODES - 1)})


def test_patterns_are_limited():
    def patterned(count: int) -> dict[str, Any]:
        inner = {f"p{number}": {"pattern": "a"} for number in range(count - 1)}
        return {"properties": inner, "patternProperties": {"^x": {}}}

    assert read(patterned(MAX_PATTERNS)).patterns == MAX_PATTERNS
    assert "64 regular expressions" in unfit(patterned(MAX_PATTERNS + 1))
    assert read({"properties": {"pattern": {"type": "string"}}}).patterns == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "true", "5", '{"a":NaN}', '{"type":"object","type":"array"}']
)
def test_a_schema_is_one_json_object(text):
    with pytest.raises(SchemaUnfit, match="must be"):
        read_schema(text)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize(
    "target", ["http://a.example/x", "file:///etc/passwd", "x.json#/a", "//a.example", "", "urn:x"]
)
def test_a_reference_to_elsewhere_is_refused_with_its_place(keyword, target):
    reason = unfit({"properties": {"a": {"items": {keyword: target}}}})
    assert f"`properties.a.items.{keyword}`" in reason
    assert "nothing is ever fetched" in reason


def test_every_reference_to_elsewhere_is_reported():
    reason = unfit({"$ref": "a", "x-own": {"$ref": "b"}, "$defs": {"c": {"$ref": "c"}}})
    assert reason.count("nothing is ever fetched") == 3
    many = unfit({"allOf": [{"$ref": "a"}] * 9})
    assert many.endswith("; and 4 more")


def test_data_that_looks_like_a_reference_is_just_data():
    data = {"$ref": "http://a.example/x"}
    schema = {
        "const": data,
        "enum": [data],
        "default": data,
        "examples": [data],
        "properties": {"$ref": {"type": "string"}, "const": {"type": "string"}},
    }
    assert read(schema).checkable
    assert "nothing is ever fetched" in unfit({"properties": {"const": data}})


def test_an_inner_id_is_refused_and_the_outer_one_is_just_a_name():
    assert read({"$id": "https://a.example/x", "$ref": "#/$defs/a", "$defs": {"a": {}}}).checkable
    assert "must stand at the top only" in unfit({"$defs": {"a": {"$id": "https://a.example/x"}}})


def test_draft_4_is_refused():
    assert "draft 2020-12" in unfit({"$schema": "http://json-schema.org/draft-04/schema#"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"not": {"anyOf": [True, {"$ref": "#"}]}},
        {"$defs": {"a": {"if": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$dynamicAnchor": "x", "oneOf": [{"$dynamicRef": "#x"}]},
        {"$anchor": "x", "dependentSchemas": {"a": {"$ref": "#x"}}},
        {"properties": {"a/b": {"anyOf": [{"$ref": "#/properties/a~1b"}]}}},
    ],
)
def test_a_loop_that_stays_in_place_is_refused(schema):
    assert "would never end" in unfit(schema)


def test_a_loop_that_goes_into_the_document_is_fine():
    tree = read(TREE)
    assert tree.recursive
    assert tree.checkable
    assert not read({"properties": {"a": {"type": "string"}}}).recursive


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_are_found_at_once(keyword):
    assert read(doubling(10, keyword)).checkable
    start = time.perf_counter()
    assert not read(doubling(40, keyword)).checkable
    assert time.perf_counter() - start < 2


def test_loops_that_multiply_are_found_too():
    names = range(16)
    ways = {"anyOf": [{"$ref": f"#/$defs/d{name}"} for name in names]}
    schema = {"$defs": {f"d{name}": {"properties": {"a": ways}} for name in names}, "$ref": "#/$defs/d0"}
    assert not read(schema).checkable


def test_collecting_what_was_evaluated_counts_more_than_once():
    schema: dict[str, Any] = {"properties": {"a": True}}
    for _ in range(20):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    assert not read(schema).checkable


def test_a_reference_to_nothing_is_the_validators_to_report():
    assert read({"$ref": "#/nothing/0"}).checkable
    assert read({"allOf": [{}], "$ref": "#/allOf/7"}).checkable
