"""Answers in which the provider ran tools of its own beside a call of the caller's, streamed and as one document.

Written by hand after the recorded ones. Each form says what must be told of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS

from . import anthropic_events, bedrock_events, chat_events, gemini_chunks, responses_events
from .wire_bytes import Json, body, sse

CALLERS = "look"
"""The caller's own tool, which every answer calls too."""


@dataclass(frozen=True)
class Form:
    """One way in which a provider tells that it ran a tool."""

    kind: str
    stream: bytes
    document: bytes
    tools: tuple[HostedTool, ...]
    requests: dict[str, int]

    def make(self) -> Accumulator:
        """Return a fresh accumulator of its wire format."""
        return WIRE_FORMATS[self.kind].accumulator(deltas=True)


def _anthropic(
    use: Json, pieces: tuple[str, ...], result: Json, tool: HostedTool, counters: Json | None, **requests: int
) -> Form:
    wire = anthropic_events
    told: Json = {} if counters is None else {"server_tool_use": counters}
    blocks = [
        [wire.opened(0, **use), *(wire.json_piece(0, piece) for piece in pieces), wire.closed(0)],
        [wire.opened(1, **result), wire.closed(1)],
        wire.text_block(2, "Found."),
        wire.tool_block(3, CALLERS, "{}"),
    ]
    usage: Json = {"output_tokens": 20, **told}
    events = [wire.start(), *(event for block in blocks for event in block)]
    events += [wire.ended("tool_use", usage), wire.STOP]
    whole = [
        {**use, "input": {"query": "rust"}},
        result,
        {"type": "text", "text": "Found."},
        {"type": "tool_use", "id": "call_3", "name": CALLERS, "input": {}},
    ]
    document = wire.document(*whole, reason="tool_use", usage={**wire.START_USAGE, **usage})
    return Form("anthropic", sse(*events), document, (tool,), requests)


_QUERY = '{"query":"rust"}'
_SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
_HIT = {"type": "web_search_result", "title": "Rust", "url": "https://a.example/"}
_FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [_HIT]}
_HIT_JSON = '[{"type":"web_search_result","title":"Rust","url":"https://a.example/"}]'
_FAILED = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
_FAILED_JSON = '{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}'
_SEARCHED: Json = {"type": "web_search", "id": "s1", "arguments_json": _QUERY}
_MCP_USE = {"type": "mcp_tool_use", "id": "m1", "name": "find", "server_name": "docs"}
_MCP_TEXT = {"type": "text", "text": "no such page"}
_MCP_FAILED = {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": [_MCP_TEXT]}
_RAN = {"type": "bash_code_execution_result", "stdout": "4", "return_code": 0}


def _responses(
    *items: Json, tools: tuple[HostedTool, ...], told: Json | None = None, **requests: int
) -> Form:
    wire = responses_events
    output = [*items, wire.message("Found.", index=len(items)), wire.call(CALLERS)]
    fields: Json = {} if told is None else {"tool_usage": told}
    events: list[Json] = [wire.created()]
    for index, item in enumerate(items):
        started = {"id": item["id"], "type": item["type"], "status": "in_progress"}
        events += [wire.added(index, started), wire.item_done(index, item)]
    events += wire.text_events(len(items), "Found.")
    events += wire.call_events(len(items) + 1, wire.call(CALLERS), '{"at":1}')
    stream = sse(*events, wire.ended(*output, **fields))
    return Form("openai_responses", stream, wire.document(*output, **fields), tools, requests)


def _item(type: str, **fields: Any) -> Json:
    return {"id": "h1", "type": f"{type}_call", "status": "completed", **fields}


def _done(type: str, **fields: Any) -> HostedTool:
    return HostedTool(type=type, id="h1", status="completed", **fields)


def _chat(*deltas: Json, figures: Json | None = None, beside: Json | None = None, **told: Any) -> Form:
    wire = chat_events
    usage = {**wire.USAGE, **(figures or {})}
    message: Json = {}
    for each in deltas:  # the last list of a member holds what the earlier ones told
        message |= each
    called = {"id": "call_0", "type": "function", "function": {"name": CALLERS, "arguments": "{}"}}
    stream = sse(
        wire.role(),
        *(wire.said(**each) for each in deltas),
        wire.text("Found."),
        *wire.call(0, "{}", name=CALLERS),
        wire.finish("tool_calls"),
        wire.usage(usage, **(beside or {})),
        wire.DONE,
    )
    whole = {"role": "assistant", "content": "Found.", **message, "tool_calls": [called]}
    document = wire.whole(whole, reason="tool_calls", figures=usage, **(beside or {}))
    return Form("chat_completions", stream, document, told.pop("tools"), told.pop("requests"))


_EXECUTED = {"index": 0, "type": "search", "arguments": _QUERY}
_CITED = {"type": "url_citation", "url_citation": {"url": "https://a.example/"}}
_CITED_JSON = '[{"type":"url_citation","url_citation":{"url":"https://a.example/"}}]'
_SOURCES = [{"url": "https://a.example/"}]
_EXECUTED_JSON = '{"search_results":{"results":[{"url":"https://a.example/"}]},"output":"Rust"}'
_SOURCES_JSON = '[{"url":"https://a.example/"}]'


def _gemini(
    *parts: Json, tools: tuple[HostedTool, ...], candidate: Json | None = None, **requests: int
) -> Form:
    wire = gemini_chunks
    chunks = [
        *(wire.chunk(part) for part in parts),
        wire.chunk(wire.text("Found.")),
        wire.chunk(wire.call(CALLERS, {}, id="c1"), finish="STOP", told=wire.USAGE, **(candidate or {})),
    ]
    everything = (*parts, wire.text("Found."), wire.call(CALLERS, {}, id="c1"))
    whole = wire.chunk(*everything, finish="STOP", told=wire.USAGE, **(candidate or {}))
    return Form("gemini", wire.sse(*chunks), body(whole), tools, requests)


_GROUNDED = {
    "groundingMetadata": {
        "webSearchQueries": ["rust", "rust 2"],
        "groundingChunks": [{"maps": {"uri": "u"}}, {"retrievedContext": {"uri": "d"}}],
    },
    "urlContextMetadata": {
        "urlMetadata": [{"retrievedUrl": "https://a.example/", "urlRetrievalStatus": "OK"}]
    },
}


def _bedrock() -> Form:
    wire = bedrock_events
    use = {"toolUseId": "call_0", "name": "nova_grounding", "type": "server_tool_use"}
    result = {"toolUseId": "call_0", "type": "nova_grounding_result", "status": "success"}
    start = {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolResult": result}}}
    stream = wire.stream(
        wire.tool_block(0, "nova_grounding", '{"query":', '"rust"}', type="server_tool_use"),
        [start, wire.delta(1, toolResult=[{"text": "Rust"}]), wire.closed(1)],
        wire.text_block(2, "Found."),
        wire.tool_block(3, CALLERS, "{}"),
        reason="tool_use",
    )
    document = wire.document(
        {"toolUse": {**use, "input": {"query": "rust"}}},
        {"toolResult": {**result, "content": [{"text": "Rust"}]}},
        {"text": "Found."},
        {"toolUse": {"toolUseId": "call_3", "name": CALLERS, "input": {}}},
        reason="tool_use",
    )
    told: Json = {"arguments_json": _QUERY, "result_json": '[{"text":"Rust"}]', "status": "success"}
    tool = HostedTool(type="nova_grounding", id="call_0", **told)
    return Form("bedrock", stream, document, (tool,), {"nova_grounding": 1})


FORMS = {
    "anthropic web search": _anthropic(
        _SEARCH,
        ('{"query":', '"rust"}'),
        _FOUND,
        HostedTool(**_SEARCHED, result_json=_HIT_JSON),
        {"web_search_requests": 2, "web_fetch_requests": 0},
        web_search=2,
    ),
    "anthropic search that nobody counted": _anthropic(
        _SEARCH, (_QUERY,), _FOUND, HostedTool(**_SEARCHED, result_json=_HIT_JSON), None, web_search=1
    ),
    "anthropic search that failed": _anthropic(
        _SEARCH,
        (_QUERY,),
        {**_FOUND, "content": _FAILED},
        HostedTool(**_SEARCHED, result_json=_FAILED_JSON, error="max_uses_exceeded"),
        None,
    ),
    "anthropic code execution": _anthropic(
        {"type": "server_tool_use", "id": "b1", "name": "bash_code_execution"},
        (_QUERY,),
        {"type": "bash_code_execution_tool_result", "tool_use_id": "b1", "content": _RAN},
        HostedTool(
            type="bash_code_execution",
            id="b1",
            arguments_json=_QUERY,
            result_json='{"type":"bash_code_execution_result","stdout":"4","return_code":0}',
        ),
        None,
    ),
    "anthropic mcp": _anthropic(
        _MCP_USE,
        (_QUERY,),
        _MCP_FAILED,
        HostedTool(
            type="mcp",
            id="m1",
            name="find",
            server="docs",
            arguments_json=_QUERY,
            result_json='[{"type":"text","text":"no such page"}]',
            error="no such page",
        ),
        None,
    ),
    "responses web search": _responses(
        _item("web_search", action={"type": "search", "query": "rust"}),
        tools=(_done("web_search", arguments_json='{"action":{"type":"search","query":"rust"}}'),),
        told={"web_search": {"num_requests": 3}},
        web_search=3,
    ),
    "responses file search and code": _responses(
        _item("file_search", queries=["rust"], results=[{"score": 1}]),
        _item("code_interpreter", container_id="c", code="1", outputs=[{"type": "logs", "logs": "1"}]),
        tools=(
            _done(
                "file_search", arguments_json='{"queries":["rust"]}', result_json='{"results":[{"score":1}]}'
            ),
            _done(
                "code_interpreter",
                arguments_json='{"container_id":"c","code":"1"}',
                result_json='{"outputs":[{"type":"logs","logs":"1"}]}',
            ),
        ),
        file_search=1,
        code_interpreter=1,
    ),
    "responses mcp": _responses(
        {**_item("mcp", name="find", server_label="docs"), "arguments": _QUERY, "error": "no such page"},
        tools=(_done("mcp", name="find", server="docs", arguments_json=_QUERY, error="no such page"),),
    ),
    "responses tool of tomorrow": _responses(
        _item("time_travel", query="rust", output="42"),
        tools=(_done("time_travel", arguments_json='{"query":"rust"}', result_json='{"output":"42"}'),),
        time_travel=1,
    ),
    "responses calls that the caller runs": _responses(
        _item("computer", action={"type": "click"}),
        _item("local_shell", action={"type": "exec"}),
        _item("apply_patch"),
        _item("shell", environment={"type": "local"}),
        _item("tool_search", execution="client"),
        tools=(),
    ),
    "groq": _chat(
        {"executed_tools": [{**_EXECUTED, "search_results": {"results": []}}]},
        {"executed_tools": [{**_EXECUTED, "search_results": {"results": _SOURCES}, "output": "Rust"}]},
        tools=(HostedTool(type="search", arguments_json=_QUERY, result_json=_EXECUTED_JSON),),
        requests={"search": 1},
    ),
    "openrouter": _chat(
        {"annotations": [_CITED]},
        figures={"server_tool_use_details": {"web_search_requests": 2}},
        tools=(HostedTool(type="web_search", result_json=_CITED_JSON),),
        requests={"web_search": 2},
    ),
    "citations that nobody counted": _chat(
        {"annotations": [_CITED, {"type": "file_citation"}]},
        tools=(HostedTool(type="web_search", result_json=_CITED_JSON),),
        requests={"web_search": 1},
    ),
    "perplexity": _chat(
        beside={"search_results": _SOURCES},
        figures={"num_search_queries": 4},
        tools=(HostedTool(type="web_search", result_json=_SOURCES_JSON),),
        requests={"web_search": 4},
    ),
    "xai": _chat(
        beside={"citations": ["https://a.example/"]},
        figures={"num_sources_used": 5},
        tools=(HostedTool(type="live_search", result_json='["https://a.example/"]'),),
        requests={"live_search": 5},
    ),
    "gemini code": _gemini(
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        tools=(
            HostedTool(
                type="code_execution",
                status="OUTCOME_OK",
                arguments_json='{"language":"PYTHON","code":"1"}',
                result_json='{"output":"1"}',
            ),
        ),
    ),
    "gemini tool on its side": _gemini(
        {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["rust"]}}},
        {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"hits": 1}}},
        tools=(
            HostedTool(
                type="google_search", id="t1", arguments_json='{"queries":["rust"]}', result_json='{"hits":1}'
            ),
        ),
        google_search=1,
    ),
    "gemini grounding": _gemini(
        candidate=_GROUNDED,
        tools=(
            HostedTool(type="google_search", arguments_json=_QUERY),
            HostedTool(type="google_search", arguments_json='{"query":"rust 2"}'),
            HostedTool(type="url_context", status="OK", arguments_json='{"url":"https://a.example/"}'),
            HostedTool(type="google_maps"),
            HostedTool(type="file_search"),
        ),
        google_search=2,
        google_maps=1,
    ),
    "bedrock": _bedrock(),
}
