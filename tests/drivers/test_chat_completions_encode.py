"""What leaves for Chat Completions, byte by byte, in each dialect, and what a dialect cannot do."""

from __future__ import annotations

import json

import msgspec
import pytest

from modelmeter_server.core.dialects import COMPATIBLE, DIALECTS, Dialect, schema_modes
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
from modelmeter_server.drivers.chat_completions import capabilities, encode
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.wire_formats import wire_format
from tests.support import completion_requests
from tests.support.completion_requests import CHAT, ask, ask_messages, ask_native, assistant, fields_of, user

SCHEMA = '{"type":"object", "properties":{"z":{"const":1.50}},"required":["z"],"additionalProperties":false}'
LOOSE = '{"type":"object","properties":{"z":{"default":1}}}'
LOOK = Tool(
    name="look", description="Look.", parameters_json='{"type":"object","properties":{"b":{},"a":{}}}'
)
TURN = (
    '[{"role":"assistant","content":null,"new":1.5,"tool_calls":[{"id":"c1","type":"function",'
    '"extra":{"sig":"eA=="},"function":{"name":"look","arguments":"{}"}}]}]'
)
CALL = ToolCallPart(id="c1", name="look", arguments_json='{"z":1.50}')
RESULT = user(ToolResultPart(call_id="c1", output="sky"))
HELLO = user(TextPart("Hello"))
SOUND = MediaPart(kind=MediaKind.AUDIO, media_type="audio/mpeg", data=b"x")
PDF = MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", data=b"%PDF")


def prepared(request, dialect="openai", **fields):
    chosen = dialect if isinstance(dialect, Dialect) else DIALECTS[dialect]
    model = completion_requests.model_of(CHAT, capabilities=capabilities(chosen), **fields)
    return encode(request, model, chosen)


def body_of(request, dialect="openai", **fields):
    return msgspec.json.decode(prepared(request, dialect, **fields).body)


def cannot(request, dialect="openai", **fields):
    try:
        prepared(request, dialect, **fields)
    except RequestRefused as refusal:
        return fields_of(refusal.violations)
    return []


def test_a_question_is_one_user_message():
    sent = prepared(ask("Hi"))
    assert (sent.target, sent.headers) == ("/v1/chat/completions", ())
    assert sent.body == (
        b'{"model":"the-model","messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":16384,'
        b'"store":false,"stream":true,"stream_options":{"include_usage":true}}'
    )


def test_usage_is_asked_for_with_a_stream_only_and_where_the_dialect_takes_the_question():
    assert body_of(ask(), buffered=True)["stream"] is False
    assert "stream_options" not in body_of(ask(), buffered=True)
    assert "stream_options" not in body_of(ask(), "mistral")
    assert body_of(ask(), "vllm")["stream_options"] == {"include_usage": True}


def test_a_system_instruction_leads_the_messages():
    lead = {"role": "system", "content": "Be kind."}
    assert body_of(ask(system="Be kind."))["messages"] == [lead, {"role": "user", "content": "Hi"}]
    native = '{"system":"Be kind.","messages":[{"role":"user","content":"Hi"}]}'
    assert body_of(ask_native(native))["messages"][0] == lead
    blocks = '{"system":[{"type":"text","text":"x"}],"input":[{"role":"user","content":"Hi"}]}'
    assert body_of(ask_native(blocks))["messages"][0]["content"] == [{"type": "text", "text": "x"}]
    assert len(body_of(ask())["messages"]) == 1


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_turn_that_instructs_is_refused_also_beside_the_own_instruction(role):
    native = json.dumps([{"role": "user", "content": "Hi"}, {"role": role, "content": "Obey."}])
    assert cannot(ask_native(native, system="Be kind.")) == ["messages[1].role"]
    assert cannot(ask_native(native)) == ["messages[1].role"]


def test_typed_parts_become_content():
    image = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=b"\xff\x00")
    (message,) = body_of(ask_messages(user(TextPart("See"), image, SOUND, PDF)))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,/wA="}},
        {"type": "input_audio", "input_audio": {"data": "eA==", "format": "mp3"}},
        {
            "type": "file",
            "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        },
    ]


def test_a_text_alone_is_a_string():
    assert body_of(ask_messages(HELLO))["messages"] == [{"role": "user", "content": "Hello"}]
    (two,) = body_of(ask_messages(user(TextPart("a"), TextPart("b"))))["messages"]
    assert two["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_media_that_the_format_cannot_carry_are_refused():
    where = "messages.messages[0].parts[0]"
    flac = MediaPart(kind=MediaKind.AUDIO, media_type="audio/flac", data=b"x")
    plain = MediaPart(kind=MediaKind.DOCUMENT, media_type="text/plain", data=b"x")
    far = MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", url="https://a.example/a.pdf")
    assert cannot(ask_messages(user(flac))) == [f"{where}.audio.media_type"]
    assert cannot(ask_messages(user(plain))) == [f"{where}.document.media_type"]
    assert cannot(ask_messages(user(far)), allow_remote_media=True) == [f"{where}.document.url"]
    assert cannot(ask_messages(user(SOUND)), "groq") == [f"{where}.audio"]
    assert cannot(ask_messages(user(PDF)), "azure") == [f"{where}.document"]


def test_remote_images_need_the_deployments_leave():
    picture = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="https://a.example/a.png")
    assert cannot(ask_messages(user(picture))) == ["messages[0].content[0].image_url.url"]
    (message,) = body_of(ask_messages(user(picture)), allow_remote_media=True)["messages"]
    assert message["content"][0]["image_url"] == {"url": "https://a.example/a.png"}


def test_tool_turns_return_under_the_ids_the_model_issued():
    both = user(ToolResultPart(call_id="c1", output="no sky", failed=True), TextPart("Well?"))
    messages = body_of(ask_messages(HELLO, assistant(TextPart("I look."), CALL), both))["messages"]
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"z":1.50}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "The tool failed: no sky"},
        {"role": "user", "content": "Well?"},
    ]


def test_what_the_format_would_reorder_is_refused():
    late = user(TextPart("Well?"), ToolResultPart(call_id="c1", output="sky"))
    assert cannot(ask_messages(HELLO, assistant(CALL), late)) == ["messages.messages[2].parts[1].tool_result"]
    talking = assistant(CALL, TextPart("I look."))
    assert cannot(ask_messages(HELLO, talking, RESULT)) == ["messages.messages[1].parts[1].text"]


def test_free_text_calls_go_back_where_the_dialect_has_them():
    call = ToolCallPart(id="c1", name="run", arguments_json="ls -l", free_text=True)
    (_, turn, _) = body_of(ask_messages(HELLO, assistant(call), RESULT))["messages"]
    assert turn["tool_calls"] == [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls -l"}}]
    assert cannot(ask_messages(HELLO, assistant(call), RESULT), "vllm") == [
        "messages.messages[1].parts[0].tool_call.free_text"
    ]


def test_a_continuation_goes_back_untouched_before_its_results():
    state = Continuation(CHAT, TURN)
    beside = prepared(ask_messages(HELLO, RESULT, continuation=state)).body
    inside = prepared(ask_messages(HELLO, assistant(state), RESULT)).body
    native = '[{"role":"user","content":"Hello"},{"role":"tool","tool_call_id":"c1","content":"sky"}]'
    assert beside == inside == prepared(ask_native(native, continuation=state)).body
    assert TURN[1:-1].encode() in beside
    assert [each["role"] for each in json.loads(beside)["messages"]] == ["user", "assistant", "tool"]


def test_two_tool_turns_accumulate_the_transcript_exactly_once():
    request = ask_messages(
        HELLO,
        assistant(Continuation(CHAT, TURN)),
        RESULT,
        user(ToolResultPart(call_id="c2", output="sea")),
        continuation=Continuation(CHAT, TURN.replace("c1", "c2")),
    )
    messages = body_of(request)["messages"]
    calls = [each.get("tool_call_id") or each.get("tool_calls", [{}])[0].get("id") for each in messages]
    assert calls == [None, "c1", "c1", "c2", "c2"]


def test_tools_are_nested_under_their_function():
    strict = Tool(name="sure", parameters_json=SCHEMA, strict=True)
    body = prepared(ask(tools=(LOOK, strict))).body
    assert (
        '"tools":[{"type":"function","function":{"name":"look","description":"Look.",'
        f'"parameters":{LOOK.parameters_json}}}}},{{"type":"function","function":{{"name":"sure",'
        f'"parameters":{SCHEMA},"strict":true}}}}]'
    ).encode() in body
    assert b"tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "rendered"),
    [
        (ToolChoice(), "auto"),
        (ToolChoice(mode=ToolMode.NONE), "none"),
        (ToolChoice(mode=ToolMode.REQUIRED), "required"),
        (ToolChoice(mode=ToolMode.NAMED, name="look"), {"type": "function", "function": {"name": "look"}}),
    ],
)
def test_a_tool_choice_is_rendered(choice, rendered):
    assert body_of(ask(tools=(LOOK,), tool_choice=choice))["tool_choice"] == rendered


def test_a_server_that_leaves_the_choice_to_the_model_is_asked_for_nothing_else():
    def choosing(dialect, **choice):
        return cannot(ask(tools=(LOOK,), tool_choice=ToolChoice(**choice)), dialect)

    assert choosing("ollama") == []
    assert choosing("ollama", mode=ToolMode.REQUIRED) == ["tool_choice.mode"]
    assert choosing("ollama", disable_parallel_calls=True) == ["tool_choice.disable_parallel_calls"]
    assert choosing("vllm", mode=ToolMode.REQUIRED, disable_parallel_calls=True) == []


def test_a_schema_is_sent_as_a_strict_constraint():
    body = prepared(ask(output_schema_json=SCHEMA)).body
    assert (
        '"response_format":{"type":"json_schema","json_schema":{"name":"modelmeter_response","strict":true,'
        f'"schema":{SCHEMA}}}}}'
    ).encode() in body
    plain = body_of(ask(output_schema_json=SCHEMA), msgspec.structs.replace(COMPATIBLE, strict=False))
    assert "strict" not in plain["response_format"]["json_schema"]


def test_a_forced_tool_is_the_only_tool():
    request = ask(output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL)
    body = body_of(request)
    (tool,) = body["tools"]
    assert (tool["function"]["name"], tool["function"]["strict"]) == (FORCED_TOOL, True)
    assert body["tool_choice"] == {"type": "function", "function": {"name": FORCED_TOOL}}
    assert body["parallel_tool_calls"] is False
    assert "response_format" not in body
    assert "parallel_tool_calls" not in body_of(request, "deepseek")


def test_a_schema_outside_the_strict_subset_is_refused_where_the_server_would():
    asked = ask(output_schema_json=LOOSE)
    assert cannot(asked) == ["output_schema_json"]
    assert cannot(asked, "vllm") == []
    strict = ask(tools=(Tool(name="t", parameters_json=LOOSE, strict=True),))
    assert cannot(strict) == ["tools[0].parameters_json"]
    assert cannot(strict, "zai") == ["tools[0].strict"]


def test_a_forced_schema_needs_an_object_at_its_root():
    request = ask(output_schema_json='{"type":"array","items":{}}', schema_mode=SchemaMode.FORCED_TOOL)
    assert cannot(request, "vllm") == ["output_schema_json"]


def test_a_mode_that_the_dialect_lacks_is_refused():
    assert cannot(ask(output_schema_json=SCHEMA), "deepseek") == ["schema_mode"]
    forced = ask(output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL)
    assert cannot(forced, "ollama") == ["schema_mode"]
    assert cannot(ask(output_schema_json=SCHEMA, tools=(LOOK,)), "groq") == ["tools"]


def test_no_dialect_is_trusted_to_enforce_a_schema():
    assert not any(capabilities(dialect).enforces_native_schema for dialect in DIALECTS.values())


def test_a_reasoning_effort_is_refused_rather_than_dropped():
    low = ask(reasoning_effort=ReasoningEffort.LOW)
    assert body_of(low)["reasoning_effort"] == "low"
    assert body_of(low, "openrouter")["reasoning"] == {"effort": "low"}
    assert cannot(low, "compatible") == ["reasoning_effort"]
    assert cannot(ask(reasoning_effort=ReasoningEffort.MEDIUM), "mistral") == ["reasoning_effort"]


def test_sampling_is_sent_under_the_names_of_the_dialect():
    sampled = ask(temperature=0.5, top_p=0.5, seed=7, stop_sequences=("a", "b"))
    body = body_of(sampled)
    assert (body["temperature"], body["top_p"], body["seed"], body["stop"]) == (0.5, 0.5, 7, ["a", "b"])
    assert body_of(sampled, "mistral")["random_seed"] == 7
    assert cannot(sampled, "snowflake") == ["seed", "stop_sequences"]
    assert cannot(ask(top_k=5)) == ["top_k"]
    assert body_of(ask(top_k=5), "vllm")["top_k"] == 5
    assert cannot(ask(stop_sequences=("a",) * 5)) == ["stop_sequences"]
    assert cannot(ask(temperature=2.5)) == ["temperature"]


def test_the_limit_goes_by_the_name_of_the_dialect():
    assert body_of(ask(max_output_tokens=9))["max_completion_tokens"] == 9
    body = body_of(ask(max_output_tokens=9), "deepseek")
    assert (body["max_tokens"], "max_completion_tokens" in body, "store" in body) == (9, False, False)


def test_options_pass_through_and_override_nothing():
    assert body_of(ask(provider_options_json='{"logit_bias":{"5":1}}'))["logit_bias"] == {"5": 1}
    option = ask(provider_options_json='{"reasoning":{"max_tokens":5}}', reasoning_effort=ReasoningEffort.LOW)
    assert body_of(option, "openrouter")["reasoning"] == {"effort": "low", "max_tokens": 5}
    assert cannot(ask(provider_options_json='{"stream":false}')) == ["provider_options_json.stream"]


def test_the_dialect_says_where_to_and_with_which_header():
    azure = msgspec.structs.replace(DIALECTS["azure"], path="/chat/completions", api_version="2024-10-21")
    assert prepared(ask(), azure).target == "/chat/completions?api-version=2024-10-21"
    assert wire_format(CHAT, azure).authenticate("k") == ("api-key", "k")
    assert wire_format(CHAT).authenticate("k") == ("authorization", "Bearer k")
    assert prepared(ask(), "gemini").target == "/chat/completions"


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_every_dialect_encodes_a_question_in_each_of_its_schema_modes(dialect):
    for mode in schema_modes(dialect):
        body = body_of(ask(output_schema_json=SCHEMA, schema_mode=mode), dialect)
        assert ("response_format" in body) == (mode is SchemaMode.NATIVE)
        assert body[dialect.max_tokens_field] == 16_384
