"""A request with any number of mistakes reports every one of them, and nothing that is not there."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.caller_json import field_path
from modelmeter_server.core.requests import (
    Continuation,
    MediaKind,
    MediaPart,
    Part,
    ReasoningEffort,
    Role,
    SchemaMode,
    TextPart,
    Tool,
    ToolChoice,
    ToolMode,
)
from tests.support.completion_requests import ANTHROPIC, OPENAI, ask, assistant, model_of, user, wrong

OBJECT = '{"type":"object"}'
OPTIONS = "provider_options_json"

# One mistake each, in fields that do not touch each other: what is set, and the field that must be named.
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "limit": ({"max_output_tokens": 0}, "max_output_tokens"),
    "heat": ({"temperature": -1.0}, "temperature"),
    "nucleus": ({"top_p": 2.0}, "top_p"),
    "candidates": ({"top_k": -5}, "top_k"),
    "seed": ({"seed": 1}, "seed"),
    "stop": ({"stop_sequences": ("a", "")}, "stop_sequences[1]"),
    "effort": ({"reasoning_effort": ReasoningEffort.MINIMAL}, "reasoning_effort"),
    "tool": ({"tools": (Tool(name="a b"),)}, "tools[0].name"),
    "choice": ({"tool_choice": ToolChoice(mode=ToolMode.NAMED, name="nobody")}, "tool_choice"),
    "schema": ({"output_schema_json": '{"$ref":"http://a.example/"}'}, "output_schema_json"),
    "options": ({OPTIONS: '{"stream":true}'}, f"{OPTIONS}.stream"),
    "labels": ({"labels": {"k": "v" * 300}}, "labels.k"),
    "state": ({"continuation": Continuation(OPENAI, "[{}]")}, "continuation.provider"),
    "prompt": ({"text": ""}, "text"),
}


@given(st.sets(st.sampled_from(sorted(MISTAKES))))
def test_a_request_with_any_mistakes_reports_exactly_these(chosen):
    fields: dict[str, Any] = {}
    for name in chosen:
        fields.update(MISTAKES[name][0])
    expected = {MISTAKES[name][1] for name in chosen}
    if {"tool", "choice"} <= chosen:  # with a tool to choose from, the choice is wrong by its name
        expected = expected - {"tool_choice"} | {"tool_choice.name"}
    found = wrong(ask(**{"text": "Hi", **fields}))
    assert set(found) == expected
    assert len(found) == len(expected)


WRONG_PARTS: dict[str, Part] = {
    "image": MediaPart(kind=MediaKind.IMAGE, media_type="", data=b"x"),
    "document": MediaPart(
        kind=MediaKind.DOCUMENT, media_type="application/pdf", url="http://a.example/a.pdf"
    ),
    "audio": MediaPart(kind=MediaKind.AUDIO, media_type="audio/wav", data=b"x"),
    "text": TextPart(""),
    "continuation": Continuation(ANTHROPIC, "[{}]"),
}
PLACES = {
    "image": "image.media_type",
    "document": "document.url",
    "audio": "audio",
    "text": "text",
    "continuation": "continuation",
}


@given(
    st.lists(
        st.sampled_from([None, "image", "document", "audio", "text", "continuation"]), min_size=1, max_size=8
    )
)
def test_every_wrong_message_is_reported_by_its_index(chosen):
    messages = [user(WRONG_PARTS[name] if name else TextPart("fine")) for name in chosen]
    expected = [
        f"messages.messages[{index}].parts[0].{PLACES[name]}" for index, name in enumerate(chosen) if name
    ]
    assert sorted(wrong(ask(None, messages=tuple(messages)))) == sorted(expected)


RESERVED = ["model", "max_tokens", "maxOutputTokens", "toolChoice", "store", "serviceTier", "top-p", "INPUT"]


@given(
    st.sets(st.sampled_from(RESERVED)),
    st.sets(st.sampled_from(["metadata", "user", "x", "prompt_cache_key", "truncation"])),
    st.sampled_from([(), ("generationConfig",), ("extra_body", "inference_config")]),
)
def test_every_reserved_key_is_reported_and_no_other(reserved, free, carriers):
    options: Any = dict.fromkeys([*free, *reserved], 1)
    path = OPTIONS
    for carrier in carriers:
        path = field_path(path, carrier)
    for carrier in reversed(carriers):
        options = {carrier: options}
    request = ask(provider_options_json=json.dumps(options))
    assert sorted(wrong(request)) == sorted(f"{path}.{key}" for key in reserved)


@given(st.sampled_from(Role), st.sampled_from(SchemaMode), st.booleans())
def test_a_sound_request_has_no_mistakes_in_any_mode(role, mode, with_schema):
    speak = user if role is Role.USER else assistant
    schema: dict[str, Any] = {"output_schema_json": OBJECT, "schema_mode": mode} if with_schema else {}
    request = ask(None, messages=(speak(TextPart("Hi")),), **schema)
    assert wrong(request, model_of()) == []
