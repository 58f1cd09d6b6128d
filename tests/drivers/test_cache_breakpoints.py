"""Marks of what a provider is to cache: where each format writes them, and what is refused because it cannot."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from modelmeter_server.core.dialects import DIALECTS
from modelmeter_server.core.requests import (
    CacheBreakpoint,
    MediaKind,
    MediaPart,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from modelmeter_server.drivers.chat_completions import encode as encode_chat
from modelmeter_server.drivers.chat_completions.capabilities import capabilities
from tests.support.completion_requests import (
    ANTHROPIC,
    BEDROCK,
    CHAT,
    GEMINI,
    KINDS,
    OPENAI,
    ask,
    ask_messages,
    body_of,
    model_of,
    sent,
    user,
    wrong,
)

MARK = CacheBreakpoint()
MINUTES = CacheBreakpoint(300)
HOUR = CacheBreakpoint(3_600)
HALF_HOUR = CacheBreakpoint(1_800)
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
EXPLICIT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
POINT = {"cachePoint": {"type": "default"}}
PNG = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=b"\x89PNG", cache_breakpoint=MARK)
CALL = ToolCallPart(id="c1", name="look", cache_breakpoint=MARK)
RESULT = ToolResultPart(call_id="c1", output="sky", cache_breakpoint=MARK)


def body(request: Any, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = body_of(request, model_of(kind))
    return found


def content(request: Any, kind: str) -> list[Any]:
    """Return the parts of the last turn."""
    found: list[Any] = body(request, kind)["input" if kind == OPENAI else "messages"][-1]["content"]
    return found


def test_anthropic_marks_the_block_itself_wherever_it_stands():
    told = body(
        ask_messages(
            Message(Role.ASSISTANT, (TextPart("Hm."), CALL)),
            user(RESULT),
            system="Be kind.",
            system_cache_breakpoint=HOUR,
            tools=(Tool(name="look", cache_breakpoint=HOUR),),
        ),
        ANTHROPIC,
    )
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert told["system"] == [{"type": "text", "text": "Be kind.", **hour}]
    assert told["tools"][0]["cache_control"] == hour["cache_control"]
    assert told["messages"][0]["content"][1]["cache_control"] == EPHEMERAL["cache_control"]
    assert told["messages"][1]["content"][0]["cache_control"] == EPHEMERAL["cache_control"]


def test_bedrock_puts_a_point_after_what_is_marked():
    told = body(
        ask_messages(
            user(TextPart("a", cache_breakpoint=MINUTES), PNG),
            system="Be kind.",
            system_cache_breakpoint=MINUTES,
            tools=(Tool(name="look", cache_breakpoint=HOUR),),
        ),
        BEDROCK,
    )
    assert told["toolConfig"]["tools"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert told["system"][1] == {"cachePoint": {"type": "default", "ttl": "5m"}}
    kinds = [next(iter(block)) for block in told["messages"][0]["content"]]
    assert kinds == ["text", "cachePoint", "image", "cachePoint"]
    assert told["messages"][0]["content"][3] == POINT


@pytest.mark.parametrize("kind", [OPENAI, CHAT])
def test_openai_marks_the_part(kind):
    told = content(ask_messages(user(TextPart("a", cache_breakpoint=HALF_HOUR), PNG)), kind)
    assert told[0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    assert told[1]["prompt_cache_breakpoint"] == EXPLICIT["prompt_cache_breakpoint"]


@pytest.mark.parametrize("free_text", [False, True])
def test_a_marked_result_is_a_list_of_one_part_at_the_responses_api(free_text):
    call = ToolCallPart(id="c1", name="look", free_text=free_text)
    failed = msgspec.structs.replace(RESULT, failed=True)
    for result, text in ((RESULT, "sky"), (failed, "The tool failed: sky")):
        told = body(ask_messages(Message(Role.ASSISTANT, (call,)), user(result)), OPENAI)["input"][-1]
        assert told["output"] == [{"type": "input_text", "text": text, **EXPLICIT}]
        assert told["type"] == ("custom_tool_call_output" if free_text else "function_call_output")


def test_a_marked_text_stays_a_part_at_chat_completions():
    request = ask_messages(
        Message(Role.ASSISTANT, (TextPart("Hm.", cache_breakpoint=MARK), ToolCallPart(id="c1", name="look"))),
        user(RESULT),
        system="Be kind.",
        system_cache_breakpoint=MARK,
    )
    texts = [message["content"] for message in body(request, CHAT)["messages"]]
    assert texts == [[{"type": "text", "text": text, **EXPLICIT}] for text in ("Be kind.", "Hm.", "sky")]


def test_openrouter_takes_the_mark_of_anthropic_in_texts():
    dialect = DIALECTS["openrouter"]
    request = ask_messages(user(TextPart("a", cache_breakpoint=HOUR)))
    told = json.loads(encode_chat(request, model_of(CHAT), dialect).body)
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert told["messages"] == [{"role": "user", "content": [{"type": "text", "text": "a", **hour}]}]
    model = model_of(CHAT, capabilities=capabilities(dialect))
    assert wrong(ask_messages(user(PNG)), model) == ["messages.messages[0].parts[0].cache_breakpoint"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_without_a_mark(kind):
    request = ask_messages(user(TextPart("a")), system="Be kind.", tools=(Tool(name="look"),))
    written = sent(request, model_of(kind))
    assert not [name for name in (b"cache_control", b"prompt_cache", b"cachePoint") if name in written]


@pytest.mark.parametrize(
    ("kind", "fields", "refused"),
    [
        (GEMINI, {"system": "s", "system_cache_breakpoint": MARK}, "system_cache_breakpoint"),
        (OPENAI, {"system": "s", "system_cache_breakpoint": MARK}, "system_cache_breakpoint"),
        (
            OPENAI,
            {"text": None, "messages": (Message(Role.ASSISTANT, (CALL,)),)},
            "messages.messages[0].parts[0].cache_breakpoint",
        ),
        (OPENAI, {"tools": (Tool(name="look", cache_breakpoint=MARK),)}, "tools[0].cache_breakpoint"),
        (CHAT, {"tools": (Tool(name="look", cache_breakpoint=MARK),)}, "tools[0].cache_breakpoint"),
        (ANTHROPIC, {"system_cache_breakpoint": MARK}, "system_cache_breakpoint"),
        (ANTHROPIC, {"system": "s", "system_cache_breakpoint": HALF_HOUR}, "system_cache_breakpoint.ttl"),
        (CHAT, {"system": "s", "system_cache_breakpoint": HOUR}, "system_cache_breakpoint.ttl"),
        (
            BEDROCK,
            {"system": "s", "system_cache_breakpoint": CacheBreakpoint(300.5)},
            "system_cache_breakpoint.ttl",
        ),
    ],
)
def test_a_mark_that_the_provider_does_not_have_is_refused(kind, fields, refused):
    assert wrong(ask(**fields), model_of(kind)) == [refused]


def test_a_server_that_nobody_knows_takes_no_mark():
    model = model_of(CHAT, capabilities=capabilities(DIALECTS["compatible"]))
    request = ask_messages(user(TextPart("a", cache_breakpoint=MARK)))
    assert wrong(request, model) == ["messages.messages[0].parts[0].cache_breakpoint"]


@pytest.mark.parametrize("kind", [ANTHROPIC, BEDROCK, CHAT, OPENAI])
def test_a_request_has_at_most_four_marks(kind):
    marked = [TextPart("a", cache_breakpoint=MARK)] * 5
    assert wrong(ask_messages(user(*marked[:4])), model_of(kind)) == []
    assert wrong(ask_messages(user(*marked)), model_of(kind)) == [
        "messages.messages[0].parts[4].cache_breakpoint"
    ]


@pytest.mark.parametrize("kind", [ANTHROPIC, BEDROCK])
@pytest.mark.parametrize("earlier", [MARK, MINUTES])
def test_no_mark_is_kept_longer_than_one_before_it(kind, earlier):
    later = user(TextPart("a", cache_breakpoint=HOUR))
    tools = (Tool(name="look", cache_breakpoint=earlier),)
    field = "messages.messages[0].parts[0].cache_breakpoint.ttl"
    assert wrong(ask_messages(later, tools=tools), model_of(kind)) == [field]
    first = (msgspec.structs.replace(tools[0], cache_breakpoint=HOUR),)
    assert wrong(ask_messages(later, tools=first), model_of(kind)) == []
