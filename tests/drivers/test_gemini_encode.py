"""What leaves for the Gemini API, byte by byte, and what this provider cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelmeter_server.core.requests import (
    FORCED_TOOL,
    Continuation,
    MediaKind,
    MediaPart,
    ReasoningEffort,
    SchemaMode,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.gemini import authenticate, encode
from tests.support import completion_requests as requests
from tests.support.completion_requests import (
    GEMINI,
    OPENAI,
    ask,
    ask_messages,
    ask_native,
    assistant,
    cannot,
    model_of,
    sent,
    user,
    wrong,
)

SCHEMA = '{"type":"object", "properties":{"z":{"const":1.50},"a":{"const":12345678901234567890}}}'
LOOK = Tool(
    name="look", description="Look.", parameters_json='{"type":"object","properties":{"b":{},"a":{}}}'
)
SIGNED = [
    {"text": "Hm.", "thought": True},
    {"text": "", "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "look", "args": {"n": 1.50}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"id": "c1", "name": "add", "args": {}}},
]
TURN = json.dumps([{"role": "model", "parts": SIGNED}])
STATE = Continuation(GEMINI, TURN)
RESULTS = user(ToolResultPart(call_id="look-2", output="sky"), ToolResultPart(call_id="c1", output="5"))
HELLO = user(TextPart("Hello"))
RESPONSES = [
    {"functionResponse": {"name": "look", "response": {"output": "sky"}}},
    {"functionResponse": {"id": "c1", "name": "add", "response": {"output": "5"}}},
]


def body_of(request: Any, **model: Any) -> Any:
    return requests.body_of(request, model_of(GEMINI, **model))


def refused(request: Any, **model: Any) -> list[str]:
    return cannot(request, model_of(GEMINI, **model))


def test_a_question_is_one_user_turn_and_the_address_names_the_model():
    prepared = encode(ask("Hi"), model_of(GEMINI))
    assert (prepared.target, prepared.headers) == (
        "/v1beta/models/the-model:streamGenerateContent?alt=sse",
        (),
    )
    assert prepared.body == (
        b'{"contents":[{"role":"user","parts":[{"text":"Hi"}]}],"generationConfig":{"maxOutputTokens":16384}}'
    )


def test_gemini_maps_the_request_shape_and_the_system_instruction():
    request = ask(
        "Hi",
        system="Be kind.",
        tools=(LOOK,),
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        seed=-7,
        stop_sequences=("END",),
        reasoning_effort=ReasoningEffort.LOW,
    )
    assert body_of(request) == {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Look.",
                        "parametersJsonSchema": {"type": "object", "properties": {"b": {}, "a": {}}},
                    }
                ]
            }
        ],
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0.5,
            "topP": 0.25,
            "topK": 3,
            "seed": -7,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "LOW"},
        },
    }


def test_gemini_sends_no_sampling_parameter_that_was_not_asked_for():
    assert body_of(ask())["generationConfig"].keys() == {"maxOutputTokens"}


def test_gemini_maps_the_thinking_levels_it_has_and_refuses_the_rest():
    for effort in ("minimal", "low", "medium", "high", "xhigh"):
        config = body_of(ask(reasoning_effort=ReasoningEffort(effort)))["generationConfig"]
        assert config["thinkingConfig"] == {"thinkingLevel": effort.upper()}
    for other in (ReasoningEffort.NONE, ReasoningEffort.MAX):
        assert refused(ask(reasoning_effort=other)) == ["reasoning_effort"]


def test_gemini_asks_for_a_native_response_schema():
    config = body_of(ask(output_schema_json=SCHEMA, tools=(LOOK,)))["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert SCHEMA.encode() in sent(ask(output_schema_json=SCHEMA), model_of(GEMINI))


def test_the_forced_tool_is_the_one_that_may_be_called():
    body = body_of(ask(output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL))
    (tool,) = body["tools"][0]["functionDeclarations"]
    assert tool["name"] == FORCED_TOOL
    assert body["toolConfig"] == {
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [FORCED_TOOL]}
    }
    assert "responseJsonSchema" not in body["generationConfig"]
    listed = ask(output_schema_json='{"type":"array"}', schema_mode=SchemaMode.FORCED_TOOL)
    assert refused(listed) == ["output_schema_json"]


@pytest.mark.parametrize(
    ("choice", "strict", "config"),
    [
        (None, False, None),
        (None, True, {"mode": "VALIDATED"}),
        (ToolChoice(), False, {"mode": "AUTO"}),
        (ToolChoice(), True, {"mode": "VALIDATED"}),
        (ToolChoice(mode=ToolMode.NONE), True, {"mode": "NONE"}),
        (ToolChoice(mode=ToolMode.REQUIRED), True, {"mode": "ANY"}),
        (
            ToolChoice(mode=ToolMode.NAMED, name="look"),
            False,
            {"mode": "ANY", "allowedFunctionNames": ["look"]},
        ),
    ],
)
def test_a_choice_is_a_mode_and_strictness_is_one_too(choice, strict, config):
    tool = Tool(name="look", strict=strict)
    body = body_of(ask(tools=(tool,), tool_choice=choice))
    assert body.get("toolConfig") == (None if config is None else {"functionCallingConfig": config})
    assert body["tools"] == [{"functionDeclarations": [{"name": "look"}]}]


def test_typed_parts_become_parts():
    image = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=b"\xff\x00")
    linked = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="data:image/gif;base64,eA==")
    sound = MediaPart(kind=MediaKind.AUDIO, media_type="audio/wav", data=b"RIFF")
    pdf = MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", data=b"%PDF", name="a.pdf")
    (turn,) = body_of(ask_messages(user(TextPart("See"), image, linked, sound, pdf)))["contents"]
    assert turn == {
        "role": "user",
        "parts": [
            {"text": "See"},
            {"inlineData": {"mimeType": "image/png", "data": "/wA="}},
            {"inlineData": {"mimeType": "image/gif", "data": "eA=="}},
            {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
        ],
    }


def test_gemini_refuses_a_provider_side_file_uri():
    uri = "https://a.example/a.pdf"
    remote = ask_messages(user(MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", url=uri)))
    assert refused(remote)
    native = json.dumps([{"role": "user", "parts": [{"fileData": {"fileUri": "gs://bucket/a"}}]}])
    assert wrong(ask_native(native), model_of(GEMINI)) == ["native_json[0].parts[0].fileData.fileUri"]
    (turn,) = body_of(remote, allow_remote_media=True)["contents"]
    assert turn["parts"] == [{"fileData": {"mimeType": "application/pdf", "fileUri": uri}}]


def test_a_call_and_its_result_are_rebuilt_with_their_id_and_name():
    call = ToolCallPart(id="c1", name="look", arguments_json='{"n": 1.50}')
    failed = ToolResultPart(call_id="c1", output="no", failed=True)
    body = sent(ask_messages(HELLO, assistant(TextPart("So"), call), user(failed)), model_of(GEMINI))
    assert b'{"functionCall":{"id":"c1","name":"look","args":{"n": 1.50}}}' in body
    result = json.loads(body)["contents"][2]["parts"]
    assert result == [{"functionResponse": {"id": "c1", "name": "look", "response": {"error": "no"}}}]


def test_a_continuation_goes_back_untouched_with_its_signatures_and_before_its_results():
    for request in (
        ask_messages(HELLO, assistant(STATE), RESULTS),
        ask_messages(HELLO, RESULTS, continuation=STATE),
    ):
        assert wrong(request, model_of(GEMINI)) == []
        body = sent(request, model_of(GEMINI))
        assert TURN[1:-1].encode() in body
        contents = json.loads(body)["contents"]
        assert [turn["role"] for turn in contents] == ["user", "model", "user"]
        # The provider gave the first call no id: what we call it means nothing there.
        assert contents[2]["parts"] == RESPONSES


def test_two_tool_turns_accumulate_the_transcript_exactly_once():
    second = Continuation(
        GEMINI, '[{"role":"model","parts":[{"functionCall":{"name":"find"},"thoughtSignature":"eA=="}]}]'
    )
    last = user(ToolResultPart(call_id="find-0", output="here"))
    contents = body_of(ask_messages(HELLO, assistant(STATE), RESULTS, last, continuation=second))["contents"]
    assert [turn["role"] for turn in contents] == ["user", "model", "user", "model", "user"]
    assert contents[4]["parts"] == [{"functionResponse": {"name": "find", "response": {"output": "here"}}}]


def test_a_native_result_that_names_the_tool_alone_finds_its_call():
    native = json.dumps(
        [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "look", "response": {"output": "sky"}}}],
            },
        ]
    )
    request = ask_native(native, continuation=STATE)
    assert wrong(request, model_of(GEMINI)) == []
    assert [turn["role"] for turn in body_of(request)["contents"]] == ["user", "model", "user"]


def test_gemini_refuses_another_providers_continuation():
    state = Continuation(OPENAI, '[{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}]')
    request = ask_messages(HELLO, assistant(state), RESULTS)
    assert wrong(request, model_of(GEMINI)) == ["messages.messages[1].parts[0].continuation.provider"]
    blocks = Continuation(GEMINI, '[{"role":"model","content":[]}]')
    assert refused(ask_messages(HELLO, assistant(blocks))) == [
        "messages.messages[1].parts[0].continuation.state_json"
    ]


def test_a_result_without_its_call_is_refused_because_it_needs_the_calls_name():
    result = user(ToolResultPart(call_id="c9", output="sky"))
    assert refused(ask_messages(HELLO, result)) == ["messages.messages[1].parts[0].tool_result.call_id"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"tools": (LOOK,), "tool_choice": ToolChoice(disable_parallel_calls=True)},
            "tool_choice.disable_parallel_calls",
        ),
        ({"temperature": 2.1}, "temperature"),
        ({"seed": 2**31}, "seed"),
        ({"top_k": 2**40}, "top_k"),
        ({"stop_sequences": tuple("abcdef")}, "stop_sequences"),
    ],
)
def test_what_this_provider_cannot_do_is_refused(fields, field):
    assert refused(ask(**fields)) == [field]


def test_free_text_calls_are_refused():
    call = ToolCallPart(id="c1", name="look", arguments_json="words", free_text=True)
    path = "messages.messages[1].parts[0].tool_call.free_text"
    assert refused(ask_messages(HELLO, assistant(call))) == [path]


@pytest.mark.parametrize("system", ['"Be kind."', '[{"text":"Be kind."}]'])
def test_a_native_system_becomes_the_instruction_and_no_turn(system):
    turns = '[{"role":"user","parts":[{"text":"Hi"},{"n":1.50}]}]'
    body = sent(ask_native(f'{{"contents":{turns},"system":{system}}}'), model_of(GEMINI))
    assert turns.encode() in body
    assert json.loads(body)["systemInstruction"] == {"parts": [{"text": "Be kind."}]}


# Options


def options(value: Any, **fields: Any) -> Any:
    return ask(provider_options_json=json.dumps(value), **fields)


def test_gemini_passes_the_callers_safety_thresholds_and_its_own_generation_options():
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}]
    config = {"thinkingConfig": {"includeThoughts": True}, "responseModalities": ["TEXT"], "logprobs": 2}
    request = options(
        {"safetySettings": safety, "generationConfig": config}, reasoning_effort=ReasoningEffort.HIGH
    )
    assert wrong(request, model_of(GEMINI)) == []
    body = body_of(request)
    assert body["safetySettings"] == safety
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "HIGH", "includeThoughts": True}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
        (
            {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}},
            "generationConfig.responseModalities",
        ),
        (
            {"generation_config": {"thinking_config": {"thinking_level": "LOW"}}},
            "generation_config.thinking_config.thinking_level",
        ),
        ({"continuationToken": "t"}, "continuationToken"),
        ({"tools": [{"functionDeclarations": []}]}, "tools[0].functionDeclarations"),
        ({"tools": [{"googleSearch": {}}]}, "tools[0].googleSearch"),
        ({"tools": [{"urlContext": {}, "google_search": {}}]}, "tools[0].google_search"),
        ({"tools": [{}]}, "tools[0]"),
    ],
)
def test_options_that_are_owned_are_refused(value, field):
    model = model_of(GEMINI, hosted_tools=frozenset(["url_context"]))
    assert wrong(options(value), model) == [f"provider_options_json.{field}"]


def test_a_thinking_budget_goes_without_an_effort_only():
    value = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
    assert body_of(options(value))["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}
    assert wrong(options(value, reasoning_effort=ReasoningEffort.LOW), model_of(GEMINI)) == [
        "provider_options_json.generationConfig.thinkingConfig.thinkingBudget"
    ]


def test_enabled_tools_of_google_stand_beside_the_callers():
    model = model_of(GEMINI, hosted_tools=frozenset(["google_search", "codeExecution"]))
    request = options({"tools": [{"googleSearch": {}}, {"code_execution": {}}]}, tools=(LOOK,))
    assert wrong(request, model) == []
    assert requests.body_of(request, model)["tools"][1:] == [{"googleSearch": {}}, {"code_execution": {}}]


# Address and key


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-2.5-flash", "models/gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "models/gemini-2.5-flash"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("endpoints/123", "endpoints/123"),
        ("a:b?c=d#e f", "models/a%3Ab%3Fc%3Dd%23e%20f"),
    ],
)
def test_the_model_stands_in_the_path_and_cannot_leave_it(model, path):
    buffered = encode(ask(), model_of(GEMINI, provider_model=model, buffered=True))
    assert buffered.target == f"/v1beta/{path}:generateContent"


@pytest.mark.parametrize("model", ["../files", "models/..", "a//b", "/a", ".", ""])
def test_a_name_that_would_lead_elsewhere_is_refused(model):
    assert refused(ask(), provider_model=model) == ["model"]


@pytest.mark.parametrize(
    ("key", "header"),
    [
        ("AIzaSyD-0123", ("x-goog-api-key", "AIzaSyD-0123")),
        ("AQ.Ab8RN6", ("x-goog-api-key", "AQ.Ab8RN6")),
        ("sk-gateway", ("x-goog-api-key", "sk-gateway")),
        ("ya29.c.b0Aaekm1", ("authorization", "Bearer ya29.c.b0Aaekm1")),
        ("eyJhbGci.eyJpc3Mi.c2ln", ("authorization", "Bearer eyJhbGci.eyJpc3Mi.c2ln")),
    ],
)
def test_a_key_has_its_own_header_and_a_token_is_a_bearers(key, header):
    assert authenticate(key) == header
