"""Vectors as providers write them, the checks of a batch, and the name of a vector's space."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.embeddings import (
    MAX_INPUTS,
    EmbeddingRequest,
    InputType,
    NotAVector,
    check_embedding,
    is_large_batch,
    read_vector,
    read_vectors,
    revision,
    total_bytes,
)
from modelmeter_server.core.models import ModelSpec
from tests.support.junk import JUNK

CALL_ID = "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c"
MODEL = ModelSpec(name="a", provider="p", provider_kind="gemini", provider_model="e-1")
LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]

finite = st.floats(-LARGEST, LARGEST, allow_nan=False, width=32)
vectors = st.lists(finite, min_size=1, max_size=40).filter(any)


def batch(*inputs: str, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(model="a", call_id=CALL_ID, inputs=inputs or ("x",), **fields)


def packed(values: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


@given(vectors)
def test_numbers_and_base64_give_the_same_vector(values):
    assert list(read_vector(values)) == list(read_vector(packed(values))) == values


@given(vectors, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_a_component_that_is_not_finite_is_found_wherever_it_stands(values, odd, data):
    place = data.draw(st.integers(0, len(values)))
    damaged = [*values[:place], odd, *values[place:]]
    for written in (damaged, packed(damaged)):
        with pytest.raises(NotAVector, match="no finite 32-bit number"):
            read_vector(written)


def test_infinities_of_both_signs_do_not_cancel_out():
    with pytest.raises(NotAVector):
        read_vector([math.inf, -math.inf])


@given(st.integers(1, 60))
def test_the_largest_components_are_finite_however_many_there_are(count):
    assert list(read_vector([LARGEST] * count)) == [LARGEST] * count


@pytest.mark.parametrize("value", [1e39, -1e300, 10**50, -(10**400)])
def test_a_component_that_no_32_bit_float_can_hold_is_refused_rather_than_infinite(value):
    with pytest.raises(NotAVector, match="no finite 32-bit number"):
        read_vector([1.0, value])


def test_lost_precision_is_fine():
    assert list(read_vector([0.1, 1, 2**60])) == [
        struct.unpack("<f", struct.pack("<f", 0.1))[0],
        1.0,
        2.0**60,
    ]


@pytest.mark.parametrize("odd", [None, True, "1", [], {}])
def test_what_is_no_number_is_no_component(odd):
    with pytest.raises(NotAVector, match="no number"):
        read_vector([1.0, odd])


@pytest.mark.parametrize("text", ["?", "AAA", "AAAAAAA=", packed([1.0])[:-1], "\ud800", "é"])
def test_text_that_is_no_base64_of_floats_is_no_vector(text):
    with pytest.raises(NotAVector, match="base64"):
        read_vector(text)


@pytest.mark.parametrize("value", [[], "", [0], [0.0, -0.0], packed([0.0])])
def test_nothing_and_zeros_are_no_vector(value):
    with pytest.raises(NotAVector):
        read_vector(value)


@given(JUNK)
def test_whatever_stands_in_place_of_a_vector_gives_finite_floats_or_a_reason(value):
    try:
        vector = read_vector(value)
    except NotAVector:
        return
    assert vector
    assert all(map(math.isfinite, vector))


@given(st.lists(vectors, min_size=1, max_size=5), st.integers(1, 5), st.none() | st.integers(1, 40))
def test_a_batch_is_read_only_if_number_and_lengths_are_as_expected(values, expected, dimensions):
    wanted = dimensions or len(values[0])
    fits = len(values) == expected and {len(each) for each in values} == {wanted}
    try:
        found = read_vectors(list(values), expected, dimensions)
    except NotAVector:
        assert not fits
    else:
        assert fits
        assert [list(each) for each in found] == values


def test_a_reason_names_the_input():
    with pytest.raises(NotAVector, match="the vector of input 1 holds something that is no number"):
        read_vectors([[1.0], [None]], 2, None)


# The request


@given(st.text(max_size=50), st.integers(1, 3))
def test_bytes_are_counted_as_utf8(text, times):
    assert total_bytes(batch(*[text] * times)) == times * len(text.encode("utf-8", "surrogatepass"))


def test_a_batch_without_a_mistake_has_none():
    assert check_embedding(batch("a", "b", dimensions=7, labels={"team": "x"})) == []


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (EmbeddingRequest(model="a", call_id=CALL_ID), "inputs"),
        (batch(*["x"] * (MAX_INPUTS + 1)), "inputs"),
        (batch("é" * (4 * 1024 * 1024), "x"), "inputs"),
        (batch("\n"), "inputs[0]"),
        (batch(dimensions=65_537), "dimensions"),
        (batch(labels={"k" * 65: ""}), "labels"),
        (EmbeddingRequest(model="", call_id=CALL_ID, inputs=("x",)), "model"),
    ],
)
def test_a_mistake_is_told_with_its_field(request_, field):
    assert [each.field for each in check_embedding(request_)] == [field]


def test_exactly_the_limit_of_bytes_is_allowed():
    assert check_embedding(batch("é" * (4 * 1024 * 1024))) == []


def test_a_large_batch_is_planned_beside_the_event_loop():
    assert is_large_batch(batch("x" * (1 << 20), "y"))
    assert not is_large_batch(batch("x" * (1 << 20)))


# The space


def test_whatever_changes_the_vectors_changes_the_name_of_their_space():
    request = batch()
    other = [
        revision(request, MODEL, 4),
        revision(request, msgspec.structs.replace(MODEL, provider_model="e-2"), 3),
        revision(request, msgspec.structs.replace(MODEL, provider_kind="openai_responses"), 3),
        revision(batch(input_type=InputType.QUERY), MODEL, 3),
        revision(batch(input_type=InputType.DOCUMENT), MODEL, 3),
        revision(batch(provider_options_json='{"normalize":true}'), MODEL, 3),
        revision(batch(provider_options_json='{"normalize":false}'), MODEL, 3),
    ]
    assert revision(request, MODEL, 3) == "gemini:e-1@3"
    assert len({revision(request, MODEL, 3), *other}) == 8


def test_the_texts_do_not_change_the_space():
    assert revision(batch("a"), MODEL, 3) == revision(batch("b", "c"), MODEL, 3)
