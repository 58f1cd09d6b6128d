"""Compiled schemas: the verdict, its reason, and the promise that nothing is fetched and everything ends."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.requests import SchemaCheckPolicy, SchemaMode
from modelmeter_server.engine import schema_check
from modelmeter_server.engine.schema_check import SchemaInvalid, compile_schema, expectation_for
from tests.support.completion_requests import ask, model_of
from tests.unit.test_schema_document import TREE, doubling

POINT = {
    "type": "object",
    "properties": {"x/y": {"type": "array", "items": {"type": "integer"}}, "name": {"const": "n"}},
    "required": ["x/y"],
    "additionalProperties": False,
}


def compiled(schema: Any):
    return compile_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"x/y": [1, 2]}, None),
        ({"x/y": [1.0, 10**400]}, None),
        ({}, "fails `required` (x/y) at the root"),
        ([], "fails `type` at the root"),
        ({"x/y": [1, "sesame"]}, "fails `type` at /x~1y/1"),
        ({"x/y": [], "name": "sesame"}, "fails `const` at /name"),
        ({"x/y": [], "sesame": 1}, "fails `additionalProperties` at the root"),
    ],
)
def test_the_reason_names_place_and_keyword_and_never_quotes(document, reason):
    assert compiled(POINT)(document) == reason


def test_a_long_place_is_cut():
    reason = compiled({"additionalProperties": {"type": "string"}})({"k" * 5000: 1})
    assert reason is not None
    assert len(reason) < 250


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"required": "a"},
        {"$ref": "#/nothing"},
        {"$ref": 5},
        {"$schema": "http://a.example/own"},
        {"pattern": "("},
        {"minimum": "1"},
    ],
)
def test_a_schema_that_does_not_compile_is_invalid_with_a_reason(schema):
    with pytest.raises(SchemaInvalid, match="must be a valid JSON Schema") as caught:
        compiled(schema)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("pattern", ["(?=a)a", "(a)\\1", "((a{1,1000}){1,1000}){1,1000}"])
def test_a_pattern_that_could_stall_or_swell_is_invalid(pattern):
    with pytest.raises(SchemaInvalid, match="patterns must be small"):
        compiled({"pattern": pattern})


def test_a_catastrophic_pattern_costs_nothing():
    check = compiled({"pattern": "^(a+)+$"})
    start = time.perf_counter()
    assert check("a" * 50_000 + "b") == "fails `pattern` at the root"
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{port}/x", "file:///etc/hostname", "http://127.0.0.1:{port}/x#/a"]
)
def test_nothing_is_ever_fetched(target):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = target.format(port=server.getsockname()[1])
        with pytest.raises(SchemaInvalid, match="nothing is ever fetched"):
            compiled({"$ref": address})
        # A reference that the limits take for data, and the library for a schema.
        with pytest.raises(SchemaInvalid, match="nothing is fetched"):
            compiled({"const": {"$ref": address}, "$ref": "#/const"})
        with pytest.raises(TimeoutError):
            server.accept()


def test_formats_are_annotations():
    assert compiled({"format": "email"})("nobody") is None
    assert (
        compiled({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"})("nobody") is None
    )


def test_a_recursive_schema_has_a_verdict_without_a_place():
    check = compiled(TREE)
    assert check({"next": {"next": None}}) is None
    assert check({"next": {"next": 5}}) == "the document does not satisfy the schema"


def test_a_recursive_choice_is_judged_quickly_however_deep_the_document():
    def operation(name: str) -> dict[str, Any]:
        side = {"$ref": "#/$defs/e"}
        return {"properties": {"l": side, "r": side, "op": {"const": name}}, "required": ["l", "r", "op"]}

    ways = [{"type": "object", **operation(name)} for name in ("add", "sub", "mul")]
    check = compiled({"$defs": {"e": {"anyOf": [*ways, {"type": "number"}]}}, "$ref": "#/$defs/e"})
    document: Any = 1
    for _ in range(30):
        document = {"l": document, "r": 1, "op": "nonsense"}
    start = time.perf_counter()
    assert check(document) is not None
    assert time.perf_counter() - start < 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_every_document_has_a_verdict(document):
    assert compiled({"enum": [document]})(document) is None
    reason = compiled({"not": {"enum": [document]}})(document)
    assert reason == "fails `not` at the root"


@pytest.mark.parametrize(
    ("policy", "mode", "enforces_native", "enforce"),
    [
        (SchemaCheckPolicy.AUTO, SchemaMode.NATIVE, True, False),
        (SchemaCheckPolicy.AUTO, SchemaMode.NATIVE, False, True),
        (SchemaCheckPolicy.AUTO, SchemaMode.FORCED_TOOL, True, True),
        (SchemaCheckPolicy.ENFORCE, SchemaMode.NATIVE, True, True),
        (SchemaCheckPolicy.PARSE_ONLY, SchemaMode.FORCED_TOOL, False, False),
    ],
)
def test_the_policy_decides_what_is_enforced(policy, mode, enforces_native, enforce):
    model = model_of(schema_check=policy, capabilities=Capabilities(enforces_native_schema=enforces_native))
    expectation = expectation_for(ask(output_schema_json=json.dumps(POINT), schema_mode=mode), model)
    assert expectation.enforce is enforce
    assert expectation.forced_tool is (mode is SchemaMode.FORCED_TOOL)
    assert expectation.schema_check is not None
    assert expectation.schema_check({}) is not None


def test_the_models_mode_stands_where_the_request_names_none():
    request = ask(output_schema_json="{}")
    assert expectation_for(request, model_of(schema_mode=SchemaMode.FORCED_TOOL)).forced_tool
    assert not expectation_for(request, model_of()).forced_tool


def test_without_a_schema_the_answer_is_left_alone():
    assert expectation_for(ask(), model_of()) is FREE_TEXT


def test_a_schema_that_no_check_could_end_is_refused_only_where_it_is_checked():
    request = ask(output_schema_json=json.dumps(doubling(40)))
    assert not expectation_for(request, model_of()).enforce
    with pytest.raises(SchemaInvalid, match="let references multiply less"):
        expectation_for(request, model_of(schema_check=SchemaCheckPolicy.ENFORCE))


def test_a_schema_is_compiled_once_while_it_is_in_use():
    text = json.dumps({"title": "compiled once"})
    assert compile_schema(text) is compile_schema(text)


def test_compiled_schemas_do_not_grow_without_bound(monkeypatch):
    monkeypatch.setattr(schema_check, "CACHE_BYTES", 3 * schema_check.PATTERN_BYTES)
    cache = schema_check._Cache()
    texts = [json.dumps({"pattern": "a", "title": str(number)}) for number in range(3)]
    first, second, _ = [cache.get(text) for text in texts]
    assert cache.get(texts[1]) is second
    assert cache.get(texts[0]) is not first
