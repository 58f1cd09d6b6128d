"""docs/providers.md: what each provider is sent for each field is what its encoder writes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter.v1.model_service_pb2 import CompleteRequest
from modelmeter_server.core import stop_reasons
from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.provider_options import option_violations
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.stop_reasons import FINISHES, Stop
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.rpc.convert_request import Violations, completion_request
from tests.support import ROOT, bedrock_events
from tests.support.completion_requests import KINDS, ask, model_of
from tests.support.fault_server import FaultServer
from tests.support.markdown import code_words, section, table

TEXT = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
COLUMNS = {
    "anthropic": "Anthropic Messages",
    "bedrock": "Bedrock Converse",
    "chat_completions": "Chat Completions",
    "gemini": "Gemini",
    "openai_responses": "OpenAI Responses",
}
SCHEMA = (
    '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
)
TOOL = message_pb2.Tool(name="look", parameters_json=SCHEMA, strict=True)
RESULT = message_pb2.Part(tool_result=message_pb2.ToolResult(call_id="c1", output="sky"))
STATE = {
    "anthropic": '[{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"look","input":{}}]}]',
    "bedrock": '[{"role":"assistant","content":[{"toolUse":{"toolUseId":"c1","name":"look","input":{}}}]}]',
    "chat_completions": '[{"role":"assistant","tool_calls":[{"id":"c1","type":"function"}]}]',
    "gemini": '[{"role":"model","parts":[{"functionCall":{"id":"c1","name":"look","args":{}}}]}]',
    "openai_responses": '[{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}]',
}
NATIVE = {
    "anthropic": '"messages":[{"role":"user","content":"Ho"}]',
    "bedrock": '"messages":[{"role":"user","content":[{"text":"Ho"}]}]',
    "chat_completions": '"messages":[{"role":"user","content":"Ho"}]',
    "gemini": '"contents":[{"role":"user","parts":[{"text":"Ho"}]}]',
    "openai_responses": '"input":[{"role":"user","content":"Ho"}]',
}
SYSTEM = {  # Chat Completions has it among its messages
    "anthropic": {"system"},
    "bedrock": {"system"},
    "gemini": {"systemInstruction"},
    "openai_responses": {"instructions"},
}
COUNTS = {
    "anthropic": ("input_tokens", "output_tokens"),
    "bedrock": ("inputTokens", "outputTokens"),
    "chat_completions": ("prompt_tokens", "completion_tokens"),
    "gemini": ("promptTokenCount", "candidatesTokenCount"),
    "openai_responses": ("input_tokens", "output_tokens"),
}


def prompt(*parts: message_pb2.Part, role: Any = message_pb2.ROLE_USER) -> model_service_pb2.Messages:
    return model_service_pb2.Messages(messages=[message_pb2.Message(role=role, parts=parts)])


def continuation(kind: str) -> message_pb2.Continuation:
    return message_pb2.Continuation(provider=kind, state_json=STATE[kind])


def native(kind: str) -> str:
    return f'{{{NATIVE[kind]},"system":"Be kind."}}'


def fields(name: str, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a request with the field, as the wire has it, and the one to compare it with."""
    plain: dict[str, Any] = {"text": "Hi"}
    with_tool = {**plain, "tools": [TOOL]}
    with_schema = {**plain, "output_schema_json": SCHEMA}
    alone = kind not in ("bedrock", "gemini")
    choice = message_pb2.ToolChoice(mode=message_pb2.ToolChoice.MODE_REQUIRED, disable_parallel_calls=alone)
    with_result = {"messages": prompt(RESULT)}
    special: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "text": ({"text": "Ho"}, plain),
        "messages": ({"messages": prompt(message_pb2.Part(text="Ho"))}, plain),
        "native_json": ({"native_json": native(kind)}, plain),
        "tools": (with_tool, plain),
        "tool_choice": ({**with_tool, "tool_choice": choice}, with_tool),
        "output_schema_json": (with_schema, plain),
        "schema_mode": (
            {**with_schema, "schema_mode": model_service_pb2.SCHEMA_MODE_FORCED_TOOL},
            with_schema,
        ),
        "stop_sequences": ({**plain, "stop_sequences": ["END"]}, plain),
        "continuation": (
            {**with_result, "continuation": continuation(kind)},
            # A result alone is refused where it must carry the name of its call.
            plain if kind == "gemini" else with_result,
        ),
        "system_cache_breakpoint": (
            {**plain, "system": "Be kind.", "system_cache_breakpoint": message_pb2.CacheBreakpoint()},
            {**plain, "system": "Be kind."},
        ),
        "labels": ({**plain, "labels": {"a": "b"}}, plain),
        "effect": ({**plain, "effect": model_service_pb2.Effect(run_id="r", key="k")}, plain),
        "ceiling": ({**plain, "ceiling": model_service_pb2.CallCeiling(tokens=1)}, plain),
        "retry_policy": ({**plain, "retry_policy": model_service_pb2.RetryPolicy(max_attempts=2)}, plain),
        "affinity_key": ({**plain, "affinity_key": "k1"}, plain),
    }
    return special[name] if name in special else ({**plain, name: SIMPLE[name]}, plain)


SIMPLE: dict[str, Any] = {
    "system": "Be kind.",
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 5,
    "reasoning_effort": model_service_pb2.REASONING_EFFORT_HIGH,
    "provider_options_json": '{"zzz":1}',
    "sensitivity": message_pb2.SENSITIVITY_PUBLIC,
    "replay_only": True,
    "call_id": "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c",
    "system_trust": message_pb2.TRUST_TRUSTED,
    "end_user_id": "u1",
}


def sent(kind: str, **request: Any) -> dict[str, Any] | None:
    """Return the provider's body for a request of the wire; `None` when it is refused."""
    model = model_of(kind, name="m", provider_model=request.pop("model", "the-model"))
    found = Violations()
    asked = completion_request(CompleteRequest(model="m", **request), found)
    if found or check_request(asked, model):
        return None
    try:
        body: dict[str, Any] = msgspec.json.decode(WIRE_FORMATS[kind].encode(asked, model).body)
    except RequestRefused:
        return None
    return body


def changes(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the members of a body that differ."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def holds(body: Any, path: str) -> bool:
    for step in path.split("."):
        if not isinstance(body, dict) or step not in body:
            return False
        body = body[step]
    return True


ROWS = {code_words(row["Field"])[0]: row for row in table(section(TEXT, "Request fields"))}


def test_every_field_of_a_request_has_its_row():
    assert list(ROWS) == [field.name for field in CompleteRequest.DESCRIPTOR.fields]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", [name for name in ROWS if name != "model"])
def test_what_a_field_becomes_is_what_its_row_says(field, kind):
    cell = ROWS[field][COLUMNS[kind]]
    request, plain = fields(field, kind)
    before, after = sent(kind, **plain), sent(kind, **request)
    assert before is not None
    if cell.startswith("refused"):
        assert after is None
        return
    assert after is not None
    said = code_words(cell.replace("`strict`", "").split("its `system`")[0])
    expected = {word.split(".")[0] for word in said}
    if field == "native_json":  # what becomes of its `system` is told in words
        expected |= SYSTEM.get(kind, set())
    if field == "provider_options_json":
        expected = {"zzz"}
    assert changes(before, after) == expected
    assert not [word for word in said if field != "schema_mode" and not holds(after, word)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_sent_in_the_providers_spelling(kind):
    if kind == "bedrock":
        model = model_of(kind, provider_model="another:0")
        assert "/another%3A0/" in WIRE_FORMATS[kind].encode(ask("Hi"), model).target
        return
    before, after = sent(kind, text="Hi"), sent(kind, text="Hi", model="another")
    assert before is not None
    assert after is not None
    # One provider is told in the address.
    assert changes(before, after) == (set() if kind == "gemini" else {"model"})


@pytest.mark.parametrize(
    ("kind", "request_fields"),
    [
        *((kind, {"system_trust": message_pb2.TRUST_UNTRUSTED}) for kind in KINDS),
        ("anthropic", {"temperature": 1.5}),
        ("chat_completions", {"temperature": 2.5}),
        ("chat_completions", {"stop_sequences": list("abcde")}),
        ("openai_responses", {"temperature": 2.5}),
        ("gemini", {"temperature": 2.5}),
        ("gemini", {"seed": 2**31}),
        ("gemini", {"stop_sequences": list("abcdef")}),
        ("gemini", {"reasoning_effort": model_service_pb2.REASONING_EFFORT_NONE}),
        ("gemini", {"reasoning_effort": model_service_pb2.REASONING_EFFORT_MAX}),
        (
            "gemini",
            {"tools": [TOOL], "tool_choice": message_pb2.ToolChoice(disable_parallel_calls=True)},
        ),
        ("anthropic", {"reasoning_effort": model_service_pb2.REASONING_EFFORT_NONE}),
        ("anthropic", {"reasoning_effort": model_service_pb2.REASONING_EFFORT_MINIMAL}),
    ],
)
def test_values_that_the_rows_call_refused_are_refused(kind, request_fields):
    assert sent(kind, text="Hi", **request_fields) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_with_every_request_is_told(kind):
    always = section(TEXT, "Request fields").split("Sent with every request")[1].split("\n\n")[0]
    part = always.split(f"to {COLUMNS[kind].removesuffix(' Messages')}")[1].split("; to ")[0]
    body = sent(kind, text="Hi")
    assert body is not None
    own = body.keys() - {"model", "messages", "input", "contents", "generationConfig", "inferenceConfig"}
    own -= {"max_tokens", "max_output_tokens", "max_completion_tokens"}
    assert not [name for name in own if f"`{name}" not in part]
    prepared = WIRE_FORMATS[kind].encode(ask("Hi"), model_of(kind))
    assert not [name for name, value in prepared.headers if f"`{name}: {value}`" not in part]
    assert f"`{WIRE_FORMATS[kind].authenticate('k')[0]}`" in always


# Parts

PNG, PDF = b"\x89PNG", b"%PDF"
CALL = message_pb2.ToolCall(id="c1", name="look", arguments_json="{}")
FREE = message_pb2.ToolCall(id="c2", name="note", arguments_json="words", free_text=True)
ASSISTANT = message_pb2.ROLE_ASSISTANT
PARTS: dict[str, list[model_service_pb2.Messages]] = {
    "text": [
        prompt(message_pb2.Part(text="Hi")),
        prompt(message_pb2.Part(text="Hi"), message_pb2.Part(text="Ho")),
    ],
    "image": [prompt(message_pb2.Part(image=message_pb2.Media(media_type="image/png", data=PNG)))],
    "audio": [prompt(message_pb2.Part(audio=message_pb2.Media(media_type="audio/wav", data=PNG)))],
    "document": [
        prompt(message_pb2.Part(document=message_pb2.Media(media_type="application/pdf", data=PDF))),
        prompt(message_pb2.Part(document=message_pb2.Media(media_type="text/plain", data=PDF))),
    ],
    "tool_call": [
        prompt(message_pb2.Part(tool_call=CALL), role=ASSISTANT),
        prompt(message_pb2.Part(tool_call=FREE), role=ASSISTANT),
    ],
    "tool_result": [
        prompt(RESULT),
        model_service_pb2.Messages(
            messages=[
                message_pb2.Message(role=ASSISTANT, parts=[message_pb2.Part(tool_call=CALL)]),
                message_pb2.Message(role=message_pb2.ROLE_USER, parts=[RESULT]),
            ]
        ),
        model_service_pb2.Messages(
            messages=[
                message_pb2.Message(role=ASSISTANT, parts=[message_pb2.Part(tool_call=FREE)]),
                message_pb2.Message(
                    role=message_pb2.ROLE_USER,
                    parts=[
                        message_pb2.Part(tool_result=message_pb2.ToolResult(call_id="c2", failed=True)),
                    ],
                ),
            ]
        ),
    ],
}
PART_ROWS = {code_words(row["Part"])[0]: row for row in table(section(TEXT, "Parts of a message"))}


def types(value: Any) -> set[str]:
    """Return every `type` in a JSON value."""
    if isinstance(value, list):
        return {name for each in value for name in types(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["type"]} if isinstance(value.get("type"), str) else set()
    return own.union(*(types(member) for member in value.values()))


def written_by(kind: str, body: dict[str, Any]) -> set[str]:
    """Return what the parts of a body are called: by their `type`, at Bedrock and Gemini by the member they have."""
    if kind == "bedrock":
        return {name for turn in body["messages"] for block in turn["content"] for name in block}
    if kind == "gemini":
        return {name for turn in body["contents"] for part in turn["parts"] for name in part}
    return types(body.get("messages", body.get("input")))


def test_every_part_has_its_row():
    assert list(PART_ROWS) == [field.name for field in message_pb2.Part.DESCRIPTOR.fields]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_becomes_is_what_its_row_says(part, kind):
    cell = PART_ROWS[part][COLUMNS[kind]]
    bodies = [sent(kind, messages=messages) for messages in PARTS[part]]
    written = {name for body in bodies if body for name in written_by(kind, body)}
    said = set() if cell.startswith("refused") else {*code_words(cell)} - {"is_error", "output", "error"}
    # Results stand with the calls that they answer; a free-text one is refused where there is no such call.
    calls = {"tool_use", "toolUse", "functionCall", "function_call", "function", "custom_tool_call", "custom"}
    beside = calls if part == "tool_result" else set()
    assert written - beside == said


def members(value: Any) -> set[str]:
    """Return every name in a JSON value."""
    if isinstance(value, list):
        return {name for each in value for name in members(each)}
    return {*value}.union(*map(members, value.values())) if isinstance(value, dict) else set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_of_what_to_cache_is_written_as_its_row_says(kind):
    cell = PART_ROWS["cache_breakpoint"][COLUMNS[kind]]
    plain = prompt(message_pb2.Part(text="Hi"), message_pb2.Part(text="Ho"))
    mark = message_pb2.CacheBreakpoint()
    marked = prompt(message_pb2.Part(text="Hi", cache_breakpoint=mark), message_pb2.Part(text="Ho"))
    before, after = sent(kind, messages=plain), sent(kind, messages=marked)
    if cell.startswith("refused"):
        assert after is None
        return
    assert code_words(cell)[0] in members(after) - members(before)


# Refusals

RESERVED = [
    key
    for row in table(section(TEXT, "What is refused, and why").split("Reserved in every spelling")[1])
    for key in code_words(row["Keys"])
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", RESERVED)
def test_a_reserved_key_is_refused_by_its_name(key, kind):
    options: Any = "x"
    for name in reversed(key.split(".")):
        options = {name: options}
    text = msgspec.json.encode(options).decode()
    found = list(option_violations(ask("Hi", provider_options_json=text), model_of(kind)))
    assert [each.field for each in found] == [f"provider_options_json.{key}"]


def test_a_key_of_nobodys_passes_through():
    assert not list(option_violations(ask("Hi", provider_options_json='{"zzz":1}'), model_of()))


# Base URLs


class Unheard:
    """An observer that does not listen."""

    def dispatching(self, number: int, target: str) -> None: ...

    def written(self) -> None: ...

    def progressed(self) -> None: ...


@pytest.mark.parametrize("row", table(section(TEXT, "Base URLs")), ids=lambda row: row["`base_url`"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_base_url_leads_where_its_row_says(row, kind):
    (spelling,) = code_words(row["`base_url`"])
    async with FaultServer() as server:
        endpoint = Endpoint.parse(spelling.replace("https://host", server.url))
        driver = HttpDriver("provider", WIRE_FORMATS[kind], endpoint)
        model = model_of(kind)
        await driver.start(driver.prepare(ask("Hi"), model), model, FREE_TEXT, Unheard(), deltas=False).run()
        await driver.aclose()
    (request,) = server.requests
    assert f"`{request.target}`".replace("the-model", "MODEL") == row[f"`{kind}` posts to"]


# Stop reasons

WORDS = {
    "anthropic": stop_reasons.ANTHROPIC,
    "bedrock": stop_reasons.BEDROCK,
    "chat_completions": stop_reasons.CHAT_COMPLETIONS,
    "gemini": stop_reasons.GEMINI,
    "openai_responses": stop_reasons.OPENAI_RESPONSES,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_stop_reason_stands_in_the_row_of_what_it_means(kind):
    told = {
        word: row["`finish`"]
        for row in table(section(TEXT, "Stop reasons"))
        for word in code_words(row[COLUMNS[kind]])
    }
    assert told.keys() == WORDS[kind].keys()
    for word, stop in WORDS[kind].items():
        if stop is Stop.WITHDRAWN:
            assert told[word] == "none: UNUSABLE"
        elif stop is Stop.OUTSIDE:
            assert told[word].startswith("none: INTERRUPTED")
        else:
            finish = re.split(r"\W", told[word])[0]
            assert (finish, "truncated" in told[word]) == (FINISHES[stop].name, stop.is_truncated)


# Usage

USAGE_ROWS = {code_words(row["Field"])[0]: row for row in table(section(TEXT, "Usage"))}


def told(kind: str, usage: dict[str, Any]) -> Any:
    """Return what an accumulator makes of a provider's usage object."""
    if kind == "bedrock":
        accumulator = WIRE_FORMATS[kind].accumulator()
        accumulator.feed(bedrock_events.frames(bedrock_events.metadata(usage)))
        return accumulator.snapshot().usage
    event: dict[str, Any] = {
        "anthropic": {"type": "message_start", "message": {"usage": usage}},
        "chat_completions": {"type": "", "choices": [], "usage": usage},
        "gemini": {"type": "", "usageMetadata": usage},
        "openai_responses": {
            "type": "response.completed",
            "response": {"status": "completed", "usage": usage},
        },
    }[kind]
    accumulator = WIRE_FORMATS[kind].accumulator()
    accumulator.feed(f"event: {event['type']}\ndata: {msgspec.json.encode(event).decode()}\n\n".encode())
    return accumulator.snapshot().usage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", USAGE_ROWS)
def test_a_counter_is_read_from_where_its_row_says(field, kind):
    cell = USAGE_ROWS[field][COLUMNS[kind]]
    usage: dict[str, Any] = dict(zip(COUNTS[kind], (1000, 500), strict=True))
    assert getattr(told(kind, usage), field) == {"input_tokens": 1000, "output_tokens": 500}.get(field)
    if "`cacheDetails` of" in cell:
        usage["cacheDetails"] = [
            {"ttl": code_words(cell)[1], "inputTokens": 7},
            {"ttl": "x", "inputTokens": 8},
        ]
        assert getattr(told(kind, usage), field) == 7
        return
    for value, path in enumerate(code_words(cell), start=7):
        *outer, name = path.split(".")
        place = usage
        for step in outer:
            place = place.setdefault(step, {})
        place[name] = value
    read = getattr(told(kind, usage), field)
    assert read == (None if cell == "never told" else sum(range(7, 7 + len(code_words(cell)))))
