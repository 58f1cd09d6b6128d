"""A growing JSON array: whole elements as they end, the same in any chunking, in linear time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.json_array import JsonArraySplitter
from modelmeter_server.core.sse import EventTooLarge
from tests.support.wire_bytes import chunks_at

LIMIT = 1 << 20
text = st.text(st.sampled_from('ab"\\{}[],: \n\u00e9'), max_size=8)
values = st.recursive(
    st.none() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
elements = st.lists(st.dictionaries(text, values, max_size=3), max_size=5)


def split(chunks: Any, limit: int = LIMIT) -> tuple[list[bytes], JsonArraySplitter]:
    splitter = JsonArraySplitter(element_limit=limit)
    return [element for chunk in chunks for element in splitter.feed(chunk)], splitter


@given(elements, st.booleans(), st.data())
def test_any_chunking_gives_the_elements_that_stand_in_the_array(each, pretty, data):
    whole = json.dumps(each, ensure_ascii=False, indent=2 if pretty else None).encode()
    cuts = data.draw(st.sets(st.integers(0, len(whole)), max_size=20))
    for chunks in ([whole], chunks_at(whole, cuts), (whole[i : i + 1] for i in range(len(whole)))):
        found, splitter = split(chunks)
        assert [json.loads(element) for element in found] == each
        assert splitter.is_closed
        assert splitter.rest == b""


@given(elements, st.data())
def test_the_rest_is_the_start_of_the_element_that_is_open(each, data):
    whole = json.dumps(each).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    found, splitter = split([whole[:cut]])
    assert not splitter.is_closed
    assert whole[:cut].endswith(splitter.rest)
    assert len(found) <= len(each)


def test_elements_that_are_no_objects_say_nothing():
    assert split([b'[1, "a{", null, {"a": 1}, [2]]'])[0] == [b'{"a": 1}', b"[2]"]


def test_what_follows_the_array_is_ignored():
    found, splitter = split([b'[{"a": 1}] {"b": 2}', b'{"c": 3}'])
    assert found == [b'{"a": 1}']
    assert splitter.is_closed


@pytest.mark.parametrize("closing", [b"}]", b""], ids=["whole", "open"])
def test_an_element_over_the_limit_is_refused_and_those_before_it_are_told(closing):
    with pytest.raises(EventTooLarge) as raised:
        split([b'[{"a": 1}, {"b": "' + b"x" * 100 + b'"' + closing], limit=60)
    assert [event.data for event in raised.value.events] == [b'{"a": 1}']


@pytest.mark.parametrize(
    "unit", [b"x", b"\\\\", b'\\"', b"{"], ids=["plain", "backslashes", "quotes", "braces"]
)
def test_a_long_element_in_small_pieces_costs_linear_time(unit):
    def cost(size: int) -> float:
        splitter = JsonArraySplitter(element_limit=1 << 30)
        splitter.feed(b'[{"a": "')
        piece = unit * (200 // len(unit))
        start = time.process_time()
        for _ in range(size):
            splitter.feed(piece)
        return time.process_time() - start

    small = min(cost(2000) for _ in range(3))
    assert cost(16_000) < small * 8 * 6
