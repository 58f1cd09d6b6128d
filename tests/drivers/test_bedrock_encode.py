"""What leaves for the Converse API, byte by byte, what this provider cannot do, and what botocore says of it."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator

from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    CompletionRequest,
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
from modelmeter_server.drivers.bedrock import REASONING_DIALECTS, capabilities_of, encode
from tests.support.completion_requests import (
    BEDROCK,
    ask,
    ask_messages,
    ask_native,
    assistant,
    fields_of,
    model_of,
    user,
)
from tests.support.completion_requests import cannot as cannot_with
from tests.support.completion_requests import sent as sent_with

SERVICE = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))
MODEL = model_of(BEDROCK)
SCHEMA = '{"type":"object", "properties":{"z":{"const":1.50},"a":{"const":12345678901234567890}}}'
LOOK = Tool(
    name="look", description="Look.", parameters_json='{"type":"object","properties":{"b":{},"a":{}}}'
)
TURN = (
    '[{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"Hm.","signature":"c2ln"}}},'
    '{"toolUse":{"toolUseId":"c1","name":"look","input":{"n":1.50}}}]}]'
)
RESULT = user(ToolResultPart(call_id="c1", output="sky"))
HELLO = user(TextPart("Hello"))


def thinking(dialect: str | None, **fields: Any) -> ModelSpec:
    """Return a model of a dialect."""
    return model_of(BEDROCK, reasoning_dialect=dialect, capabilities=capabilities_of(dialect), **fields)


def plain(value: Any, shape: Shape) -> Any:
    """Return a part of the body as botocore takes it: bytes decoded."""
    if shape.type_name == "blob":
        return base64.b64decode(value, validate=True)
    if shape.type_name == "list":
        return [plain(item, shape.member) for item in value]
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        return {
            name: plain(member, shape.members[name]) if name in shape.members else member
            for name, member in value.items()
        }
    return value


def body_of(request: CompletionRequest, model: ModelSpec = MODEL) -> Any:
    """Return the body, read, once botocore has found every member known and of its type."""
    assert not check_request(request, model)
    prepared = encode(request, model)
    body = msgspec.json.decode(prepared.body)
    operation = "ConverseStream" if prepared.target.endswith("-stream") else "Converse"
    shape = SERVICE.operation_model(operation).input_shape
    params = {**plain(body, shape), "modelId": model.provider_model}
    assert not ParamValidator().validate(params, shape).generate_report()
    assert_known(params, shape)
    return body


def assert_known(value: Any, shape: Shape) -> None:
    """botocore passes over members that it does not know, and the service may too."""
    if shape.type_name == "list":
        for item in value:
            assert_known(item, shape.member)
    elif shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        assert not value.keys() - shape.members.keys()
        for name, member in value.items():
            assert_known(member, shape.members[name])


def sent(request: CompletionRequest, model: ModelSpec = MODEL) -> bytes:
    return sent_with(request, model)


def cannot(request: CompletionRequest, model: ModelSpec = MODEL) -> list[str]:
    return cannot_with(request, model)


# The request as a whole


def test_a_question_is_one_user_message():
    prepared = encode(ask("Hi"), MODEL)
    assert (prepared.target, prepared.headers) == ("/model/the-model/converse-stream", ())
    assert prepared.body == (
        b'{"messages":[{"role":"user","content":[{"text":"Hi"}]}],"inferenceConfig":{"maxTokens":16384}}'
    )
    body_of(ask("Hi"))


@pytest.mark.parametrize(
    ("model", "escaped"),
    [
        ("us.amazon.nova-micro-v1:0", "us.amazon.nova-micro-v1%3A0"),
        (
            "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc",
            "arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Aapplication-inference-profile%2Fabc",
        ),
        ("a b?c#d", "a%20b%3Fc%23d"),
        ("../x", "..%2Fx"),
    ],
)
def test_the_model_is_one_step_of_the_path_whatever_it_is_called(model: str, escaped: str):
    prepared = encode(ask("Hi"), model_of(BEDROCK, provider_model=model, buffered=True))
    assert prepared.target == f"/model/{escaped}/converse"


def test_limits_and_sampling_stand_together():
    request = ask(
        "Hi", system="Be kind.", max_output_tokens=9, temperature=0.5, top_p=0.25, stop_sequences=("END",)
    )
    body = body_of(request)
    assert body["system"] == [{"text": "Be kind."}]
    assert body["inferenceConfig"] == {
        "maxTokens": 9,
        "temperature": 0.5,
        "topP": 0.25,
        "stopSequences": ["END"],
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 1.5), ("top_k", 5), ("seed", 5), ("reasoning_effort", ReasoningEffort.HIGH)],
)
def test_what_the_api_has_no_field_for_is_refused(field: str, value: object):
    assert cannot(ask("Hi", **{field: value})) == [field]


# Messages


def test_messages_keep_their_sides_and_neighbours_of_one_side_are_one_turn():
    more = user(TextPart("b"), TextPart("c"))
    turns = body_of(ask_messages(HELLO, more, assistant(TextPart("yes")), user(TextPart("d"))))["messages"]
    assert [(turn["role"], [block["text"] for block in turn["content"]]) for turn in turns] == [
        ("user", ["Hello", "b", "c"]),
        ("assistant", ["yes"]),
        ("user", ["d"]),
    ]


def test_calls_and_results_find_each_other_and_failed_ones_say_so():
    call = ToolCallPart(id="c1", name="look", arguments_json='{"z": 1.50, "a": 2}')
    results = ToolResultPart(call_id="c1", output="sky"), ToolResultPart(call_id="c2", failed=True)
    request = ask_messages(HELLO, assistant(call), user(*results), tools=(LOOK,))
    content = [turn["content"] for turn in body_of(request)["messages"]]
    assert content[1:] == [
        [{"toolUse": {"toolUseId": "c1", "name": "look", "input": {"z": 1.5, "a": 2}}}],
        [
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "sky"}]}},
            {"toolResult": {"toolUseId": "c2", "content": [], "status": "error"}},
        ],
    ]
    assert b'"input":{"z": 1.50, "a": 2}' in sent(request)


def test_free_text_calls_are_refused():
    call = ToolCallPart(id="c1", name="note", arguments_json="words", free_text=True)
    assert cannot(ask_messages(HELLO, assistant(call))) == [
        "messages.messages[1].parts[0].tool_call.free_text"
    ]


@pytest.mark.parametrize(
    ("kind", "media_type", "format"),
    [
        (MediaKind.IMAGE, "image/png", "png"),
        (MediaKind.IMAGE, "IMAGE/JPEG", "jpeg"),
        (MediaKind.AUDIO, "audio/mpeg", "mp3"),
        (MediaKind.AUDIO, "audio/wav", "wav"),
        (MediaKind.DOCUMENT, "application/pdf", "pdf"),
        (MediaKind.DOCUMENT, "text/plain", "txt"),
    ],
)
def test_governed_media_become_inline_bedrock_blocks(kind: MediaKind, media_type: str, format: str):
    inline = MediaPart(kind=kind, media_type=media_type, data=b"\x00\xff")
    url = MediaPart(kind=kind, media_type=media_type, url=f"data:{media_type};base64,AP8=")
    for part in (inline, url):
        block = body_of(ask_messages(user(TextPart("See."), part)))["messages"][0]["content"][1][kind.value]
        assert (block["format"], block["source"]) == (format, {"bytes": "AP8="})
        assert block.get("name") == ("document 1" if kind is MediaKind.DOCUMENT else None)


def test_bedrock_media_never_accepts_a_remote_source():
    part = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="https://host/x.png")
    for model in (MODEL, model_of(BEDROCK, allow_remote_media=True)):
        assert cannot(ask_messages(user(part)), model) == ["messages.messages[0].parts[0].image.url"]


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (MediaPart(kind=MediaKind.IMAGE, media_type="image/tiff", data=b"x"), "image.media_type"),
        (MediaPart(kind=MediaKind.DOCUMENT, media_type="application/zip", data=b"x"), "document.media_type"),
        (
            MediaPart(kind=MediaKind.DOCUMENT, media_type="text/csv", data=b"x", name="a.csv"),
            "document.name",
        ),
        (MediaPart(kind=MediaKind.DOCUMENT, media_type="text/csv", data=b"x", name="a  b"), "document.name"),
    ],
)
def test_media_that_the_api_would_not_take_are_refused_with_the_field(part: MediaPart, field: str):
    assert cannot(ask_messages(user(part))) == [f"messages.messages[0].parts[0].{field}"]


def test_documents_have_names_that_differ():
    sheet = MediaPart(kind=MediaKind.DOCUMENT, media_type="text/csv", data=b"x")
    named = MediaPart(kind=MediaKind.DOCUMENT, media_type="text/csv", data=b"x", name="Q3 (draft) [2]-b")
    blocks = body_of(ask_messages(user(sheet, sheet, named, TextPart("See."))))["messages"][0]["content"]
    assert [block["document"]["name"] for block in blocks[:3]] == ["document 1", "document 2", named.name]


# Native prompts and continuations


def test_native_turns_go_as_they_were_written_and_their_system_too():
    turns = '[{"role":"user","content":[{"text":"Hi"},{"cachePoint":{"type":"default"}}]}]'
    assert b'"messages":' + turns.encode() in sent(ask_native(turns))
    for system in ('"Be kind."', '[{"text":"Be kind."}]'):
        body = body_of(ask_native(f'{{"messages":{turns},"system":{system}}}'))
        assert body["system"] == [{"text": "Be kind."}]


@pytest.mark.parametrize("place", ["beside", "within"])
def test_cumulative_bedrock_transcript_goes_back_untouched_before_its_results(place: str):
    state = Continuation(BEDROCK, TURN)
    if place == "beside":
        request = ask_messages(HELLO, RESULT, continuation=state, tools=(LOOK,))
    else:
        request = ask_messages(HELLO, assistant(state), RESULT, tools=(LOOK,))
    assert [turn["role"] for turn in body_of(request)["messages"]] == ["user", "assistant", "user"]
    assert TURN[1:-1].encode() in sent(request)


def test_a_continuation_goes_before_the_results_that_answer_it_in_a_native_prompt():
    result = '{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"text":"sky"}]}}]}'
    native = f'[{{"role":"user","content":[{{"text":"Hi"}}]}},{result}]'
    request = ask_native(native, continuation=Continuation(BEDROCK, TURN))
    assert [turn["role"] for turn in body_of(request)["messages"]] == ["user", "assistant", "user"]
    other = ask_native(native.replace("c1", "c9"), continuation=Continuation(BEDROCK, TURN))
    assert fields_of(check_request(other, MODEL)) == cannot(other) == ["continuation"]


def test_blocks_without_their_turn_are_no_state():
    state = Continuation(BEDROCK, '[{"toolUse":{"toolUseId":"c1","name":"look","input":{}}}]')
    assert cannot(ask_messages(HELLO, assistant(state), RESULT)) == [
        "messages.messages[1].parts[0].continuation.state_json"
    ]


def test_an_effort_over_turns_that_lost_their_reasoning_is_refused():
    call = ToolCallPart(id="c1", name="look")
    request = ask_messages(HELLO, assistant(call), RESULT, reasoning_effort=ReasoningEffort.LOW)
    assert fields_of(check_request(request, thinking("claude"))) == ["reasoning_effort"]


# Tools and structured answers


def test_tools_keep_their_parameters_as_they_were_written():
    strict = Tool(name="pick", parameters_json=SCHEMA, strict=True)
    request = ask("Hi", tools=(LOOK, strict))
    specs = [tool["toolSpec"] for tool in body_of(request)["toolConfig"]["tools"]]
    assert [(spec["name"], spec.get("description"), spec.get("strict")) for spec in specs] == [
        ("look", "Look.", None),
        ("pick", None, True),
    ]
    assert f'"inputSchema":{{"json":{SCHEMA}}}'.encode() in sent(request)


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice(mode=ToolMode.AUTO), {"auto": {}}),
        (ToolChoice(mode=ToolMode.REQUIRED), {"any": {}}),
        (ToolChoice(mode=ToolMode.NAMED, name="look"), {"tool": {"name": "look"}}),
    ],
)
def test_a_choice_of_tools_is_written_the_apis_way(choice: ToolChoice, written: object):
    assert body_of(ask("Hi", tools=(LOOK,), tool_choice=choice))["toolConfig"]["toolChoice"] == written


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        (ToolChoice(mode=ToolMode.NONE), "tool_choice.mode"),
        (ToolChoice(disable_parallel_calls=True), "tool_choice.disable_parallel_calls"),
    ],
)
def test_choices_that_the_api_does_not_have_are_refused(choice: ToolChoice, field: str):
    assert cannot(ask("Hi", tools=(LOOK,), tool_choice=choice)) == [field]


def test_a_native_schema_is_a_text_as_it_was_written():
    format = body_of(ask("Hi", output_schema_json=SCHEMA))["outputConfig"]["textFormat"]
    assert (format["type"], format["structure"]["jsonSchema"]["schema"]) == ("json_schema", SCHEMA)


def test_native_schema_can_coexist_with_tools_but_forced_fallback_cannot():
    together = ask("Hi", output_schema_json=SCHEMA, tools=(LOOK,))
    assert {"toolConfig", "outputConfig"} <= body_of(together).keys()
    forced = ask("Hi", output_schema_json=SCHEMA, tools=(LOOK,), schema_mode=SchemaMode.FORCED_TOOL)
    assert fields_of(check_request(forced, MODEL)) == ["tools"]


def test_a_forced_tool_takes_the_place_of_the_schema():
    body = body_of(ask("Hi", output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL))
    assert body["toolConfig"]["toolChoice"] == {"tool": {"name": FORCED_TOOL}}
    (tool,) = body["toolConfig"]["tools"]
    assert tool["toolSpec"]["inputSchema"]["json"] == json.loads(SCHEMA)
    assert "outputConfig" not in body
    array = ask("Hi", output_schema_json='{"type":"array"}', schema_mode=SchemaMode.FORCED_TOOL)
    assert cannot(array) == ["output_schema_json"]


# Reasoning


def test_nova_reasoning_effort_is_rendered_the_way_aws_documents_it():
    model = thinking("nova")
    for effort in ("low", "medium", "high"):
        body = body_of(ask("Hi", reasoning_effort=ReasoningEffort(effort)), model)
        config = {"type": "enabled", "maxReasoningEffort": effort}
        assert body["additionalModelRequestFields"] == {"reasoningConfig": config}
    off = body_of(ask("Hi", reasoning_effort=ReasoningEffort.NONE), model)
    assert off["additionalModelRequestFields"] == {"reasoningConfig": {"type": "disabled"}}


def test_claude_thinks_adaptively_and_its_effort_stands_beside_the_schema():
    model = thinking("claude")
    request = ask("Hi", reasoning_effort=ReasoningEffort.MAX, output_schema_json=SCHEMA)
    body = body_of(request, model)
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "adaptive"}}
    assert body["outputConfig"]["effort"] == "max"
    assert body["outputConfig"]["textFormat"]["type"] == "json_schema"
    forced = msgspec.structs.replace(request, schema_mode=SchemaMode.FORCED_TOOL)
    assert cannot(forced, model) == ["reasoning_effort"]


@pytest.mark.parametrize("dialect", [None, *REASONING_DIALECTS])
@pytest.mark.parametrize("effort", ReasoningEffort)
def test_an_effort_is_refused_rather_than_guessed_or_rounded(dialect: str | None, effort: ReasoningEffort):
    model = thinking(dialect)
    known = dialect is not None and effort in REASONING_DIALECTS[dialect].efforts
    request = ask("Hi", reasoning_effort=effort)
    expected = [] if known else ["reasoning_effort"]
    assert fields_of(check_request(request, model)) == cannot(request, model) == expected


# Provider options


def test_options_of_the_api_pass_through_and_beside_what_is_owned():
    options = {
        "guardrailConfig": {
            "guardrailIdentifier": "g",
            "guardrailVersion": "1",
            "streamProcessingMode": "sync",
        },
        "requestMetadata": {"team": "a"},
        "additionalModelRequestFields": {"anthropic_beta": ["x"]},
        "outputConfig": {},
    }
    request = ask("Hi", provider_options_json=json.dumps(options), reasoning_effort=ReasoningEffort.LOW)
    body = body_of(request, thinking("claude"))
    assert {name: body[name] for name in ("guardrailConfig", "requestMetadata")} == {
        name: options[name] for name in ("guardrailConfig", "requestMetadata")
    }
    fields = {"thinking": {"type": "adaptive"}, "anthropic_beta": ["x"]}
    assert body["additionalModelRequestFields"] == fields


@pytest.mark.parametrize(
    "option",
    [
        {"messages": []},
        {"system": []},
        {"toolConfig": {}},
        {"inferenceConfig": {"maxTokens": 1}},
        {"inferenceConfig": {"topP": 1}},
        {"additionalModelRequestFields": {"max_tokens": 1}},
        {"outputConfig": {"textFormat": {}}},
        {"outputConfig": {"effort": "low"}},
        {"serviceTier": {"type": "priority"}},
        {"performanceConfig": {"latency": "optimized"}},
    ],
    ids=json.dumps,
)
def test_options_that_the_request_or_the_service_owns_are_refused(option: dict[str, Any]):
    request = ask("Hi", provider_options_json=json.dumps(option))
    (violation,) = check_request(request, MODEL)
    assert violation.field.startswith(f"provider_options_json.{next(iter(option))}")


def test_an_option_cannot_change_how_the_model_thinks():
    options = '{"additionalModelRequestFields":{"thinking":{"type":"disabled"}}}'
    request = ask("Hi", provider_options_json=options, reasoning_effort=ReasoningEffort.LOW)
    assert cannot(request, thinking("claude")) == [
        "provider_options_json.additionalModelRequestFields.thinking.type"
    ]


def test_tools_of_the_provider_stand_beside_the_callers():
    model = model_of(BEDROCK, hosted_tools=frozenset({"nova_grounding"}))
    options = '{"tools":[{"systemTool":{"name":"nova_grounding"}}]}'
    own = {"systemTool": {"name": "nova_grounding"}}
    alone = body_of(ask("Hi", provider_options_json=options), model)
    assert (alone["toolConfig"], "tools" in alone) == ({"tools": [own]}, False)
    beside = body_of(ask("Hi", provider_options_json=options, tools=(Tool(name="look"),)), model)
    assert [*map(list, beside["toolConfig"]["tools"])] == [["toolSpec"], ["systemTool"]]


def test_media_in_a_bucket_would_be_fetched_and_are_refused():
    native = '[{"role":"user","content":[{"document":{"source":{"s3Location":{"uri":"s3://b/k"}}}}]}]'
    assert len(check_request(ask_native(native), MODEL)) == len(cannot(ask_native(native))) == 1
