"""Requests that together use everything that a provider kind is sent, for the proofs of what leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from modelmeter_server.core.cache_marks import ASSISTANT_TEXT, SYSTEM, TOOLS
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.requests import (
    CacheBreakpoint,
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Part,
    ReasoningEffort,
    SchemaMode,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.bedrock import capabilities_of
from modelmeter_server.drivers.driver import PreparedRequest
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS

from . import ROOT
from .completion_requests import (
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
    thinker_of,
    user,
)

SCHEMA = (
    '{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"],"additionalProperties":false}'
)
LOOK = Tool(name="look", description="Look there.", parameters_json=SCHEMA)
STRICT = Tool(name="look", description="Look there.", parameters_json=SCHEMA, strict=True)
BARE = Tool(name="wait")
_PIXEL = b"\x89PNG\r\n\x1a\n"

# Objects with members of the caller's own choice.
FREE = frozenset(
    (
        "additionalModelRequestFields",
        "args",
        "input",
        "input_schema",
        "json",
        "labels",
        "metadata",
        "parameters",
        "parametersJsonSchema",
        "requestMetadata",
        "response",
        "responseJsonSchema",
        "schema",
    )
)

BOTH = {"tools": (LOOK, BARE)}
CALLS = assistant(
    TextPart("I look."),
    ToolCallPart(id="call_1", name="look", arguments_json='{"at":1}'),
    ToolCallPart(id="call_2", name="wait"),
)
RESULTS = user(
    ToolResultPart(call_id="call_1", output="a wall"),
    ToolResultPart(call_id="call_2", output="no", failed=True),
)


@dataclass(frozen=True)
class Golden:
    """One request and the model that it is for."""

    kind: str
    name: str
    request: CompletionRequest
    model: ModelSpec = field(repr=False)

    def encoded(self) -> PreparedRequest:
        """Return what the driver would send."""
        return WIRE_FORMATS[self.kind].encode(self.request, self.model)


def _media(kind: MediaKind, media_type: str, name: str = "") -> MediaPart:
    return MediaPart(kind=kind, media_type=media_type, data=_PIXEL, name=name)


IMAGE = _media(MediaKind.IMAGE, "image/png")
PDF = _media(MediaKind.DOCUMENT, "application/pdf", "paper")
AUDIO = _media(MediaKind.AUDIO, "audio/wav")
NOTE = MediaPart(kind=MediaKind.DOCUMENT, media_type="text/plain", data=b"a note", name="note")
LINKED = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="https://example.com/a.png")

_COMMON: dict[str, CompletionRequest] = {
    "text": ask("Hi"),
    "system": ask("Hi", system="Be brief.", max_output_tokens=7),
    "turns": ask_messages(
        user(TextPart("Hi")), assistant(TextPart("Hello.")), user(TextPart("And"), TextPart("?"))
    ),
    "image": ask_messages(user(TextPart("What is it?"), IMAGE)),
    "document": ask_messages(user(PDF, TextPart("Sum it up."))),
    "tools": ask("Hi", **BOTH),
    "strict tool": ask("Hi", tools=(STRICT,)),
    "tool choice auto": ask("Hi", **BOTH, tool_choice=ToolChoice()),
    "tool choice required": ask("Hi", **BOTH, tool_choice=ToolChoice(mode=ToolMode.REQUIRED)),
    "tool choice named": ask("Hi", **BOTH, tool_choice=ToolChoice(mode=ToolMode.NAMED, name="look")),
    "tool results": ask_messages(user(TextPart("Look.")), CALLS, RESULTS, **BOTH),
    "schema": ask("Hi", output_schema_json=SCHEMA, schema_mode=SchemaMode.NATIVE),
    "forced schema": ask("Hi", output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL),
    "tools with schema": ask("Hi", **BOTH, output_schema_json=SCHEMA),
    "sampling": ask("Hi", temperature=0.5, top_p=0.9),
}
_NO_TOOLS = ask("Hi", **BOTH, tool_choice=ToolChoice(mode=ToolMode.NONE))
_ONE_CALL = ask("Hi", **BOTH, tool_choice=ToolChoice(disable_parallel_calls=True))
_STOPS = ask("Hi", stop_sequences=("END", "\n\n"))
_AUDIO = ask_messages(user(AUDIO, TextPart("Write it down.")))


MARK = CacheBreakpoint()
_MARKABLE: dict[str, Part] = {
    "text": TextPart("Hi"),
    "image": IMAGE,
    "audio": AUDIO,
    "document": PDF,
    "tool_call": ToolCallPart(id="call_1", name="look", arguments_json='{"at":1}'),
    "tool_result": ToolResultPart(call_id="call_1", output="a wall"),
}


def marked(place: str, mark: CacheBreakpoint = MARK) -> CompletionRequest:
    """Return a request with a cache breakpoint at one place, one of `cache_marks.PLACES`."""
    if place == TOOLS:
        return ask("Hi", tools=(msgspec.structs.replace(LOOK, cache_breakpoint=mark), BARE))
    if place == SYSTEM:
        return ask("Hi", system="Be brief.", system_cache_breakpoint=mark)
    if place == ASSISTANT_TEXT:
        return ask_messages(
            user(TextPart("Hi")), assistant(TextPart("Hello.", cache_breakpoint=mark)), user(TextPart("?"))
        )
    part = msgspec.structs.replace(_MARKABLE[place], cache_breakpoint=mark)
    if not isinstance(part, ToolCallPart | ToolResultPart):
        return ask_messages(user(part, TextPart("?")))
    call, result = _MARKABLE["tool_call"], _MARKABLE["tool_result"]
    turns = (assistant(part), user(result)) if place == "tool_call" else (assistant(call), user(part))
    return ask_messages(user(TextPart("Look.")), *turns, **BOTH)


TIERS: dict[str, tuple[str, ...]] = {
    ANTHROPIC: ("auto", "standard_only"),
    BEDROCK: ("default", "flex", "priority", "reserved"),
    CHAT: ("auto", "default", "fast", "flex", "priority", "scale"),
    GEMINI: ("flex", "priority", "standard"),
    OPENAI: ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast"),
}
"""Every tier by the SDK's types, in the provider's word."""

_PLACE = {"type": "approximate", "country": "DE", "city": "Bremen"}

HOSTED: dict[str, dict[str, Any]] = {
    ANTHROPIC: {
        "tools": [
            {
                "type": "web_search_20260318",
                "name": "web_search",
                "max_uses": 2,
                "allowed_domains": ["example.com"],
                "user_location": _PLACE,
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "web_fetch_20260318", "name": "web_fetch", "citations": {"enabled": True}},
            {"type": "code_execution_20260521", "name": "code_execution"},
            {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        ]
    },
    BEDROCK: {
        "tools": [
            {"systemTool": {"name": "nova_grounding"}},
            {"systemTool": {"name": "nova_code_interpreter"}},
        ]
    },
    CHAT: {
        "web_search_options": {
            "search_context_size": "low",
            "user_location": {"type": "approximate", "approximate": {"country": "DE"}},
        }
    },
    GEMINI: {
        "tools": [
            {"googleSearch": {}, "urlContext": {}},
            {"codeExecution": {}},
            {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"]}},
        ]
    },
    OPENAI: {
        "tools": [
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["example.com"]},
                "search_context_size": "low",
                "user_location": _PLACE,
            },
            {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "shell", "environment": {"type": "container_auto"}},
            {"type": "tool_search", "execution": "server"},
            {
                "type": "mcp",
                "server_label": "docs",
                "server_url": "https://example.com/mcp",
                "allowed_tools": ["ask"],
                "require_approval": "never",
            },
        ]
    },
}
"""Options that switch on the provider's own tools."""

_BESIDE: dict[str, dict[str, Any]] = {
    GEMINI: {
        "toolConfig": {
            "includeServerSideToolInvocations": True,
            "retrievalConfig": {"languageCode": "de"},
        }
    }
}
"""Options without which the provider's own tools and the caller's do not go together."""

_ENABLED = frozenset(
    (
        "codeExecution",
        "code_execution",
        "code_interpreter",
        "fileSearch",
        "file_search",
        "googleSearch",
        "mcp",
        "nova_code_interpreter",
        "nova_grounding",
        "shell",
        "tool_search",
        "tool_search_tool_bm25",
        "urlContext",
        "web_fetch",
        "web_search",
    )
)


def _options(**options: Any) -> CompletionRequest:
    return ask("Hi", provider_options_json=json.dumps(options))


def _continued(kind: str, *turns: Any) -> dict[str, CompletionRequest]:
    """Return a continuation in both of its places: in a message, and beside the prompt."""
    state = Continuation(kind, json.dumps(turns))
    return {
        "continuation in a message": ask_messages(user(TextPart("Look.")), assistant(state), RESULTS, **BOTH),
        "continuation": ask_messages(user(TextPart("Look.")), RESULTS, continuation=state, **BOTH),
    }


_OWN: dict[str, dict[str, CompletionRequest]] = {
    ANTHROPIC: {
        "tool choice none": _NO_TOOLS,
        "one call": _ONE_CALL,
        "stop sequences": _STOPS,
        "plain document": ask_messages(user(NOTE, TextPart("Sum it up."))),
        "top k": ask("Hi", top_k=40),
        "options": _options(
            metadata={"user_id": "u-1"},
            cache_control={"type": "ephemeral", "ttl": "1h"},
            thinking={"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
        ),
        **_continued(
            ANTHROPIC,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "A wall?", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "c2ln"},
                    {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "call_2", "name": "wait", "input": {}},
                ],
            },
        ),
        "native": ask_native(
            '{"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
            '"messages":[{"role":"user","content":"Hi"}]}'
        ),
    },
    BEDROCK: {
        "stop sequences": _STOPS,
        "audio": _AUDIO,
        "plain document": ask_messages(user(NOTE, TextPart("Sum it up."))),
        "options": _options(
            requestMetadata={"team": "a"},
            additionalModelRequestFields={"anthropic_beta": ["a-1"]},
            additionalModelResponseFieldPaths=["/stop_sequence"],
            guardrailConfig={"guardrailIdentifier": "abcd", "guardrailVersion": "1", "trace": "enabled"},
        ),
        **_continued(
            BEDROCK,
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "A wall?", "signature": "c2ln"}}},
                    {"reasoningContent": {"redactedContent": "c2ln"}},
                    {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"at": 1}}},
                    {"toolUse": {"toolUseId": "call_2", "name": "wait", "input": {}}},
                ],
            },
        ),
        "native": ask_native(
            '{"system":[{"text":"Be brief."},{"cachePoint":{"type":"default"}}],'
            '"messages":[{"role":"user","content":[{"text":"Hi"}]}]}'
        ),
    },
    CHAT: {
        "tool choice none": _NO_TOOLS,
        "one call": _ONE_CALL,
        "stop sequences": _STOPS,
        "audio": _AUDIO,
        "seed": ask("Hi", seed=7),
        "free text call": ask_messages(
            user(TextPart("Run it.")),
            assistant(ToolCallPart(id="call_1", name="run", arguments_json="ls -l", free_text=True)),
            user(ToolResultPart(call_id="call_1", output="a file")),
        ),
        "options": _options(
            metadata={"team": "a"},
            safety_identifier="u-1",
            prompt_cache_key="k-1",
            frequency_penalty=0.5,
            verbosity="low",
        ),
        **_continued(
            CHAT,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at":1}'},
                    },
                    {"id": "call_2", "type": "function", "function": {"name": "wait", "arguments": "{}"}},
                ],
            },
        ),
        "native": ask_native(
            '{"system":"Be brief.","messages":[{"role":"user","content":"Hi","name":"ann"}]}'
        ),
    },
    GEMINI: {
        "tool choice none": _NO_TOOLS,
        "stop sequences": _STOPS,
        "audio": _AUDIO,
        "top k": ask("Hi", top_k=40),
        "seed": ask("Hi", seed=7),
        "options": _options(
            labels={"team": "a"},
            cachedContent="cachedContents/abc",
            safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
            generationConfig={"presencePenalty": 0.5, "thinkingConfig": {"includeThoughts": True}},
        ),
        **_continued(
            GEMINI,
            {
                "role": "model",
                "parts": [
                    {"text": "A wall?", "thought": True},
                    {
                        "functionCall": {"id": "call_1", "name": "look", "args": {"at": 1}},
                        "thoughtSignature": "c2ln",
                    },
                    {"functionCall": {"id": "call_2", "name": "wait", "args": {}}},
                ],
            },
        ),
        "native": ask_native('{"system":"Be brief.","contents":[{"role":"user","parts":[{"text":"Hi"}]}]}'),
    },
    OPENAI: {
        "tool choice none": _NO_TOOLS,
        "one call": _ONE_CALL,
        "free text call": ask_messages(
            user(TextPart("Run it.")),
            assistant(ToolCallPart(id="call_1", name="run", arguments_json="ls -l", free_text=True)),
            user(ToolResultPart(call_id="call_1", output="a file")),
        ),
        "options": _options(
            metadata={"team": "a"},
            safety_identifier="u-1",
            prompt_cache_key="k-1",
            reasoning={"summary": "auto"},
            text={"verbosity": "low"},
            include=["message.output_text.logprobs"],
        ),
        **_continued(
            OPENAI,
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "A wall?"}],
                "encrypted_content": "c2ln",
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "look",
                "arguments": '{"at":1}',
                "status": "completed",
            },
            {"type": "function_call", "call_id": "call_2", "name": "wait", "arguments": "{}"},
        ),
        "native": ask_native('{"system":"Be brief.","input":[{"role":"user","content":"Hi"}]}'),
    },
}


def _marks(kind: str) -> list[Golden]:
    """Return a mark at every place that the kind has, one of every lifetime, and as many as a request may have."""
    model = model_of(kind)
    able = model.capabilities.cache_marks
    found = [Golden(kind, f"mark of {place}", marked(place), model) for place in able.places]
    found += [
        Golden(kind, f"mark for {seconds} s", marked("text", CacheBreakpoint(seconds)), model)
        for seconds in able.lifetimes
    ]
    if able.places:
        lifetimes = sorted((*able.lifetimes, *able.lifetimes), reverse=able.longest_first)
        texts = [TextPart("Hi", cache_breakpoint=CacheBreakpoint(each)) for each in lifetimes]
        found.append(Golden(kind, "marks", ask_messages(user(*texts)), model))
    return found


def _deployed(kind: str) -> list[Golden]:
    """Return requests to models whose configuration names a tier or the provider's own tools."""
    found = [
        Golden(kind, f"tier {tier}", ask("Hi"), model_of(kind, service_tier=tier)) for tier in TIERS[kind]
    ]
    hosting, options = model_of(kind, hosted_tools=_ENABLED), json.dumps(HOSTED[kind])
    found.append(Golden(kind, "hosted tools", ask("Hi", provider_options_json=options), hosting))
    beside = ask("Hi", **BOTH, provider_options_json=json.dumps(HOSTED[kind] | _BESIDE.get(kind, {})))
    return [*found, Golden(kind, "hosted tools beside tools", beside, hosting)]


def _golden(kind: str) -> list[Golden]:
    model = model_of(kind)
    linked = msgspec.structs.replace(model, allow_remote_media=True)
    found = [Golden(kind, name, request, model) for name, request in (_COMMON | _OWN[kind]).items()]
    found.append(Golden(kind, "buffered", ask("Hi"), msgspec.structs.replace(model, buffered=True)))
    if kind != BEDROCK:
        found.append(Golden(kind, "image by URL", ask_messages(user(LINKED)), linked))
    if model.capabilities.end_user_id:
        found.append(Golden(kind, "end user", ask("Hi", end_user_id="u-1"), model))
    found += _marks(kind) + _deployed(kind)
    thinkers = [thinker_of(kind)]
    if kind == BEDROCK:
        thinkers.append(model_of(kind, reasoning_dialect="nova", capabilities=capabilities_of("nova")))
    for thinker in thinkers:
        dialect = f" {thinker.reasoning_dialect}" if thinker.reasoning_dialect else ""
        for effort in ReasoningEffort:
            if effort in thinker.capabilities.reasoning_efforts:
                name = f"effort{dialect} {effort.value}"
                found.append(Golden(kind, name, ask("Hi", reasoning_effort=effort), thinker))
    return found


GOLDEN = {f"{each.kind}: {each.name}": each for kind in KINDS for each in _golden(kind)}
"""Every golden request, by wire format and name."""

FOLDER = ROOT / "tests" / "sdks" / "golden"
"""Where the bodies are kept, one file for each wire format and one line for each request."""


def kept_line(golden: Golden) -> str:
    """Return what is sent as one line of JSON: target, own headers, body, all in their order."""
    prepared = golden.encoded()
    sent = {
        "target": prepared.target,
        "headers": dict(prepared.headers),
        "body": json.loads(prepared.body),
    }
    return json.dumps({golden.name: sent})


def kept_lines(kind: str) -> list[str]:
    """Return the lines of a wire format's file as they should be."""
    return [kept_line(golden) for golden in GOLDEN.values() if golden.kind == kind]


def main() -> None:
    """Write the bodies anew: `python -m tests.support.golden_requests`. Read the difference before you commit it."""
    for kind in KINDS:
        (FOLDER / f"{kind}.jsonl").write_text("".join(f"{line}\n" for line in kept_lines(kind)), "utf-8")


if __name__ == "__main__":
    main()
