"""Counting from the client to the provider: what each is sent, how each answer is read, and that failing is free."""

from __future__ import annotations

import json
from typing import Any

import pytest

import modelmeter
from modelmeter import Certainty, Disposition, ErrorKind, Image, Message, ModelmeterError, Tool
from modelmeter_server.drivers.http import Timeouts
from tests.support.fault_server import FaultServer, NobodyListens, RecordedRequest, Reply
from tests.support.provider_service import API_KEY, SHORT, ProviderService, provider_service

JSON = {"content-type": "application/json"}
ANSWERS = {
    "anthropic": {"input_tokens": 19},
    "bedrock": {"inputTokens": 19},
    "gemini": {"totalTokens": 19, "cachedContentTokenCount": 4},
    "openai_responses": {"object": "response.input_tokens", "input_tokens": 19},
}
KINDS = sorted(ANSWERS)
TOOL = Tool("look", parameters={"type": "object", "properties": {}})


def replying(body: Any, **fields: Any) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(**{"headers": JSON, "chunks": [data], **fields})


async def asked(kind: str, path: str = "", **options: Any) -> RecordedRequest:
    """Count at a provider and return what it was sent."""
    async with (
        FaultServer(replying(ANSWERS[kind])) as provider,
        provider_service(provider, path=path) as service,
    ):
        assert (await service.client.count_tokens(kind, "Hi", **options)).input_tokens == 19
        (request,) = provider.requests
    return request


async def failed(service: ProviderService, kind: str, **options: Any) -> ModelmeterError:
    with pytest.raises(ModelmeterError) as caught:
        await service.client.count_tokens(kind, "Hi", **options)
    return caught.value


def assert_free(error: ModelmeterError) -> None:
    """Nothing was bought, whatever the kind."""
    assert error.certainty is Certainty.NONE
    assert error.disposition is Disposition.DID_NOT_HAPPEN
    assert not error.may_have_generated
    assert not error.usage.told
    assert error.cost is None
    assert {attempt.certainty for attempt in error.attempts} <= {Certainty.NONE}


async def test_anthropic_is_sent_the_body_without_what_bears_on_the_output():
    request = await asked(
        "anthropic", system="Be brief.", tools=[TOOL], temperature=0.5, stop_sequences=["x"], top_k=3
    )
    assert request.target == "/v1/messages/count_tokens"
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (API_KEY, "2023-06-01")
    assert json.loads(request.body) == {
        "model": "m-test",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
    }


async def test_responses_is_sent_the_body_without_what_bears_on_the_output():
    request = await asked("openai_responses", path="/v1", system="Be brief.", reasoning_effort="low")
    assert request.target == "/v1/responses/input_tokens"
    assert request.headers["authorization"] == f"Bearer {API_KEY}"
    assert json.loads(request.body) == {
        "model": "m-test",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
        "reasoning": {"effort": "low"},
    }


async def test_gemini_is_sent_the_whole_request():
    request = await asked("gemini", system="Be brief.")
    assert request.target == "/v1beta/models/m-test:countTokens"
    assert request.headers["x-goog-api-key"] == API_KEY
    assert json.loads(request.body) == {
        "generateContentRequest": {
            "model": "models/m-test",
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "generationConfig": {"maxOutputTokens": 16384},
        }
    }


async def test_vertex_is_sent_the_parts_that_it_takes():
    path = "/v1/projects/p/locations/l/publishers/google"
    request = await asked("gemini", path=path, tools=[TOOL], tool_choice="required")
    assert request.target == f"{path}/models/m-test:countTokens"
    assert json.loads(request.body).keys() == {"contents", "tools", "generationConfig"}


async def test_bedrock_is_sent_the_conversation():
    request = await asked("bedrock", system="Be brief.", tools=[TOOL], temperature=0.5)
    assert request.target == "/model/m-test/count-tokens"
    (converse,) = json.loads(request.body)["input"].values()
    assert converse.keys() == {"messages", "system", "toolConfig"}
    assert converse["messages"] == [{"role": "user", "content": [{"text": "Hi"}]}]


async def test_chat_completions_is_estimated_without_asking_anybody():
    picture = Message.user("How many?", Image("image/png", b"\x89PNG" * 1000))
    async with FaultServer() as provider, provider_service(provider) as service:
        count = await service.client.count_tokens("chat_completions", [picture], system="Be brief.")
        assert provider.requests == []
    assert count.is_estimate
    assert count.uncounted_media == ("image",)
    assert count.input_tokens == -(-len("How many?Be brief.") // 4) + 2 * 4 + 3
    assert count.upper_bound == len("How many?Be brief.") + 3 * 64
    assert (count.target, count.provider_request_id) == ("chat_completions", "")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_providers_request_id_and_the_callers_call_id_come_back(kind):
    call_id = "7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c"
    reply = replying(ANSWERS[kind], headers={**JSON, "x-request-id": "req-7"})
    async with FaultServer(reply) as provider, provider_service(provider) as service:
        count = await service.client.count_tokens(kind, "Hi", call_id=call_id)
        answered = (count.call_id, count.provider_request_id, count.target, count.model_asked)
    assert answered == (call_id, "req-7", kind, kind)


STATUSES = [
    (400, ErrorKind.REFUSED, "INVALID_ARGUMENT", False),
    (401, ErrorKind.REFUSED, "FAILED_PRECONDITION", False),
    (404, ErrorKind.REFUSED, "NOT_FOUND", False),
    (429, ErrorKind.RATE_LIMITED, "RESOURCE_EXHAUSTED", True),
    (500, ErrorKind.UNAVAILABLE, "UNAVAILABLE", True),
    (529, ErrorKind.RATE_LIMITED, "RESOURCE_EXHAUSTED", True),
]


@pytest.mark.parametrize(("status", "kind", "code", "retryable"), STATUSES)
@pytest.mark.parametrize("provider_kind", KINDS)
async def test_an_error_answer_is_classified_as_for_a_completion_and_is_free(
    provider_kind, status, kind, code, retryable
):
    body = {"error": {"type": "some_error", "message": f"no {API_KEY}"}}
    async with FaultServer(replying(body, status=status)) as provider, provider_service(provider) as service:
        error = await failed(service, provider_kind)
    assert (error.kind, error.code.name, error.retryable) == (kind, code, retryable)
    assert (error.http_status, error.attempts_total) == (status, 1)
    assert API_KEY not in f"{error}{error.provider_code}"
    assert_free(error)
    assert service.memory.outcomes == []


BROKEN = {
    "an empty body": Reply(headers=JSON, chunks=[]),
    "a cut document": Reply(headers=JSON, chunks=[b'{"input_to'], end="truncate"),
    "a reset": Reply(silent=True, end="reset"),
    "silence": Reply(silent=True, end="stall"),
    "a page of a proxy": Reply(headers={"content-type": "text/html"}, chunks=[b"<html>\n<p>Hi</p>\n"]),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_count_that_breaks_off_is_free_and_worth_repeating(name):
    async with (
        FaultServer(BROKEN[name]) as provider,
        provider_service(provider, timeouts=SHORT) as service,
    ):
        error = await failed(service, "anthropic")
    assert (error.kind, error.retryable) == (ErrorKind.UNAVAILABLE, True)
    assert_free(error)


@pytest.mark.parametrize(
    "body", [{}, {"input_tokens": None}, {"input_tokens": -1}, {"input_tokens": "9"}, [19], {"ok": True}]
)
async def test_a_whole_answer_without_a_count_is_free_and_not_worth_repeating(body):
    async with FaultServer(replying(body)) as provider, provider_service(provider) as service:
        error = await failed(service, "openai_responses")
    assert (error.kind, error.retryable, error.code.name) == (ErrorKind.UNAVAILABLE, False, "UNAVAILABLE")
    assert_free(error)


async def test_an_unreachable_provider_is_told_as_such():
    with NobodyListens() as nobody:
        provider = FaultServer()
        provider.port = int(nobody.url.rpartition(":")[2])
        async with provider_service(provider, timeouts=SHORT) as service:
            error = await failed(service, "anthropic")
    assert error.kind is ErrorKind.UNREACHABLE
    assert_free(error)


async def test_the_callers_deadline_ends_a_count():
    slow = Timeouts(first_byte=20, total=20)
    async with (
        FaultServer(Reply(silent=True, end="stall")) as provider,
        provider_service(provider, timeouts=slow) as service,
    ):
        error = await failed(service, "gemini", timeout=3)
        await provider.disconnected()
    assert (error.kind, error.code.name, error.cause.name) == (
        ErrorKind.UNAVAILABLE,
        "DEADLINE_EXCEEDED",
        "DEADLINE",
    )
    assert_free(error)


async def test_what_a_call_would_be_refused_for_a_count_is_refused_for_too():
    async with FaultServer() as provider, provider_service(provider) as service:
        error = await failed(service, "openai_responses", top_k=3, temperature=-1.0)
        assert provider.requests == []
    assert error.kind is ErrorKind.REFUSED
    assert {each.field for each in error.violations} == {"request.top_k", "request.temperature"}


async def test_an_unknown_model_is_not_found():
    async with FaultServer() as provider, provider_service(provider) as service:
        error = await failed(service, "nobody")
    assert isinstance(error, modelmeter.RefusedError)
    assert error.code.name == "NOT_FOUND"
