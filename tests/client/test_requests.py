"""What a caller says is what goes into the request, and only what fits in none is refused here."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any, get_type_hints

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from modelmeter import (
    Audio,
    CacheBreakpoint,
    Cached,
    CompleteOptions,
    Continuation,
    Document,
    Image,
    Message,
    ReasoningEffort,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from modelmeter._requests import complete_request, stream_request
from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter.v1.model_service_pb2 import CallCeiling, CompleteRequest, Effect, RetryPolicy

# Every field of the request and the option that fills it, with a value for it.
OPTIONS: dict[str, tuple[str, Any]] = {
    "native_json": ("native_json", [{"role": "user"}]),
    "system": ("system", "be brief"),
    "tools": ("tools", [Tool("look")]),
    "tool_choice": ("tool_choice", "required"),
    "output_schema_json": ("schema", {"type": "object"}),
    "schema_mode": ("schema_mode", "forced_tool"),
    "max_output_tokens": ("max_output_tokens", 0),
    "temperature": ("temperature", 0.0),
    "top_p": ("top_p", 0.5),
    "top_k": ("top_k", 4),
    "seed": ("seed", 0),
    "stop_sequences": ("stop_sequences", ["END"]),
    "reasoning_effort": ("reasoning_effort", ReasoningEffort.HIGH),
    "provider_options_json": ("provider_options", {"a": 1}),
    "continuation": ("continuation", Continuation("anthropic", "[]", "eu")),
    "sensitivity": ("sensitivity", "Internal"),
    "effect": ("effect", Effect(run_id="r", key="k")),
    "call_id": ("call_id", uuid.UUID(int=7)),
    "ceiling": ("ceiling", CallCeiling(tokens=0)),
    "retry_policy": ("retry_policy", RetryPolicy(max_attempts=2)),
    "labels": ("labels", {"team": "a"}),
    "system_trust": ("system_trust", "TRUSTED"),
    "system_cache_breakpoint": ("system_cache_breakpoint", CacheBreakpoint(300)),
    "end_user_id": ("end_user_id", "u1"),
    "affinity_key": ("affinity_key", "k1"),
    "replay_only": ("replay_only", True),
}
PROMPT = {"model", "text", "messages"}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé\n"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def _said(options: dict[str, Any]) -> Any:
    return options


def test_every_field_of_the_request_has_an_option():
    fields = {field.name for field in CompleteRequest.DESCRIPTOR.fields}
    assert fields == PROMPT | OPTIONS.keys()
    assert {option for option, _ in OPTIONS.values()} == CompleteOptions.__annotations__.keys()
    assert get_type_hints(CompleteOptions).keys() == CompleteOptions.__annotations__.keys()


@pytest.mark.parametrize("field", OPTIONS)
def test_an_option_fills_its_field_and_no_other(field):
    option, value = OPTIONS[field]
    request = complete_request("m", **_said({option: value}))
    filled = {descriptor.name for descriptor, _ in request.ListFields()}
    assert filled == {"model", "call_id", field}


@pytest.mark.parametrize("field", sorted(OPTIONS.keys() - {"call_id"}))
def test_an_option_that_is_none_is_left_out(field):
    option, _ = OPTIONS[field]
    request = complete_request("m", "hi", **_said({option: None}))
    assert {descriptor.name for descriptor, _ in request.ListFields()} == {"model", "text", "call_id"}


def test_words_and_zeros_arrive_as_they_were_said():
    request = complete_request("m", **dict(OPTIONS[field] for field in OPTIONS))
    assert request.schema_mode == model_service_pb2.SCHEMA_MODE_FORCED_TOOL
    assert request.reasoning_effort == model_service_pb2.REASONING_EFFORT_HIGH
    assert request.sensitivity == message_pb2.SENSITIVITY_INTERNAL
    assert request.tool_choice.mode == message_pb2.ToolChoice.MODE_REQUIRED
    assert (request.max_output_tokens, request.seed, request.temperature) == (0, 0, 0.0)
    assert request.call_id == str(uuid.UUID(int=7))
    assert request.ceiling.HasField("tokens")


@given(json_values)
def test_json_keeps_its_values_and_the_order_of_its_keys(value):
    request = complete_request("m", schema={"first": value, "a": 1})
    assert json.loads(request.output_schema_json) == {"first": value, "a": 1}
    assert list(json.loads(request.output_schema_json)) == ["first", "a"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_text_and_prompts_pass_untouched(text):
    request = complete_request("m", text, schema=text, provider_options=text)
    assert (request.text, request.output_schema_json, request.provider_options_json) == (text, text, text)
    assert complete_request("m", native_json=text).native_json == text


def test_an_empty_prompt_is_sent_for_the_server_to_refuse():
    assert complete_request("m", "").WhichOneof("prompt") == "text"
    assert complete_request("m", []).WhichOneof("prompt") == "messages"
    assert complete_request("m").WhichOneof("prompt") is None


def test_a_cached_part_is_the_part_with_a_mark():
    image = Image("image/png", b"png")
    plain = complete_request("m", [Message.user("see", image, ToolResult("id", "42"))])
    parts = [Cached("see"), Cached(image, ttl=3600), Cached(ToolResult("id", "42"), ttl=0.5)]
    marked = complete_request("m", [Message.user(*parts)])
    told = [part.cache_breakpoint for part in marked.messages.messages[0].parts]
    assert told == [
        message_pb2.CacheBreakpoint(),
        message_pb2.CacheBreakpoint(ttl=Duration(seconds=3600)),
        message_pb2.CacheBreakpoint(ttl=Duration(nanos=500_000_000)),
    ]
    for part in marked.messages.messages[0].parts:
        assert part.HasField("cache_breakpoint")
        part.ClearField("cache_breakpoint")
    assert marked.messages == plain.messages


def test_tools_and_instructions_are_marked_by_a_breakpoint():
    tools = [Tool("a", cache_breakpoint=CacheBreakpoint(300)), Tool("b")]
    request = complete_request("m", "hi", tools=tools, system_cache_breakpoint=CacheBreakpoint())
    assert [tool.HasField("cache_breakpoint") for tool in request.tools] == [True, False]
    assert request.tools[0].cache_breakpoint.ttl.seconds == 300
    assert not request.system_cache_breakpoint.HasField("ttl")
    with pytest.raises(ValueError, match="ttl is a number of seconds"):
        complete_request("m", [Message.user(Cached("a", ttl=math.nan))])


def test_messages_keep_their_parts():
    call = ToolCall("id", "look", '{"a":1}')
    request = complete_request(
        "m",
        [
            Message.user("see", Image("image/png", b"png"), Audio("audio/wav", b"wav")),
            Message.user(Document("application/pdf", url="https://example.test/a.pdf", name="a.pdf")),
            Message.assistant("text", call, Continuation("anthropic", "[1]")),
            Message.user(ToolResult("id", "42"), ToolResult("id2", "no", failed=True)),
        ],
    )
    kinds = [[part.WhichOneof("content") for part in turn.parts] for turn in request.messages.messages]
    assert kinds == [
        ["text", "image", "audio"],
        ["document"],
        ["text", "tool_call", "continuation"],
        ["tool_result", "tool_result"],
    ]
    document = request.messages.messages[1].parts[0].document
    assert (document.url, document.name, document.WhichOneof("source")) == (
        "https://example.test/a.pdf",
        "a.pdf",
        "url",
    )
    assert request.messages.messages[2].role == message_pb2.ROLE_ASSISTANT
    assert request.messages.messages[3].parts[1].tool_result.failed


def test_tools_and_their_choice_keep_what_was_said():
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    tools = [Tool("look", "Looks.", schema, strict=True), Tool("wait", parameters='{"x":1}')]
    request = complete_request("m", "hi", tools=tools, tool_choice=ToolChoice("named", "look"))
    look, wait = request.tools
    assert (look.name, look.description, look.strict) == ("look", "Looks.", True)
    assert list(json.loads(look.parameters_json)["properties"]) == ["b", "a"]
    assert wait.parameters_json == '{"x":1}'
    assert (request.tool_choice.mode, request.tool_choice.name) == (message_pb2.ToolChoice.MODE_NAMED, "look")


def test_one_stop_sequence_may_stand_alone():
    assert complete_request("m", "hi", stop_sequences="END").stop_sequences == ["END"]


def test_a_new_call_id_is_a_uuid_of_its_own():
    first, second = (complete_request("m", "hi").call_id for _ in range(2))
    assert first != second
    assert uuid.UUID(first).version == 4


def test_a_ready_request_is_copied_and_given_a_call_id():
    ready = CompleteRequest(model="m", text="hi")
    request = complete_request(ready)
    assert uuid.UUID(request.call_id).version == 4
    assert ready == CompleteRequest(model="m", text="hi")
    assert complete_request(CompleteRequest(call_id="mine")).call_id == "mine"


@pytest.mark.parametrize("options", [{"system": "x"}, {"system": None}, {"prompt": "hi"}])
def test_a_ready_request_stands_alone(options):
    with pytest.raises(TypeError, match="not both"):
        complete_request(CompleteRequest(model="m"), **options)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("m", "hi"), {"native_json": "[]"}, TypeError, "not both"),
        (("m", "hi"), {"max_tokens": 1}, TypeError, 'did you mean "max_output_tokens"'),
        (("m", ["hi"]), {}, TypeError, "not of str"),
        (("m", [Message(Role.USER, (b"bytes",))]), {}, TypeError, "bytes is no part"),  # type: ignore[arg-type]
        (("m", "hi"), {"reasoning_effort": "very"}, ValueError, "XHIGH"),
        (("m", "hi"), {"tool_choice": "maybe"}, ValueError, "REQUIRED"),
        (("m", "hi"), {"schema": {"a": float("nan")}}, ValueError, "JSON"),
        (("m", "hi"), {"max_output_tokens": 1 << 40}, ValueError, "out of range"),
        (("m", "\ud800"), {}, ValueError, "surrogates"),
    ],
)
def test_what_no_request_can_hold_is_an_error_of_the_caller(arguments, options, error, text):
    with pytest.raises(error, match=text):
        complete_request(*arguments, **options)


@pytest.mark.parametrize("medium", [Image, Audio, Document])
def test_a_medium_has_one_source(medium):
    with pytest.raises(ValueError, match=f"{medium.__name__} takes data or a url"):
        medium("image/png")
    with pytest.raises(ValueError, match="exactly one"):
        medium("image/png", b"x", "https://example.test/x")


@given(st.integers(0, 10**9))
def test_the_flush_interval_is_exact_to_the_nanosecond(nanos):
    interval = stream_request(CompleteRequest(), nanos / 1e9).flush_interval
    assert interval.ToNanoseconds() == nanos


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 1e300, 4e11])
def test_a_flush_interval_that_no_duration_holds_is_a_value_error(seconds):
    with pytest.raises(ValueError, match="flush_interval is a number of seconds"):
        stream_request(CompleteRequest(), seconds)


def test_a_negative_flush_interval_is_sent_with_one_sign_for_the_server_to_refuse():
    interval = stream_request(CompleteRequest(), -1.5).flush_interval
    assert (interval.seconds, interval.nanos) == (-1, -500_000_000)


@pytest.mark.parametrize("prompt", [b"hi", bytearray(b"hi"), {"role": "user"}, 7, Message.user("hi")])
def test_a_prompt_of_the_wrong_type_is_named_by_its_own_type(prompt):
    with pytest.raises(TypeError, match=f"text or a list of Message, not {type(prompt).__name__}$"):
        complete_request("m", prompt)


def test_a_prompt_may_be_any_run_of_messages():
    turns = (Message.user("a"), Message.user("b"))
    assert complete_request("m", iter(turns), call_id="c") == complete_request("m", turns, call_id="c")  # type: ignore[arg-type]
