"""JSON text that is damaged, hostile, cut, or simply right."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.json_text import (
    MAX_DEPTH,
    NotJson,
    dumps_compact,
    leading_members,
    loads_event,
    loads_lenient,
    loads_strict,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
objects = st.dictionaries(st.text(max_size=4), documents, max_size=4)


@given(documents)
def test_both_readers_read_what_the_writer_writes(value: object):
    text = dumps_compact(value)
    assert loads_strict(text) == value
    assert loads_lenient(text.encode()) == value
    assert "\n" not in text


@given(documents, st.sampled_from(["", " ", "\n", "\t\r\n"]))
def test_white_space_around_a_document_is_allowed(value: object, space: str):
    text = space + json.dumps(value, indent=1) + space
    assert loads_strict(text) == loads_lenient(text.encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_not_json(data: bytes):
    def reason() -> str:
        try:
            return dumps_compact([loads_lenient(data), loads_strict(data.decode("latin-1"))])[:1]
        except NotJson as error:
            return str(error)

    assert 0 < len(reason()) < 120


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"a":1', '{"a":1}}', "[1,]", "{'a':1}", "tru", "\ufffd", '"a', "//"]
)
def test_what_is_not_json_is_refused_by_both(text: str):
    with pytest.raises(NotJson):
        loads_strict(text)
    with pytest.raises(NotJson):
        loads_lenient(text.encode())


@pytest.mark.parametrize(
    "text", ["```json\n{}\n```", "Here it is: {}", "\ufeff{}", '{"a":"\n"}', "01", "+1", "1."]
)
def test_strict_reading_repairs_nothing(text: str):
    with pytest.raises(NotJson):
        loads_strict(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_no_double_holds_is_refused_strictly_and_none_leniently(number: str):
    with pytest.raises(NotJson, match=r"not JSON|too large"):
        loads_strict(f'{{"a": {number}}}')
    assert loads_lenient(f'{{"usage": {{"in": {number}, "out": 15}}}}'.encode()) == {
        "usage": {"in": None, "out": 15}
    }


@given(st.integers(-(10**4000), 10**4000))
def test_integers_of_any_ordinary_size_stay_integers(number: int):
    assert loads_strict(str(number)) == number
    assert loads_lenient(str(number).encode()) == number


def test_an_integer_of_ten_thousand_digits_costs_neither_time_nor_the_values_beside_it():
    digits = "9" * 10_000
    with pytest.raises(NotJson, match="too many digits"):
        loads_strict(digits)
    text = f'{{"a": {digits}, "b": -{digits}, "c": 7, "d": {digits}.5}}'
    assert loads_lenient(text.encode()) == {"a": INT64_MAX, "b": -INT64_MAX, "c": 7, "d": None}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [100_000, 5_000_000])
def test_deep_nesting_is_not_json_and_no_recursion_error(opening: str, depth: int):
    with pytest.raises(NotJson, match="nested"):
        loads_strict(opening * depth)
    with pytest.raises(NotJson, match="nested"):
        loads_lenient(opening.encode() * depth)


def test_the_depth_bound_is_exact():
    def nested(depth: int) -> str:
        return '{"a":[' * (depth // 2) + "1" + "]}" * (depth // 2)

    assert dumps_compact(loads_strict(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(NotJson, match="nested"):
        loads_strict(nested(MAX_DEPTH + 2))
    assert loads_strict("[" + "[]," * 1000 + "[]]") == [[]] * 1001


def test_bad_bytes_are_replaced_and_cost_nothing_else():
    assert loads_lenient(b'{"a": "x\xffy", "usage": 7}') == {"a": "x\ufffdy", "usage": 7}
    assert loads_lenient(b'\xef\xbb\xbf{"a": "line\nbreak"}') == {"a": "line\nbreak"}


def test_lone_surrogates_stay_when_lenient_and_are_replaced_when_strict():
    text = r'{"\ud83d": ["\ude00", "\ud83d\ude00", "é"]}'
    assert loads_lenient(text.encode()) == {"\ud83d": ["\ude00", "😀", "é"]}
    assert loads_strict(text) == {"\ufffd": ["\ufffd", "😀", "é"]}
    assert loads_strict('"\ud83d"') == "\ufffd"
    assert loads_strict(r'"\\ud83d"') == r"\ud83d"


def test_of_a_name_that_is_told_twice_the_last_value_wins():
    text = '{"a": 1, "b": 2, "a": 3, "n": 1e0}'
    assert loads_strict(text) == loads_lenient(text.encode()) == {"a": 3, "b": 2, "n": 1.0}


def test_writing_keeps_order_and_text_and_is_always_encodable():
    assert (
        dumps_compact({"b": [1, 2.5, None, True], "a": "é\u2028"}) == '{"b":[1,2.5,null,true],"a":"é\u2028"}'
    )
    half = dumps_compact({"a": "é\ud83d"})
    assert half.encode() == '{"a":"é\\ud83d"}'.encode()
    assert json.loads(half) == {"a": "é\ud83d"}


def test_what_json_cannot_say_is_not_written():
    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (math.nan, math.inf, {"a": {1, 2}}, b"x", cycle, deep, 10**5000):
        with pytest.raises(NotJson):
            dumps_compact(value)


@given(objects, st.integers(0, 400), st.sampled_from([None, 1]))
def test_the_members_of_a_prefix_are_the_first_members_of_the_whole(
    value: dict[str, object], cut: int, indent: int
):
    text = json.dumps(value, indent=indent)
    members, open_key = leading_members(text[:cut])
    items = list(value.items())
    assert list(members.items()) == items[: len(members)]
    if open_key is not None:
        assert open_key == items[len(members)][0]
    if cut >= len(text):
        assert (members, open_key) == (value, None)


def test_a_member_counts_as_soon_as_its_value_is_whole():
    text = '{"stop_reason":"end_turn","usage":{"input_tokens":102,"output_tokens":23}'
    assert leading_members(text) == (
        {"stop_reason": "end_turn", "usage": {"input_tokens": 102, "output_tokens": 23}},
        None,
    )
    assert leading_members(text[:-1]) == ({"stop_reason": "end_turn"}, "usage")
    assert leading_members('{"a":12') == ({}, "a")
    assert leading_members('{"a":12 ') == ({"a": 12}, None)
    assert leading_members('{"a":true') == ({"a": True}, None)
    assert leading_members('{"a":tru') == ({}, "a")
    assert leading_members('{"a":') == leading_members('{"a"') == ({}, "a")


@pytest.mark.parametrize(
    "text", ["", " ", "[1]", "{", '{"a', "{a", '{"a":1,', "<html>", "null", '{"a":1 "b":2']
)
def test_what_is_no_start_of_an_object_has_no_further_members(text: str):
    members, open_key = leading_members(text)
    assert members in ({}, {"a": 1})
    assert open_key is None


def test_hostile_prefixes_are_read_in_linear_time():
    started = time.process_time()
    assert leading_members('{"a":' + "[" * 1_000_000) == ({}, "a")
    assert leading_members('{"a":' + "9" * 1_000_000) == ({}, "a")
    assert leading_members('{"a":"' + "\\" * 1_000_000) == ({}, "a")
    members, _ = leading_members("{" + ",".join(f'"{n}":{n}' for n in range(50_000)))
    assert len(members) == 10_000
    assert time.process_time() - started < 5


def test_of_millions_of_members_the_first_ones_are_returned():
    started = time.process_time()
    members, _ = leading_members('{"a":1' + "".join(f',"{index}":1' for index in range(500_000)))
    assert (members["a"], len(members)) == (1, 10_000)
    assert time.process_time() - started < 5


def test_a_document_that_was_cut_is_not_read_twice():
    with pytest.raises(NotJson, match="truncated"):
        loads_lenient(b'{"a":[' + b"1," * 100)


def test_a_member_nested_too_deeply_costs_an_event_what_follows_and_not_what_stands_before():
    deep = "[" * 100_000 + "]" * 100_000
    assert loads_event(f'{{"a":1,"z":{deep},"b":2}}'.encode()) == {"a": 1}
    with pytest.raises(NotJson):
        loads_lenient(deep.encode())
    with pytest.raises(NotJson):
        loads_event(b'{"a":1,')
