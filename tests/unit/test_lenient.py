"""Typed reading that never loses an event for one odd field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.json_text import NotJson
from modelmeter_server.core.lenient import EventDecoder, fill, word
from tests.support.json_damage import JUNK, UNREADABLE, critical_depths, nest, paths, replaced, spelled


class Inner(msgspec.Struct):
    text: str = ""
    number: int | None = None


class Event(msgspec.Struct):
    index: int = 7
    name: str | None = None
    inner: Inner = msgspec.field(default_factory=Inner)
    anything: Any = None


read = EventDecoder(Event)
GOOD = {"index": 1, "name": "n", "inner": {"text": "t", "number": 2}, "anything": [1], "more": {"unknown": 1}}
WHOLE = Event(1, "n", Inner("t", 2), [1])


def test_a_good_event_is_read_whole():
    assert read(spelled(GOOD)) == WHOLE


@given(st.sampled_from(list(paths(GOOD))), JUNK)
def test_an_odd_field_costs_no_other(path: tuple[str, ...], junk: Any):
    if junk in UNREADABLE:
        return
    event = read(spelled(replaced(GOOD, path, junk)))
    assert path[0] == "index" or event.index == 1
    assert path[0] == "name" or event.name == "n"
    assert path[0] == "anything" or event.anything == [1]
    assert path[0] == "inner" or event.inner == Inner("t", 2)
    assert isinstance(event.index, int)
    assert event.name is None or isinstance(event.name, str)
    if path == ("inner", "text"):
        assert event.inner.number == 2
        assert isinstance(event.inner.text, str)


@pytest.mark.parametrize("data", [b"[]", b"5", b"null", b'"x"', b"{}"])
def test_a_document_without_the_fields_has_their_defaults(data: bytes):
    assert read(data) == Event()


@pytest.mark.parametrize("data", [b"", b"{", b"oops", b'{"index": 1'])
def test_what_is_no_json_at_all_says_so(data: bytes):
    with pytest.raises(NotJson):
        read(data)


def test_null_is_the_default():
    assert read(b'{"index": null, "inner": null, "name": null, "inner": {"text": null}}') == Event()


def test_half_a_character_is_kept_for_the_next_delta():
    assert read(b'{"name": "a\\ud83d"}').name == "a\ud83d"
    assert read(b'{"index": "\\ud83d", "name": "n"}') == Event(name="n")


def test_no_depth_of_nesting_raises_anything_else():
    for depth in critical_depths():
        try:
            assert read(f'{{"name": "n", "anything": {nest(depth)}, "index": 7}}'.encode()).name == "n"
        except NotJson:
            continue


def test_a_member_nested_too_deeply_never_costs_the_members_before_it():
    deep = "[" * 100_000 + "]" * 100_000
    assert read(f'{{"name": "n", "unknown": {deep}}}'.encode()).name == "n"


def test_filling_twice_shares_nothing():
    first, second = fill(Event, {}), fill(Event, {})
    first.inner.text = "changed"
    assert second.inner.text == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        ("a\ud83d", "a\ufffd"),
        (5, "5"),
        (-5, "-5"),
        (True, ""),
        (1.5, ""),
        (None, ""),
        ([1], ""),
    ],
)
def test_a_word_is_a_text_or_a_whole_number(value: object, text: str):
    assert word(value) == text


def test_a_number_of_thousands_of_digits_is_no_word():
    assert word(10**5000) == ""
