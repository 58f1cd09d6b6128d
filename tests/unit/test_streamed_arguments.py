"""Arguments that come as values at JSON paths: what is put together is what was told, or nothing readable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.accumulators.streamed_arguments import StreamedArguments
from modelmeter_server.core.json_text import NotJson, loads_strict
from tests.support.gemini_chunks import pieces

names = st.text(st.characters(codec="utf-8", exclude_characters="'\"[]."), min_size=1, max_size=5)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
arguments = st.dictionaries(
    names,
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3) | st.dictionaries(names, inner, min_size=1, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


def built(*told: tuple[str, object]) -> str:
    streamed = StreamedArguments()
    for piece in told:
        streamed.add(pieces(piece)["functionCall"]["partialArgs"])
    return streamed.text()


def flattened(value: Any, path: str) -> list[tuple[str, object]]:
    """Return the leaves in the order of the text, each with its path."""
    if isinstance(value, dict):
        return [each for name, member in value.items() for each in flattened(member, f"{path}['{name}']")]
    if isinstance(value, list):
        return [each for index, item in enumerate(value) for each in flattened(item, f"{path}[{index}]")]
    return [(path, value)]


@given(arguments)
def test_values_at_their_paths_give_the_arguments(value):
    assert json.loads(built(*flattened(value, "$"))) == value


def test_paths_are_read_in_every_spelling():
    told = [("$.a.b", 1), ("$['a'][\"c d\"]", True), ("$.list[0].x", None), ("$.list[1]", "y")]
    assert built(*told) == '{"a":{"b":1,"c d":true},"list":[{"x":null},"y"]}'


def test_a_text_goes_on_at_its_path_and_another_value_replaces():
    assert built(("$.a", ("Bos",)), ("$.b", 1), ("$.a", ("t",)), ("$.a", "on")) == '{"a":"Boston","b":1}'
    assert built(("$.a", 1), ("$.a", 2)) == '{"a":2}'


def test_no_pieces_are_no_arguments():
    assert StreamedArguments().text() == "{}"


@pytest.mark.parametrize(
    "piece",
    [
        {"jsonPath": "a", "stringValue": "x"},
        {"jsonPath": "$", "stringValue": "x"},
        {"jsonPath": "$.a[", "stringValue": "x"},
        {"jsonPath": "$..a", "stringValue": "x"},
        {"jsonPath": "$.a[*]", "stringValue": "x"},
        {"jsonPath": "$.a[7]", "stringValue": "x"},
        {"jsonPath": "$.a[999999999]", "stringValue": "x"},
        {"jsonPath": "$" + ".a" * 500, "stringValue": "x"},
        {"jsonPath": "$.told.deeper", "stringValue": "x"},
        {"jsonPath": "$.a"},
        {"jsonPath": 5, "stringValue": "x"},
        {"stringValue": "x"},
        "x",
    ],
)
def test_what_cannot_be_followed_makes_the_arguments_unreadable(piece):
    streamed = StreamedArguments()
    streamed.add([{"jsonPath": "$.told", "numberValue": 1}, piece])
    with pytest.raises(NotJson):
        loads_strict(streamed.text())
