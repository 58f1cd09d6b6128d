"""Provider options: what belongs to the request or to the service, and what passes."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.requests import ReasoningEffort, SchemaMode
from tests.support.completion_requests import ANTHROPIC, KINDS, OPENAI, ask, model_of, wrong

FIELD = "provider_options_json"


def options(value, **fields):
    return ask(provider_options_json=json.dumps(value), **fields)


@pytest.mark.parametrize("text", ["[]", "5", "null", '"a"', "{", '{"a":1,"a":2}', '{"a":NaN}'])
def test_options_are_one_object(text):
    assert wrong(ask(provider_options_json=text)) == [FIELD]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_nobody_owns_pass(kind):
    free = {
        "metadata": {"user_id": "u", "image_url": "https://a.example/x.png"},
        "top_logprobs": 3,
        "prompt_cache_key": "k",
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "auto"},
        "output_config": {"task_budget": 5},
        "include": ["message.output_text.logprobs"],
        "thinking": {"type": "disabled"},
        "a_key_of_tomorrow": {"model": 1, "stream": True},
    }
    assert wrong(options(free), model_of(kind)) == []


@pytest.mark.parametrize(
    "key",
    [
        "model",
        "models",
        "fallbacks",
        "prompt",
        "messages",
        "input",
        "contents",
        "system",
        "instructions",
        "systemInstruction",
        "system_instruction",
        "functions",
        "tool_choice",
        "toolChoice",
        "toolConfig",
        "parallel_tool_calls",
        "function_call",
        "max_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "max_completion_tokens",
        "max-tokens",
        "MAX_TOKENS",
        "max_tokens_to_sample",
        "temperature",
        "top_p",
        "topP",
        "top_k",
        "topK",
        "seed",
        "stop",
        "stop_sequences",
        "stopSequences",
        "reasoning_effort",
        "response_format",
        "output_format",
        "responseSchema",
        "response_json_schema",
        "responseMimeType",
        "n",
        "candidateCount",
        "stream",
        "stream_options",
        "background",
        "background_options",
        "store",
        "service_tier",
        "serviceTier",
        "speed",
        "inference_geo",
        "inferenceGeo",
        "previous_response_id",
        "conversation",
        "thread",
        "mcp_servers",
        "web_search_options",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reserved_key_is_named(kind, key):
    assert wrong(options({key: None}), model_of(kind)) == [f"{FIELD}.{key}"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"text": {"verbosity": "low", "format": {"type": "text"}}}, "text.format"),
        ({"output_config": {"format": {}}}, "output_config.format"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, "reasoning.effort"),
        ({"generationConfig": {"maxOutputTokens": 1}}, "generationConfig.maxOutputTokens"),
        ({"generation_config": {"candidate_count": 1}}, "generation_config.candidate_count"),
        ({"inferenceConfig": {"topP": 1}}, "inferenceConfig.topP"),
        ({"extra_body": {"generationConfig": {"seed": 1}}}, "extra_body.generationConfig.seed"),
        ({"text": "plain"}, "text"),
        ({"include": "all"}, "include"),
    ],
)
def test_a_reserved_key_is_found_wherever_the_wire_would_honour_it(value, field):
    assert wrong(options(value)) == [f"{FIELD}.{field}"]


def test_every_reserved_key_is_reported_at_once():
    keys = {"model": 1, "fine": 2, "stream": 3, "text": {"format": 4}, "odd name\n": {"store": 5}}
    assert wrong(options(keys)) == [f"{FIELD}.model", f"{FIELD}.stream", f"{FIELD}.text.format"]


def test_a_tool_of_the_provider_has_to_be_enabled():
    tools = {"tools": [{"type": "web_search_20260318", "name": "web_search"}, {"type": "code_interpreter"}]}
    both = [f"{FIELD}.tools[0].type", f"{FIELD}.tools[1].type"]
    assert wrong(options(tools)) == both
    assert wrong(options(tools), model_of(hosted_tools=frozenset(("web_search",)))) == both[1:]
    exact = frozenset(("web_search_20260318", "code_interpreter"))
    assert wrong(options(tools), model_of(hosted_tools=exact)) == []


@pytest.mark.parametrize(
    "tool", [{"type": "function", "name": "f"}, {"type": "custom"}, {"name": "f"}, "web_search"]
)
def test_a_callers_tool_has_its_own_place(tool):
    everything = model_of(OPENAI, hosted_tools=frozenset(("function", "custom", "web_search")))
    assert wrong(options({"tools": [tool]}), everything) == [f"{FIELD}.tools[0]"]


def test_tools_of_the_provider_are_an_array_and_never_forced():
    assert wrong(options({"tools": {"type": "web_search"}})) == [f"{FIELD}.tools"]
    searching = model_of(hosted_tools=frozenset(("web_search", "mcp")))
    forced = options(
        {"tools": [{"type": "web_search"}]},
        output_schema_json='{"type":"object"}',
        schema_mode=SchemaMode.FORCED_TOOL,
    )
    assert wrong(forced, searching) == [f"{FIELD}.tools"]
    assert wrong(options({"mcp_servers": [], "web_search_options": {}}), searching) == []


def test_an_effort_owns_the_thinking_except_its_display():
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}}
    assert wrong(options(thinking)) == []
    assert wrong(options(thinking, reasoning_effort=ReasoningEffort.HIGH)) == [
        f"{FIELD}.thinking.type",
        f"{FIELD}.thinking.budget_tokens",
    ]


def test_remote_media_do_not_hide_in_options():
    hidden = {"image_mask": {"image_url": "https://a.example/x.png"}}
    assert wrong(options(hidden), model_of(ANTHROPIC)) == [f"{FIELD}.image_mask.image_url"]
