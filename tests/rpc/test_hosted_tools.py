"""Tools of the provider's own through the front door: asked for, run, told and counted, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

import modelmeter
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support.fault_server import FaultServer, Reply
from tests.support.hosted_answers import CALLERS, FORMS
from tests.support.provider_service import provider_service

STREAMED = {
    "bedrock": {"content-type": "application/vnd.amazon.eventstream"},
    "": {"content-type": "text/event-stream"},
}
ASKED = {
    "anthropic": {"type": "web_search_20260318", "name": "web_search"},
    "bedrock": {"systemTool": {"name": "nova_grounding"}},
    "chat_completions": {"type": "browser_search"},
    "gemini": {"googleSearch": {}},
    "openai_responses": {"type": "web_search"},
}
ENABLED = frozenset(("web_search", "nova_grounding", "browser_search", "google_search"))
MODELS = [
    ModelSpec(
        name=f"{kind}-{'searching' if enabled else 'plain'}",
        provider=kind,
        provider_kind=kind,
        provider_model="m-test",
        capabilities=WIRE_FORMATS[kind].capabilities,
        hosted_tools=enabled,
    )
    for kind in WIRE_FORMATS
    for enabled in (ENABLED, frozenset[str]())
    if kind in ASKED
]


def told(tools: tuple[modelmeter.HostedTool, ...]) -> list[dict[str, Any]]:
    return [{name: getattr(tool, name) for name in tool.__dataclass_fields__} for tool in tools]


@pytest.mark.parametrize("name", FORMS)
async def test_what_the_provider_ran_arrives_with_its_requests(name):
    form = FORMS[name]
    replies = iter(
        [
            Reply(headers=STREAMED.get(form.kind, STREAMED[""]), chunks=[form.stream]),
            Reply(headers=STREAMED.get(form.kind, STREAMED[""]), chunks=[form.stream]),
            Reply(headers={"content-type": "application/json"}, chunks=[form.document]),
        ]
    )
    async with FaultServer(lambda _: next(replies)) as provider, provider_service(provider) as service:
        whole = await service.client.complete(form.kind, "Hi")
        async with service.client.stream(form.kind, "Hi") as stream:
            events = [event async for event in stream]
        buffered = await service.client.complete(f"{form.kind}-buffered", "Hi")
    expected = [{field: getattr(tool, field) for field in tool.__struct_fields__} for tool in form.tools]
    for completion in (whole, events[-1], buffered):
        assert isinstance(completion, modelmeter.Completion)
        assert told(completion.hosted_tools) == expected
        assert dict(completion.usage.hosted_tool_requests) == form.requests
        assert [call.name for call in completion.tool_calls] == [CALLERS]


@pytest.mark.parametrize("kind", ASKED)
async def test_a_tool_that_is_enabled_goes_after_the_callers_own(kind):
    reply = Reply(headers=STREAMED.get(kind, STREAMED[""]), chunks=[_some(kind)])
    async with FaultServer(reply) as provider, provider_service(provider, models=MODELS) as service:
        own = modelmeter.Tool(CALLERS)
        options = {"tools": [ASKED[kind]]}
        await service.client.complete(f"{kind}-searching", "Hi", tools=[own], provider_options=options)
        (request,) = provider.requests
    body = json.loads(request.body)
    tools = body["toolConfig"]["tools"] if kind == "bedrock" else body["tools"]
    assert len(tools) == 2
    assert tools[1] == ASKED[kind]


@pytest.mark.parametrize("kind", ASKED)
async def test_a_tool_that_is_not_enabled_is_refused_by_its_field_and_nothing_is_sent(kind):
    async with FaultServer() as provider, provider_service(provider, models=MODELS) as service:
        with pytest.raises(modelmeter.RefusedError) as refused:
            await service.client.complete(f"{kind}-plain", "Hi", provider_options={"tools": [ASKED[kind]]})
        assert not provider.requests
    (violation,) = refused.value.violations
    assert violation.field.startswith("provider_options_json.tools[0]")
    assert "not enabled" in violation.description


def _some(kind: str) -> bytes:
    return next(form.stream for form in FORMS.values() if form.kind == kind)
