"""How much one request may hold: counted before anything is read, told with the field and the limit."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core import request_limits
from modelmeter_server.core.caller_json import count_values, most_values
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.remote_media import MAX_FOUND, remote_media
from modelmeter_server.core.request_checks import MAX_VIOLATIONS, check_request
from modelmeter_server.core.request_limits import MAX_VALUES, is_large, limit_violations
from modelmeter_server.core.requests import (
    Continuation,
    MediaKind,
    MediaPart,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tests.support.completion_requests import ask, ask_messages, ask_native, assistant, model_of, user

scalars = st.none() | st.booleans() | st.integers() | st.text('a,[]{}"\\ ', max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(',[{"\\', max_size=3), inner)
)
HALF = "[" + "1," * (MAX_VALUES // 2) + "1]"


def number_of_values(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(number_of_values, inner))


@given(values)
def test_the_values_of_a_json_text_are_counted_without_reading_it(value):
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert count_values(text, 10**9) == number_of_values(value)
        assert most_values(text) >= number_of_values(value)


@given(st.text('",[]{}\\: a'))
def test_any_text_can_be_counted(text):
    assert 1 <= count_values(text, 10**9) <= most_values(text)


@given(values, st.integers(0, 50))
def test_a_count_is_above_the_limit_exactly_when_the_values_are(value, limit):
    assert (count_values(json.dumps(value), limit) > limit) == (number_of_values(value) > limit)


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 2_000_000, '""' * 2_000_000, "[ " * 2_000_000, '"' * 4_000_001]
)
def test_counting_takes_no_longer_for_text_that_is_no_json(text):
    begun = time.process_time()
    count_values(text, MAX_VALUES)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("native_json", ask_native(HALF[:-1] + "," + HALF[1:])),
        ("provider_options_json", ask(provider_options_json='{"metadata":[' + "{}," * MAX_VALUES + "{}]}")),
        ("output_schema_json", ask(output_schema_json='{"enum":' + HALF[:-1] + "," + HALF[1:] + "}")),
        ("tools[1].parameters_json", ask(tools=(Tool(name="a", parameters_json=HALF),) * 2)),
        ("continuation.state_json", ask(provider_options_json=HALF, continuation=Continuation("x", HALF))),
        (
            "messages.messages[1].parts[0].tool_call.arguments_json",
            ask_messages(
                assistant(Continuation("x", HALF)),
                assistant(ToolCallPart(id="a", name="b", arguments_json=HALF)),
            ),
        ),
    ],
)
def test_the_json_field_that_brings_a_request_above_the_limit_is_named(field, request_):
    (violation,) = limit_violations(request_)
    assert violation.field == field
    assert f"{MAX_VALUES:,}" in violation.description


def test_text_of_a_long_json_text_is_no_value():
    prose = json.dumps([{"role": "user", "content": "one, two, [three], {four}, " * MAX_VALUES}])
    assert limit_violations(ask_native(prose)) == []
    assert limit_violations(ask(HALF + HALF)) == []
    assert limit_violations(ask_native(HALF)) == []


@pytest.mark.parametrize(
    ("limit", "field", "request_"),
    [
        ("MAX_MESSAGES", "messages.messages", ask_messages(*[user(TextPart("a"))] * 3)),
        ("MAX_PARTS", "messages.messages", ask_messages(user(*[TextPart("a")] * 2), user(TextPart("a")))),
        ("MAX_TOOLS", "tools", ask(tools=(Tool(name="a"),) * 3)),
        ("MAX_STOP_SEQUENCES", "stop_sequences", ask(stop_sequences=("a",) * 3)),
    ],
)
def test_the_number_of_things_in_a_request_is_limited(limit, field, request_, monkeypatch):
    assert limit_violations(request_) == []
    monkeypatch.setattr(request_limits, limit, 2)
    (violation,) = limit_violations(request_)
    assert (violation.field, "at most 2" in violation.description) == (field, True)


LARGE_TEXT = "x" * (request_limits.LARGE_BYTES + 1)


@pytest.mark.parametrize(
    "request_",
    [
        ask(LARGE_TEXT),
        ask(system=LARGE_TEXT),
        ask_native(" " * (request_limits.LARGE_JSON + 1)),
        ask_messages(*[user(TextPart("a"))] * (request_limits.LARGE_PARTS + 1)),
        ask_messages(user(*[TextPart("a")] * (request_limits.LARGE_PARTS + 1))),
        ask_messages(user(ToolResultPart(call_id="a", output=LARGE_TEXT))),
        ask_messages(user(MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=LARGE_TEXT.encode()))),
        ask_messages(user(MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url=LARGE_TEXT))),
    ],
)
def test_a_request_that_takes_long_to_plan_is_large(request_):
    assert is_large(request_)


def test_an_ordinary_request_is_not_large():
    tools = tuple(Tool(name=f"t{index}", parameters_json='{"type":"object"}') for index in range(50))
    assert not is_large(ask_messages(*[user(TextPart("a" * 500))] * 100, tools=tools))


def test_as_many_mistakes_are_told_as_anybody_reads():
    empty = ask_messages(*[user(TextPart(""))] * (2 * MAX_VIOLATIONS))
    found = check_request(empty, model_of())
    assert len(found) == MAX_VIOLATIONS
    assert all(isinstance(each, FieldViolation) for each in found)


def test_media_deep_in_a_document_are_named_up_to_a_number():
    nested: object = [{"image_url": "https://example.com/a.png"}] * (2 * MAX_FOUND)
    for _ in range(100):
        nested = [nested]
    assert len(remote_media(nested, "native_json")) == MAX_FOUND
