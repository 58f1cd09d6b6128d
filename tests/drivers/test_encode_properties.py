"""Laws of every encoder: caller JSON arrives as it was written, no provider is made to fetch, nothing else escapes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import (
    Continuation,
    MediaKind,
    MediaPart,
    ReasoningEffort,
    SchemaMode,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support.completion_requests import (
    ANTHROPIC,
    BEDROCK,
    CHAT,
    GEMINI,
    KINDS,
    OPENAI,
    ask,
    ask_messages,
    ask_native,
    assistant,
    model_of,
    sent,
    user,
)

PARAMETERS: dict[str, tuple[str | int, ...]] = {
    ANTHROPIC: ("tools", 0, "input_schema"),
    BEDROCK: ("toolConfig", "tools", 0, "toolSpec", "inputSchema", "json"),
    CHAT: ("tools", 0, "function", "parameters"),
    GEMINI: ("tools", 0, "functionDeclarations", 0, "parametersJsonSchema"),
    OPENAI: ("tools", 0, "parameters"),
}
TURNS = {ANTHROPIC: "messages", BEDROCK: "messages", CHAT: "messages", GEMINI: "contents", OPENAI: "input"}
CALLING: dict[str, dict[str, Any]] = {
    ANTHROPIC: {"content": [{"type": "tool_use", "id": "c"}]},
    BEDROCK: {"content": [{"toolUse": {"toolUseId": "c"}}]},
    CHAT: {"tool_calls": [{"id": "c"}]},
    GEMINI: {"parts": [{"functionCall": {"id": "c", "name": "t"}}]},
    OPENAI: {"content": [{"type": "function_call", "call_id": "c"}]},
}
"""What an assistant's turn holds that calls a tool."""
HOST = "fetch-me.example"
REMOTE = f"https://{HOST}/x"

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
kinds = st.sampled_from(KINDS)


def turn_of(role: str, kind: str, content: Any) -> dict[str, Any]:
    """Return a turn as a provider writes it."""
    return {"role": role, "parts" if kind == GEMINI else "content": content}


def spaced(value: Any) -> str:
    """Return JSON text in a spelling of its own, which no serialiser here would choose."""
    return json.dumps(value, ensure_ascii=False, separators=(" ,\n", "  : "))


def ordered(text: bytes | str) -> Any:
    """Return JSON with its objects as lists of pairs and its numbers as texts: order and digits count."""
    return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)


def member(pairs: Any, *path: str | int) -> Any:
    """Return what stands at a path of `ordered` JSON."""
    for step in path:
        pairs = pairs[step] if isinstance(step, int) else dict(pairs)[step]
    return pairs


@given(kinds, json_objects)
def test_the_schema_of_a_tool_arrives_as_it_was_written(kind, value):
    text = spaced({**value, "type": "object"})
    body = ordered(sent(ask(tools=(Tool(name="t", parameters_json=text),)), model_of(kind)))
    assert member(body, *PARAMETERS[kind]) == ordered(text)


@given(json_objects)
def test_an_output_schema_arrives_as_it_was_written(value):
    text = spaced({**value, "type": "object"})
    native = ordered(sent(ask(output_schema_json=text)))
    assert member(native, "output_config", "format", "schema") == ordered(text)
    forced = ordered(sent(ask(output_schema_json=text, schema_mode=SchemaMode.FORCED_TOOL)))
    assert member(forced, "tools", 0, "input_schema") == ordered(text)
    gemini = ordered(sent(ask(output_schema_json=text), model_of(GEMINI)))
    assert member(gemini, "generationConfig", "responseJsonSchema") == ordered(text)


@given(json_objects)
def test_the_arguments_of_a_call_arrive_as_they_were_written(value):
    text = spaced(value)
    turns = assistant(ToolCallPart(id="c", name="t", arguments_json=text)), user(ToolResultPart(call_id="c"))
    anthropic = ordered(sent(ask_messages(*turns)))
    assert member(anthropic, "messages", 0, "content", 0, "input") == ordered(text)
    bedrock = ordered(sent(ask_messages(*turns), model_of(BEDROCK)))
    assert member(bedrock, "messages", 0, "content", 0, "toolUse", "input") == ordered(text)
    gemini = ordered(sent(ask_messages(*turns), model_of(GEMINI)))
    assert member(gemini, "contents", 0, "parts", 0, "functionCall", "args") == ordered(text)
    openai = json.loads(sent(ask_messages(*turns), model_of(OPENAI)))
    assert openai["input"][0]["arguments"] == text
    chat = json.loads(sent(ask_messages(*turns), model_of(CHAT)))
    assert chat["messages"][0]["tool_calls"][0]["function"]["arguments"] == text


@given(kinds, json_objects)
def test_native_turns_and_continuations_arrive_as_they_were_written(kind, value):
    harmless = {"type": "text", "about": {"metadata": value}}
    model = model_of(kind)
    native = spaced([turn_of("user", kind, [harmless])])
    assert member(ordered(sent(ask_native(native), model)), TURNS[kind]) == ordered(native)
    state = spaced([turn_of("assistant", kind, [harmless])])
    body = sent(ask_messages(assistant(Continuation(kind, state))), model)
    assert member(ordered(body), TURNS[kind]) == ordered(state)


@given(kinds, json_objects)
def test_options_arrive_as_they_were_written(kind, value):
    options = spaced({"x_data": value, "a_key_of_tomorrow": value})
    body = ordered(sent(ask(provider_options_json=options), model_of(kind)))
    assert member(body, "x_data") == member(body, "a_key_of_tomorrow") == ordered(spaced(value))


def planted(medium: Any, depth: list[str]) -> Any:
    """Return the medium inside data."""
    for step in depth:
        medium = {step: medium} if step else [medium]
    return medium


media = st.sampled_from(
    [
        {"type": "image", "source": {"type": "url", "url": REMOTE}},
        {"type": "document", "source": {"url": REMOTE, "type": "url"}},
        {"type": "input_image", "image_url": REMOTE},
        {"type": "image_url", "image_url": {"url": REMOTE, "detail": "low"}},
        {"type": "input_file", "file_url": REMOTE},
        {"type": "document_url", "document_url": REMOTE},
        {"type": "file", "file": {"file_data": REMOTE}},
        {"fileData": {"fileUri": REMOTE}},
        {"file_data": {"file_uri": REMOTE}},
        {"s3Location": {"uri": REMOTE}},
    ]
)
depths = st.lists(st.sampled_from(["", "content", "output", "a b", "type"]), max_size=5)


@given(kinds, media, depths, st.sampled_from(["native", "state", "beside", "options", "typed"]))
def test_no_planted_remote_url_ever_reaches_a_body(kind, medium, depth, place):
    model = model_of(kind)
    turn = turn_of("assistant", kind, planted(medium, depth))
    state = Continuation(kind, json.dumps([turn, {"role": "assistant", **CALLING[kind]}]))
    results = user(ToolResultPart(call_id="c"))
    request = {
        "native": ask_native(json.dumps([turn])),
        "state": ask_messages(assistant(state), results),
        "beside": ask_messages(results, continuation=state),
        "options": ask(provider_options_json=json.dumps({"own": planted(medium, depth)})),
        "typed": ask_messages(user(MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url=REMOTE))),
    }[place]
    assert check_request(request, model)
    with pytest.raises(RequestRefused):  # the encoder does not rely on the checks before it
        sent(request, model)


json_texts = st.sampled_from(
    ["", "{", "[", "[]", "null", '"a"', "[1]", '{"a":1,"a":2}', "\ufeff{}", "[1e999]", "\x00"]
)
hostile_texts = json_texts | json_values.map(json.dumps) | st.text()


@given(
    kinds,
    st.fixed_dictionaries(
        {},
        optional={
            "native_json": hostile_texts,
            "output_schema_json": hostile_texts,
            "provider_options_json": hostile_texts,
            "tools": hostile_texts.map(lambda text: (Tool(name="t", parameters_json=text, strict=True),)),
            "continuation": st.builds(Continuation, kinds, hostile_texts),
            "messages": hostile_texts.map(
                lambda text: (assistant(ToolCallPart(id="", name="", arguments_json=text)),)
            ),
            "schema_mode": st.sampled_from(SchemaMode),
            "reasoning_effort": st.sampled_from(ReasoningEffort),
        },
    ),
)
def test_hostile_json_is_refused_and_never_breaks_anything(kind, fields):
    request = ask(None if {"native_json", "messages"} & fields.keys() else "Hi", **fields)
    model = model_of(kind)
    assert isinstance(check_request(request, model), list)
    try:
        body = WIRE_FORMATS[kind].encode(request, model).body
    except RequestRefused:
        return
    assert isinstance(msgspec.json.decode(body), dict)
