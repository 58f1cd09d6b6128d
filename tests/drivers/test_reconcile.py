"""What providers tell of ended calls: OpenAI Responses and OpenRouter, over a real connection and from bytes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from modelmeter_server.config.secret import Secret
from modelmeter_server.core.dialects import COMPATIBLE, DIALECTS
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.drivers import chat_completions, openai_responses
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.lookup import EndedCall, LookupFailed, NotReconcilable
from modelmeter_server.drivers.wire_formats import wire_format

KEY = "sk-very-secret"
CALL = EndedCall(model="claude", response_id="resp_1", recoverable=True)
RECORD = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-5",
    "output": [],
    "usage": {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
    },
}
GENERATION = {
    "data": {
        "id": "gen-1",
        "total_cost": 0.0015,
        "tokens_prompt": 99,
        "native_tokens_prompt": 30,
        "native_tokens_completion": 7,
        "native_tokens_reasoning": 2,
        "native_tokens_cached": 10,
    }
}


@asynccontextmanager
async def answering(status: int, body: bytes):
    """Serve one answer to every request; yield the address and the requests."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body)) + body
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def driver(url: str, kind: str = "openai_responses", dialect: str = "") -> HttpDriver:
    wire = wire_format(kind, DIALECTS[dialect] if dialect else None)
    return HttpDriver("p", wire, Endpoint.parse(url), Secret(KEY))


async def ask(url: str, call: EndedCall = CALL, **which: str):
    found = driver(url, **which)
    try:
        return await found.reconcile(call)
    finally:
        await found.aclose()


async def test_openai_is_asked_for_the_stored_response_with_the_key():
    async with answering(200, json.dumps(RECORD).encode()) as (url, heard):
        told = await ask(url)
    assert heard[0].startswith(b"GET /v1/responses/resp_1 HTTP/1.1\r\n")
    assert f"authorization: Bearer {KEY}".encode() in heard[0]
    assert (told.usage.input_tokens, told.usage.output_tokens) == (30, 7)
    assert (told.usage.cache_read_tokens, told.usage.reasoning_tokens) == (10, 2)
    assert told.certainty is Certainty.EXACT


async def test_openrouter_is_asked_by_generation_id_and_tells_money():
    call = EndedCall(model="m", response_id="gen-1", recoverable=False)
    async with answering(200, json.dumps(GENERATION).encode()) as (url, heard):
        told = await ask(f"{url}/api/v1", call, kind="chat_completions", dialect="openrouter")
    assert heard[0].startswith(b"GET /api/v1/generation?id=gen-1 HTTP/1.1\r\n")
    assert (told.usage.input_tokens, told.usage.output_tokens) == (30, 7)
    assert (told.nano_units, told.certainty) == (1_500_000, Certainty.EXACT)


@pytest.mark.parametrize(("behind", "nanos"), [(0.03, 31_500_000), (None, None)])
async def test_openrouters_fee_for_an_own_key_is_not_the_whole_cost(behind: float | None, nanos: int | None):
    record = {"data": {**GENERATION["data"], "is_byok": True, "upstream_inference_cost": behind}}
    call = EndedCall(model="m", response_id="gen-1", recoverable=False)
    async with answering(200, json.dumps(record).encode()) as (url, _):
        told = await ask(f"{url}/api/v1", call, kind="chat_completions", dialect="openrouter")
    assert told.nano_units == nanos


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, Kind.RATE_LIMITED), (500, Kind.UNREACHABLE), (401, Kind.REFUSED), (302, Kind.REFUSED)],
)
async def test_a_refusal_to_tell_is_typed_and_quotes_nothing(status, kind):
    async with answering(status, f"you sent {KEY}".encode()) as (url, _):
        with pytest.raises(LookupFailed) as caught:
            await ask(url)
    assert caught.value.verdict.kind is kind
    assert KEY not in str(caught.value)


async def test_a_record_that_is_gone_cannot_be_reconciled():
    async with answering(404, b"") as (url, _):
        with pytest.raises(NotReconcilable, match="no record"):
            await ask(url)


async def test_nobody_at_the_address_is_unreachable():
    with pytest.raises(LookupFailed) as caught:
        await ask("http://127.0.0.1:1")
    assert caught.value.verdict.kind is Kind.UNREACHABLE


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (EndedCall(model="claude", response_id="resp_1", recoverable=False), "recoverable = true"),
        (EndedCall(model="claude", response_id="", recoverable=True), "before the provider told the id"),
        (
            EndedCall(model="claude", response_id="../files", recoverable=True),
            "before the provider told the id",
        ),
    ],
)
def test_openai_names_what_would_help(call, hint):
    with pytest.raises(NotReconcilable, match=hint):
        openai_responses.RECONCILER.target(call)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_response_that_still_generates_is_to_be_asked_for_later(status):
    with pytest.raises(NotReconcilable, match="ask again later"):
        openai_responses.RECONCILER.read(json.dumps({**RECORD, "status": status}).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"{}", b'{"data": 1}', b'{"data": {}}'])
def test_a_record_without_figures_tells_nothing(body):
    openrouter = chat_completions.reconciler(DIALECTS["openrouter"])
    assert openrouter is not None
    for reconciler in (openai_responses.RECONCILER, openrouter):
        with pytest.raises(NotReconcilable):
            reconciler.read(body)


def test_only_openrouter_keeps_records_among_compatible_servers():
    assert chat_completions.reconciler(COMPATIBLE) is None


async def test_a_kind_that_cannot_tell_says_so():
    with pytest.raises(NotReconcilable, match="kind anthropic"):
        await ask("http://127.0.0.1:1", kind="anthropic")


@pytest.mark.parametrize("recoverable", [False, True])
def test_a_recoverable_model_is_stored_and_runs_in_the_background(recoverable):
    model = ModelSpec(
        name="m",
        provider="p",
        provider_kind="openai_responses",
        provider_model="gpt-5",
        recoverable=recoverable,
    )
    request = CompletionRequest(model="m", call_id="c", text="Hi")
    body = json.loads(openai_responses.encode(request, model).body)
    assert body["store"] is recoverable
    assert body.get("background", False) is recoverable
    assert body["stream"] is True
