"""Every request that the drivers write is one by the types of the official SDKs, and the types look everywhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from modelmeter_server.core.cache_marks import PLACES
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import CacheBreakpoint, CompletionRequest, MediaPart
from tests.support.completion_requests import (
    ANTHROPIC,
    BEDROCK,
    CHAT,
    GEMINI,
    KINDS,
    OPENAI,
    ask,
    cannot,
    model_of,
)
from tests.support.golden_requests import FOLDER, FREE, GOLDEN, Golden, kept_lines, marked
from tests.support.sdk_senders import SEND
from tests.support.sdk_types import CHECKS

# Their types become validators once, in one worker.
pytestmark = pytest.mark.xdist_group("sdks")

GONE = {ANTHROPIC: ("temperature", "top_p", "top_k")}
"""Members that the SDK dropped with API version 2026-10-21; the version that is sent has them."""

NOT_SENT = {
    *("model", "call_id", "sensitivity", "labels", "schema_mode"),
    *("effect", "ceiling", "replay_only", "retry_policy", "affinity_key"),
    "turn",  # goes over the socket of a session alone, where tests/drivers/test_websocket_link.py sees it
}
REFUSED: dict[str, dict[str, Any]] = {
    ANTHROPIC: {"seed": 7},
    BEDROCK: {"seed": 7, "top_k": 40, "end_user_id": "u-1"},
    CHAT: {"top_k": 40},
    GEMINI: {"end_user_id": "u-1", "system_cache_breakpoint": CacheBreakpoint()},
    OPENAI: {
        "seed": 7,
        "top_k": 40,
        "stop_sequences": ("END",),
        "system_cache_breakpoint": CacheBreakpoint(),
    },
}
"""Fields that a wire format cannot carry."""


MARKS = (b"cache_control", b"prompt_cache_breakpoint", b"cachePoint")
"""Members that mark what is to be cached."""


def judged(golden: Golden, body: bytes) -> None:
    """Let the SDK's types judge a body, without the members that they no longer have."""
    document = json.loads(body)
    gone = [document.pop(name, None) for name in GONE.get(golden.kind, ())]
    CHECKS[golden.kind](golden.encoded().target, json.dumps(document).encode() if any(gone) else body)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_request_has_the_type_that_the_sdk_gives_it(name):
    golden = GOLDEN[name]
    assert not check_request(golden.request, golden.model)
    judged(golden, golden.encoded().body)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_is_what_was_kept(kind):
    """A change that is meant is written with `python -m tests.support.golden_requests`."""
    kept = (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    assert kept_lines(kind) == kept


SENDABLE = [
    name
    for name, golden in GOLDEN.items()
    if golden.kind in SEND and (golden.kind != GEMINI or golden.name not in ("buffered", "options"))
]
"""The SDK of Gemini streams at another method, and has no labels outside of Vertex. Bedrock's serializer is a check."""

OLDER = {"anthropic-version"}
"""Headers that are another on purpose: see `VERSION` of the encoder."""


@pytest.mark.parametrize("name", SENDABLE)
def test_an_sdk_that_is_told_the_same_sends_the_same(name):
    golden = GOLDEN[name]
    prepared = golden.encoded()
    body = json.loads(prepared.body)
    gone = {member: body.pop(member) for member in GONE.get(golden.kind, ()) if member in body}
    sent = SEND[golden.kind](body, gone)
    assert _sorted_tools(sent.body) == _sorted_tools(body | gone)
    assert sent.target == prepared.target
    assert [value for header, value in prepared.headers if header not in OLDER] == [
        sent.headers[header] for header, _ in prepared.headers if header not in OLDER
    ]
    assert all(header in sent.headers for header, _ in prepared.headers)


def _sorted_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with its tools by their names: the SDK of Gemini puts the declared functions last."""
    return {**body, "tools": sorted(body["tools"], key=str)} if "tools" in body else body


def _default(name: str) -> Any:
    return getattr(ask(None), name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_in_a_golden_request_or_refused(kind):
    requests = [golden.request for golden in GOLDEN.values() if golden.kind == kind]
    fields = [field.name for field in msgspec.structs.fields(CompletionRequest)]
    used = {name for name in fields for each in requests if getattr(each, name) != _default(name)}
    refused = REFUSED[kind]
    assert used | NOT_SENT == set(fields) - set(refused)
    for name, value in refused.items():
        system = "Be brief." if name == "system_cache_breakpoint" else ""
        assert cannot(ask("Hi", system=system, **{name: value}), model_of(kind)) == [name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_cache_breakpoint_is_in_a_golden_request_or_refused_wherever_it_stands(kind, place):
    golden = GOLDEN.get(f"{kind}: mark of {place}")
    if golden is not None:
        written = golden.encoded().body
        assert sum(written.count(b'"%b"' % mark) for mark in MARKS) == 1
        return
    refused = cannot(marked(place), model_of(kind))
    assert [field for field in refused if field.endswith("cache_breakpoint")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_medium_of_a_wire_format_is_in_a_golden_request(kind):
    goldens = [golden for golden in GOLDEN.values() if golden.kind == kind]
    parts = [part for golden in goldens for each in golden.request.messages or () for part in each.parts]
    sent = {part.kind.value for part in parts if isinstance(part, MediaPart)}
    assert sent == set(model_of(kind).capabilities.media)


# The controls


def _objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every object whose members are the provider's."""
    if isinstance(value, dict):
        yield path
        for name, each in value.items():
            if not (name in FREE and isinstance(each, dict)):
                yield from _objects(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _objects(each, (*path, index))


def _spoilt(body: Any, path: tuple[Any, ...]) -> bytes:
    spoilt = copy.deepcopy(body)
    place = spoilt
    for step in path:
        place = place[step]
    place["of_nobody"] = 1
    return json.dumps(spoilt).encode()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_member_that_no_type_has_is_noticed_in_every_object_of_a_body(name):
    golden = GOLDEN[name]
    body = json.loads(golden.encoded().body)
    for path in _objects(body):
        with pytest.raises((ValueError, UserWarning)):
            judged(golden, _spoilt(body, path))


SPOILT: list[tuple[str, str, dict[str, Any]]] = [
    (ANTHROPIC, "text", {"max_tokens": "7"}),
    (ANTHROPIC, "text", {"messages": [{"role": "tool", "content": "Hi"}]}),
    (ANTHROPIC, "effort low", {"output_config": {"effort": "minimal"}}),
    (ANTHROPIC, "text", {"service_tier": "flex"}),
    (ANTHROPIC, "text", {"cache_control": {"type": "ephemeral", "ttl": "30m"}}),
    (ANTHROPIC, "text", {"tools": [{"type": "web_search_20260318", "name": "search"}]}),
    (BEDROCK, "text", {"serviceTier": {"type": "fast"}}),
    (BEDROCK, "text", {"system": [{"cachePoint": {"type": "default", "ttl": "30m"}}]}),
    (BEDROCK, "text", {"inferenceConfig": {"maxTokens": "7"}}),
    (BEDROCK, "text", {"messages": [{"role": "tool", "content": [{"text": "Hi"}]}]}),
    (BEDROCK, "tools", {"toolConfig": {"tools": [{"toolSpec": {"name": "look"}}]}}),
    (CHAT, "text", {"messages": [{"role": "user"}]}),
    (CHAT, "text", {"service_tier": "ultrafast"}),
    (CHAT, "tools", {"tool_choice": "any"}),
    (GEMINI, "text", {"generation_config": {"maxOutputTokens": 7}}),
    (GEMINI, "text", {"serviceTier": "fast"}),
    (GEMINI, "effort low", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MAX"}}}),
    (GEMINI, "tools", {"toolConfig": {"functionCallingConfig": {"mode": "REQUIRED"}}}),
    (OPENAI, "text", {"include": ["reasoning"]}),
    (OPENAI, "text", {"service_tier": "standard"}),
    (OPENAI, "text", {"tools": [{"type": "web_search", "search_context_size": "most"}]}),
    (OPENAI, "tools", {"tools": [{"type": "function", "name": "look"}]}),
]


@pytest.mark.parametrize(("kind", "name", "change"), SPOILT, ids=[f"{each[0]}-{each[2]}" for each in SPOILT])
def test_a_wrong_value_is_noticed(kind, name, change):
    golden = GOLDEN[f"{kind}: {name}"]
    body = json.loads(golden.encoded().body) | change
    with pytest.raises((ValueError, UserWarning)):
        judged(golden, json.dumps(body).encode())


@pytest.mark.parametrize(("kind", "member"), [(kind, each) for kind, names in GONE.items() for each in names])
def test_a_member_that_is_held_to_be_gone_is_gone(kind, member):
    golden = GOLDEN[f"{kind}: text"]
    body = json.loads(golden.encoded().body) | {member: 1}
    with pytest.raises(ValueError, match=member):
        CHECKS[kind](golden.encoded().target, json.dumps(body).encode())
