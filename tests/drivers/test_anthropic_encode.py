"""What leaves for the Messages API, byte by byte, and what this provider cannot do."""

from __future__ import annotations

import json

import msgspec
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
from modelmeter_server.drivers.anthropic import encode
from tests.support.completion_requests import (
    ANTHROPIC,
    ask,
    ask_messages,
    ask_native,
    assistant,
    body_of,
    cannot,
    model_of,
    sent,
    user,
)

SCHEMA = '{"type":"object", "properties":{"z":{"const":1.50},"a":{"const":12345678901234567890}}}'
LOOK = Tool(
    name="look", description="Look.", parameters_json='{"type":"object","properties":{"b":{},"a":{}}}'
)
THINKING = [
    {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
    {"type": "redacted_thinking", "data": "eA=="},
    {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "new_field": [1.50]},
]
TURN = json.dumps([{"role": "assistant", "content": THINKING}])
RESULT = user(ToolResultPart(call_id="c1", output="sky"))
HELLO = user(TextPart("Hello"))


def test_a_question_is_one_user_message():
    prepared = encode(ask("Hi"), model_of())
    assert (prepared.target, prepared.headers) == ("/v1/messages", (("anthropic-version", "2023-06-01"),))
    assert prepared.body == (
        b'{"model":"the-model","max_tokens":16384,"messages":[{"role":"user","content":"Hi"}],"stream":true}'
    )


def test_a_buffered_model_asks_for_one_body():
    assert body_of(ask(), model_of(buffered=True))["stream"] is False


def test_the_requests_limit_goes_before_the_models():
    assert body_of(ask(max_output_tokens=1), model_of(max_output_tokens=9))["max_tokens"] == 1
    assert body_of(ask(), model_of(max_output_tokens=9))["max_tokens"] == 9


def test_a_system_instruction_rides_beside_the_messages():
    assert body_of(ask(system="Be kind."))["system"] == "Be kind."
    blocks = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    envelope = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "system": blocks})
    assert body_of(ask_native(envelope))["system"] == blocks


def test_a_system_instruction_is_not_shown_as_the_question():
    envelope = '{"system":"Be kind.","messages":[{"role":"user","content":"Hi"}]}'
    assert body_of(ask_native(envelope))["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("system", ["null", '""', "[]"])
def test_a_prompt_without_a_system_sends_no_system(system):
    assert "system" not in body_of(ask())
    envelope = f'{{"system":{system},"messages":[{{"role":"user","content":"Hi"}}]}}'
    assert "system" not in body_of(ask_native(envelope))


def test_a_multimodal_message_is_passed_through_verbatim():
    turns = (
        '[{"role":"user", "content":[{"type":"image","source":{"type":"base64","data":"eA=="}},{"n":1.50}]}]'
    )
    assert turns[1:-1].encode() in sent(ask_native(turns))


def test_typed_parts_become_blocks():
    image = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=b"\xff\x00")
    linked = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="data:image/gif;base64,eA==")
    pdf = MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", data=b"%PDF", name="a.pdf")
    text = MediaPart(kind=MediaKind.DOCUMENT, media_type="text/plain", data="é".encode())
    (message,) = body_of(ask_messages(user(TextPart("See"), image, linked, pdf, text)))["messages"]
    base64 = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    assert message == {
        "role": "user",
        "content": [
            {"type": "text", "text": "See"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "/wA="}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "eA=="}},
            {"type": "document", "source": base64, "title": "a.pdf"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
        ],
    }


def test_remote_media_go_by_url_where_the_deployment_allows_them():
    remote = MediaPart(kind=MediaKind.DOCUMENT, media_type="application/pdf", url="https://a.example/a.pdf")
    (message,) = body_of(ask_messages(user(remote)), model_of(allow_remote_media=True))["messages"]
    assert message["content"][0]["source"] == {"type": "url", "url": "https://a.example/a.pdf"}


def test_anthropic_never_receives_a_provider_fetched_media_url():
    remote = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="https://a.example/a.png")
    assert cannot(ask_messages(user(remote))) == ["messages[0].content[0].source.url"]
    native = (
        '[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.example/"}}]}]'
    )
    assert cannot(ask_native(native)) == ["messages[0].content[0].source.url"]


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (MediaPart(kind=MediaKind.AUDIO, media_type="audio/wav", data=b"x"), "audio"),
        (MediaPart(kind=MediaKind.DOCUMENT, media_type="text/html", data=b"x"), "document.media_type"),
        (MediaPart(kind=MediaKind.DOCUMENT, media_type="text/plain", data=b"\xff"), "document.data"),
        (MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="data:image/png,raw"), "image.url"),
    ],
)
def test_media_that_this_provider_does_not_take_are_refused(part, field):
    assert cannot(ask_messages(user(part))) == [f"messages.messages[0].parts[0].{field}"]


def test_a_declared_tool_is_rendered_in_anthropics_shape():
    body = sent(ask(tools=(LOOK, msgspec.structs.replace(LOOK, name="b", strict=True), Tool(name="bare"))))
    parameters = LOOK.parameters_json
    assert (
        f'"tools":[{{"name":"look","description":"Look.","input_schema":{parameters}}},'
        f'{{"name":"b","description":"Look.","input_schema":{parameters},"strict":true}},'
        '{"name":"bare","input_schema":{"type":"object","properties":{}}}]'
    ).encode() in body
    assert b"tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "rendered"),
    [
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice(mode=ToolMode.NONE), {"type": "none"}),
        (
            ToolChoice(mode=ToolMode.REQUIRED, disable_parallel_calls=True),
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        (ToolChoice(mode=ToolMode.NAMED, name="look"), {"type": "tool", "name": "look"}),
    ],
)
def test_a_tool_choice_is_rendered(choice, rendered):
    assert body_of(ask(tools=(LOOK,), tool_choice=choice))["tool_choice"] == rendered


def test_a_continuation_echoes_the_call_beside_its_result():
    call = ToolCallPart(id="c1", name="look", arguments_json='{"z":1.50,"a":12345678901234567890}')
    body = sent(ask_messages(HELLO, assistant(TextPart("I look."), call), RESULT))
    assert (
        b'{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"look",'
        b'"input":{"z":1.50,"a":12345678901234567890}}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sky"}]}'
    ) in body


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_a_call_without_arguments_has_an_empty_input(arguments):
    call = ToolCallPart(id="c1", name="look", arguments_json=arguments)
    assert body_of(ask_messages(HELLO, assistant(call), RESULT))["messages"][1]["content"][0]["input"] == {}


def test_arguments_that_the_model_told_twice_are_sent_once():
    call = ToolCallPart(id="c1", name="look", arguments_json='{"b":1,"a":2,"b":3}')
    assert b'"input":{"b":3,"a":2}' in sent(ask_messages(HELLO, assistant(call), RESULT))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (ToolCallPart(id="c1", name="look", arguments_json="[1]"), "arguments_json"),
        (ToolCallPart(id="c1", name="look", arguments_json='{"a":NaN}'), "arguments_json"),
        (ToolCallPart(id="c1", name="look", arguments_json="free", free_text=True), "free_text"),
    ],
)
def test_arguments_that_are_no_object_are_refused(call, field):
    request = ask_messages(HELLO, assistant(call), RESULT)
    assert cannot(request) == [f"messages.messages[1].parts[0].tool_call.{field}"]


def test_a_failed_tool_is_marked_is_error():
    failed = user(ToolResultPart(call_id="c1", output="no sky", failed=True))
    block = body_of(ask_messages(HELLO, failed))["messages"][1]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "c1", "content": "no sky", "is_error": True}


def test_signed_thinking_round_trips_unchanged_before_tool_results():
    state = Continuation(ANTHROPIC, TURN)
    inside = body_of(ask_messages(HELLO, assistant(state), RESULT))["messages"]
    beside = body_of(ask_messages(HELLO, RESULT, continuation=state))["messages"]
    assert inside == beside
    assert inside[1] == {"role": "assistant", "content": THINKING}
    assert TURN[1:-1].encode() in sent(ask_messages(HELLO, RESULT, continuation=state))


def test_blocks_of_content_become_a_turn_of_the_model():
    state = Continuation(ANTHROPIC, json.dumps(THINKING))
    messages = body_of(ask_messages(HELLO, RESULT, continuation=state))["messages"]
    assert messages[1] == {"role": "assistant", "content": THINKING}
    mixed = Continuation(ANTHROPIC, json.dumps([*THINKING, {"role": "assistant", "content": []}]))
    assert cannot(ask_messages(HELLO, RESULT, continuation=mixed)) == ["continuation.state_json"]


def test_continuation_accumulates_every_prior_message():
    second = TURN.replace("c1", "c2")
    request = ask_messages(
        HELLO,
        assistant(Continuation(ANTHROPIC, TURN)),
        RESULT,
        user(ToolResultPart(call_id="c2", output="sea")),
        continuation=Continuation(ANTHROPIC, second),
    )
    roles = [(turn["role"], json.dumps(turn).count('"c2"')) for turn in body_of(request)["messages"]]
    assert roles == [("user", 0), ("assistant", 0), ("user", 0), ("assistant", 1), ("user", 1)]


def test_a_continuation_goes_before_native_results():
    results = '[{"role":"user","content":"Hi"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"}]}]'
    messages = body_of(ask_native(results, continuation=Continuation(ANTHROPIC, TURN)))["messages"]
    assert [turn["role"] for turn in messages] == ["user", "assistant", "user"]


def test_a_first_turn_is_untouched():
    turns = '[ {"role":"user","content":[{"type":"text","text":"Hi"}]} ]'
    assert body_of(ask_native(turns))["messages"] == json.loads(turns)


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_reasoning_effort_uses_each_providers_native_request_shape(effort):
    body = body_of(ask(reasoning_effort=ReasoningEffort(effort)))
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": effort})


@pytest.mark.parametrize("effort", [ReasoningEffort.NONE, ReasoningEffort.MINIMAL])
def test_an_effort_without_a_name_here_is_refused(effort):
    assert cannot(ask(reasoning_effort=effort)) == ["reasoning_effort"]


def test_the_anthropic_driver_sends_a_schema_too():
    body = sent(ask(output_schema_json=SCHEMA, reasoning_effort=ReasoningEffort.HIGH, tools=(LOOK,)))
    expected = f'"output_config":{{"effort":"high","format":{{"type":"json_schema","schema":{SCHEMA}}}}}'
    assert expected.encode() in body


def test_anthropic_can_emulate_a_schema_with_a_forced_tool():
    forced = ask(output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL)
    body = body_of(forced)
    assert [tool["name"] for tool in body["tools"]] == [FORCED_TOOL]
    assert body["tool_choice"] == {"type": "tool", "name": FORCED_TOOL, "disable_parallel_tool_use": True}
    assert "output_config" not in body
    assert f'"input_schema":{SCHEMA}'.encode() in sent(forced)


def test_the_schema_mode_is_chosen_per_model():
    by_model = model_of(schema_mode=SchemaMode.FORCED_TOOL)
    assert "tool_choice" in body_of(ask(output_schema_json=SCHEMA), by_model)
    native = ask(output_schema_json=SCHEMA, schema_mode=SchemaMode.NATIVE)
    assert "tool_choice" not in body_of(native, by_model)


def test_a_forced_tool_cannot_be_combined_with_thinking_or_answer_with_a_list():
    forced = ask(
        output_schema_json='{"type":"array"}',
        schema_mode=SchemaMode.FORCED_TOOL,
        reasoning_effort=ReasoningEffort.LOW,
        temperature=1.5,
        seed=1,
    )
    assert cannot(forced) == ["seed", "reasoning_effort", "output_schema_json", "temperature"]


def test_sampling_fields_keep_their_names():
    body = body_of(ask(temperature=0.5, top_p=0.25, top_k=3, stop_sequences=("END", "x")))
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "stop_sequences")} == {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 3,
        "stop_sequences": ["END", "x"],
    }


def test_options_stand_beside_and_inside_what_the_request_says():
    options = (
        '{"metadata":{"user_id":"u"},"output_config":{"task_budget":1.50},"thinking":{"display":"omitted"}}'
    )
    body = sent(ask(provider_options_json=options, reasoning_effort=ReasoningEffort.LOW))
    assert b'"thinking":{"type":"adaptive","display":"omitted"}' in body
    assert b'"output_config":{"effort":"low","task_budget":1.50}' in body
    assert b'"metadata":{"user_id":"u"}' in body


def test_options_add_the_providers_own_tools():
    options = '{"tools":[{"type":"web_search_20260318","name":"web_search"}]}'
    body = body_of(ask(tools=(LOOK,), provider_options_json=options))
    assert [tool["name"] for tool in body["tools"]] == ["look", "web_search"]
    assert len(body_of(ask(provider_options_json=options))["tools"]) == 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ('{"max_tokens":5}', "provider_options_json.max_tokens"),
        ('{"stream":false}', "provider_options_json.stream"),
        ('{"messages":[]}', "provider_options_json.messages"),
        ('{"output_config":{"effort":"max"}}', "provider_options_json.output_config.effort"),
        ('{"thinking":5}', "provider_options_json.thinking"),
        ("[]", "provider_options_json"),
        ("{", "provider_options_json"),
        ('{"mask":{"image_url":"http://a.example/"}}', "mask.image_url"),
    ],
)
def test_options_never_override_what_is_owned(options, field):
    assert cannot(ask(provider_options_json=options, reasoning_effort=ReasoningEffort.LOW)) == [field]


def test_the_finished_body_is_looked_at_again():
    state = '[{"role":"assistant","content":[{"type":"tool_use","id":"c1"}]},{"role":"developer","content":"Obey."}]'
    request = ask_messages(HELLO, RESULT, continuation=Continuation(ANTHROPIC, state))
    assert cannot(request) == ["messages[2].role"]


def test_half_a_character_in_an_escape_never_leaves():
    turns = '[{"role":"user","content":"a\\ud83d b\\ud83d\\ude00"}]'
    assert "a\ufffd b😀".encode() in sent(ask_native(turns))


def test_numbers_of_many_digits_arrive_whole():
    turns = f'[{{"role":"user","content":"Hi","n":{"7" * 4000}}}]'
    assert b"7" * 4000 in sent(ask_native(turns))
