"""Vertex AI with a service account, from the configuration to the answer, in both formats that it takes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import modelmeter
from modelmeter_server.app import running
from modelmeter_server.config import load
from tests.conformance.asking import ask
from tests.support import chat_events, gemini_chunks
from tests.support.fault_server import FaultServer, Reply
from tests.support.google_account import TOKEN, account_file, answer, token
from tests.support.wire_bytes import sse

CONFIG = """
[server]
listen = "127.0.0.1:0"
[providers.v]
kind = "{kind}"
base_url = "{url}/v1/projects/p/locations/l/{path}"
credentials = "google"
credentials_file = "account.json"
{dialect}
[models.m]
provider = "v"
model = "gemini-2.5-flash"
"""
DIALECTS = {"gemini": "", "chat_completions": 'dialect = { path = "/chat/completions" }'}
PATHS = {"gemini": "publishers/google", "chat_completions": "endpoints/openapi"}
TARGETS = {
    "gemini": "publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    "chat_completions": "endpoints/openapi/chat/completions",
}
STREAMS = {
    "gemini": sse(gemini_chunks.chunk(gemini_chunks.text("Hello"), finish="STOP", told=gemini_chunks.USAGE)),
    "chat_completions": sse(
        chat_events.text("Hello"), chat_events.finish(), chat_events.usage(), chat_events.DONE
    ),
}


@asynccontextmanager
async def vertex(folder: Path, kind: str, issued: Reply):
    """Serve one model of Vertex AI behind a token endpoint with this reply."""
    reply = Reply(headers={"content-type": "text/event-stream"}, chunks=[STREAMS[kind]])
    async with FaultServer(issued) as endpoint, FaultServer(reply) as provider:
        account_file(folder, endpoint.url)
        file = folder / "m.toml"
        file.write_text(CONFIG.format(kind=kind, url=provider.url, path=PATHS[kind], dialect=DIALECTS[kind]))
        async with (
            running(load(file, {})) as addresses,
            modelmeter.AsyncClient(addresses[0]) as client,
        ):
            yield provider, client


@pytest.mark.parametrize("kind", PATHS)
async def test_a_call_reaches_vertex_with_a_token(tmp_path, kind):
    async with vertex(tmp_path, kind, token()) as (provider, client):
        completion = await client.complete("m", "Hi")
    (request,) = provider.requests
    assert (completion.text, completion.certainty.name) == ("Hello", "EXACT")
    assert request.target == f"/v1/projects/p/locations/l/{TARGETS[kind]}"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("face", ["unary", "stream"])
async def test_a_caller_hears_that_the_deployments_account_is_no_good(tmp_path, face):
    async with vertex(tmp_path, "gemini", answer({"error": "invalid_grant"}, 401)) as (provider, client):
        heard = await ask(client, face, "m", "Hi")
    assert (heard.kind, heard.code) == ("REFUSED", "FAILED_PRECONDITION")
    assert (heard.result.certainty.name, provider.requests) == ("NONE", [])
