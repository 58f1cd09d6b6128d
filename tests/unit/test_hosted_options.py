"""Which tools of the provider's own pass: those that the deployment named and the provider itself runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.completion_requests import ANTHROPIC, BEDROCK, CHAT, GEMINI, OPENAI, ask, model_of, wrong

FIELD = "provider_options_json"


def refused(kind: str, options: Any, *enabled: str) -> list[str]:
    """Return the fields of the options that are refused, without what all of them begin with."""
    request = ask(provider_options_json=json.dumps(options))
    fields = wrong(request, model_of(kind, hosted_tools=frozenset(enabled)))
    return [field.removeprefix(f"{FIELD}.") for field in fields]


@pytest.mark.parametrize(
    ("kind", "options", "field", "name"),
    [
        (ANTHROPIC, {"mcp_servers": []}, "mcp_servers", "mcp"),
        (ANTHROPIC, {"tools": [{"type": "mcp_toolset"}]}, "tools[0].type", "mcp"),
        (CHAT, {"web_search_options": {}}, "web_search_options", "web_search"),
        (CHAT, {"extra_body": {"webSearchOptions": {}}}, "extra_body.webSearchOptions", "web_search"),
        (CHAT, {"search_parameters": {"mode": "on"}}, "search_parameters", "live_search"),
        (CHAT, {"enable_search": True}, "enable_search", "web_search"),
        (CHAT, {"data_sources": []}, "data_sources", "data_sources"),
        (CHAT, {"plugins": [{"id": "web"}]}, "plugins[0]", "web"),
        (CHAT, {"plugins": [{"id": "web"}]}, "plugins[0]", "plugins"),
        (
            CHAT,
            {"compound_custom": {"tools": {"enabled_tools": ["visit_website"]}}},
            "compound_custom.tools.enabled_tools[0]",
            "visit_website",
        ),
        (CHAT, {"tools": [{"type": "openrouter:web_search"}]}, "tools[0].type", "openrouter:web_search"),
        (GEMINI, {"tools": [{"google_search": {}}]}, "tools[0].google_search", "googleSearch"),
        (BEDROCK, {"tools": [{"systemTool": {"name": "n"}}]}, "tools[0].systemTool.name", "n"),
        (
            BEDROCK,
            {"additionalModelRequestFields": {"tools": [{"type": "bash_20250124"}]}},
            "additionalModelRequestFields.tools[0].type",
            "bash",
        ),
        (OPENAI, {"tools": [{"type": "code_interpreter"}]}, "tools[0].type", "code_interpreter"),
    ],
)
def test_a_tool_passes_only_where_the_deployment_named_it(kind, options, field, name):
    assert refused(kind, options) == refused(kind, options, "something_else") == [field]
    assert refused(kind, options, name) == []


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({"type": "computer"}, "type"),
        ({"type": "computer_use_preview"}, "type"),
        ({"type": "local_shell"}, "type"),
        ({"type": "apply_patch"}, "type"),
        ({"type": "shell"}, "environment"),
        ({"type": "shell", "environment": {"type": "local"}}, "environment"),
        ({"type": "tool_search", "execution": "client"}, "execution"),
        ({"type": "mcp", "server_label": "d"}, "require_approval"),
        ({"type": "mcp", "require_approval": {"always": {}}}, "require_approval"),
        ({"type": "image_generation"}, "type"),
    ],
)
def test_a_tool_whose_calls_no_answer_has_a_place_for_is_refused_although_it_is_named(tool, field):
    assert refused(OPENAI, {"tools": [tool]}, tool["type"]) == [f"tools[0].{field}"]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "tool_search", "execution": "server"},
        {"type": "mcp", "server_label": "d", "require_approval": "never"},
    ],
)
def test_a_tool_that_the_provider_runs_alone_passes(tool):
    assert refused(OPENAI, {"tools": [tool]}, tool["type"]) == []


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        (BEDROCK, {"toolSpec": {"name": "look"}}),
        (BEDROCK, {"type": "nova_grounding"}),
        (BEDROCK, {"systemTool": {"name": "n"}, "toolSpec": {}}),
        (BEDROCK, {"systemTool": "n"}),
        (BEDROCK, 5),
        (GEMINI, {}),
        (ANTHROPIC, {"type": "custom", "name": "look"}),
        (OPENAI, {"type": "function", "name": "look"}),
    ],
)
def test_a_tool_of_the_callers_has_its_own_place(kind, tool):
    assert refused(kind, {"tools": [tool]}, "n", "nova_grounding", "custom", "function") == ["tools[0]"]


@pytest.mark.parametrize("value", [None, 5, "web", {"id": "web"}])
def test_plugins_that_cannot_be_told_apart_are_refused(value):
    assert refused(CHAT, {"plugins": value}, "web") == ["plugins"]


@pytest.mark.parametrize("spelling", ["toolConfig", "tool_config"])
def test_gemini_is_told_about_its_own_tools_but_not_about_the_choice_among_the_callers(spelling):
    own = {"includeServerSideToolInvocations": True, "retrievalConfig": {"languageCode": "de"}}
    assert refused(GEMINI, {spelling: own}) == []
    assert refused(GEMINI, {spelling: own | {"functionCallingConfig": {"mode": "ANY"}}}) == [
        f"{spelling}.functionCallingConfig"
    ]


@pytest.mark.parametrize(
    ("kind", "value"), [(GEMINI, {}), (GEMINI, None), (GEMINI, []), (BEDROCK, {"tools": []})]
)
def test_any_other_tool_config_is_the_requests_to_say(kind, value):
    assert refused(kind, {"toolConfig": value}) == ["toolConfig"]
