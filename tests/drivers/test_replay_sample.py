"""A sample satisfies its schema, or there is none; the work is bounded whatever the schema."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.drivers.replay.sample import MOST_CHARACTERS, MOST_ITEMS, sample

NAMES = st.sampled_from(["a", "b", "c", "d"])


def fits(schema: Any, value: Any) -> bool:
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    return validator.is_valid(json.loads(json.dumps(value)))


@st.composite
def integers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(-50, 50))
    bounds = draw(
        st.sampled_from(
            [
                {},
                {"minimum": low},
                {"maximum": low},
                {"minimum": low, "maximum": low + draw(st.integers(0, 9))},
                {"exclusiveMinimum": low, "exclusiveMaximum": low + draw(st.integers(2, 9))},
            ]
        )
    )
    return {"type": "integer", **bounds}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.floats(-50, 50).map(lambda each: round(each, 2)))
    above = draw(st.sampled_from(["minimum", "exclusiveMinimum"]))
    below = draw(st.sampled_from(["maximum", "exclusiveMaximum"]))
    return {
        "type": "number",
        **draw(st.sampled_from([{}, {above: low}, {below: low}, {above: low, below: low + 0.5}])),
    }


STRINGS = st.one_of(
    st.just({"type": "string"}),
    st.integers(0, 30).map(lambda size: {"type": "string", "minLength": size, "maxLength": size + 2}),
    st.sampled_from(
        [
            {"type": "string", "format": name}
            for name in ("date-time", "date", "time", "email", "uuid", "uri", "ipv4")
        ]
    ),
)
SCALARS = st.one_of(
    integers(),
    numbers(),
    STRINGS,
    st.just({"type": "boolean"}),
    st.just({"type": ["null", "string"]}),
    st.just({"type": "null"}),
    st.lists(st.sampled_from([1, "x", None, True]), min_size=1, max_size=3, unique_by=repr).map(
        lambda e: {"enum": e}
    ),
    st.sampled_from([{"const": {"deep": [1]}}, True, {}]),
    st.sampled_from(
        [{"type": "integer", "multipleOf": 7}, {"type": "integer", "multipleOf": 7, "minimum": 15}]
    ),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, unique=True, max_size=2),
        }
    )


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    least = draw(st.integers(0, 3))
    first = draw(st.lists(inner, max_size=2))
    return {
        "type": "array",
        "items": draw(inner),
        "minItems": least,
        "maxItems": least + draw(st.integers(0, 2)),
        **({"prefixItems": first} if first else {}),
    }


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each}),
        objects(inner).map(
            lambda each: {"allOf": [each, {"properties": {"e": {"type": "integer"}}, "required": ["e"]}]}
        ),
        inner.map(lambda each: {"$defs": {"x": each}, "properties": {"y": {"const": 1}}, "required": ["y"]}),
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_a_sample_satisfies_its_schema(schema):
    assert fits(schema, sample(schema))


@given(SCHEMAS)
def test_a_sample_is_the_same_every_time(schema):
    assert sample(schema) == sample(schema)


@given(SCHEMAS)
def test_a_reference_is_followed_to_its_definition(inner):
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a~1b%25"}},
        "required": ["x"],
        "$defs": {"a/b%": inner},
    }
    assert fits(inner, sample(schema)["x"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "minItems": 4, "uniqueItems": True},
        {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 4, "uniqueItems": True},
        {"type": "array", "items": {"type": "integer", "maximum": 3}, "minItems": 4, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True},
        {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}]},
        {"anyOf": [False, {"type": "integer"}]},
        {"type": "object", "maxProperties": 1, "properties": {"a": {}, "b": {}}, "required": ["b"]},
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
        {"properties": {"kind": {"const": "cat"}}, "required": ["kind"], "additionalProperties": False},
        {"minItems": 2},
        {"minimum": 5, "type": ["null", "integer"]},
    ],
)
def test_a_sample_satisfies_the_less_common_keywords_too(schema):
    assert fits(schema, sample(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["next"],
        },
        {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": {"$ref": "#"}}},
            "required": ["parts"],
        },
        {
            "type": "object",
            "properties": {"next": {"$ref": "#"}, "name": {"type": "string"}},
            "required": ["name"],
        },
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
    ],
)
def test_a_schema_that_refers_to_itself_has_a_finite_sample(schema):
    assert fits(schema, sample(schema))


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/gone"},
        {"allOf": [{"type": "string"}, False]},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
        {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}] * 8},
        {"anyOf": [{"anyOf": [{"$ref": "#"}] * 20}] * 20},
    ],
)
def test_a_schema_without_a_finite_value_has_no_sample_and_costs_little(schema):
    begun = time.process_time()
    assert sample(schema) is None
    assert time.process_time() - begun < 1


def test_an_alternative_that_leads_nowhere_is_passed_over():
    assert sample({"anyOf": [{"$ref": "#/$defs/gone"}, {"type": "integer"}]}) == 1


def test_a_sample_is_bounded_however_much_a_schema_asks_for():
    schema = {"type": "array", "minItems": 10**9, "items": {"type": "string", "minLength": 10**9}}
    items = sample(schema)
    assert len(items) == MOST_ITEMS
    assert {len(item) for item in items} == {MOST_CHARACTERS}
