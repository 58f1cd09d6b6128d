"""Gemini over a socket: where a request goes, and where its key does not."""

from __future__ import annotations

import pytest

from modelmeter_server.config.secret import Secret
from modelmeter_server.core.answers import FREE_TEXT, Answer
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support import gemini_chunks as wire
from tests.support.completion_requests import GEMINI, ask, model_of
from tests.support.fault_server import FaultServer, Reply
from tests.support.wire_bytes import body

VERTEX = "/v1/projects/p/locations/europe-west4"
STREAM = "streamGenerateContent?alt=sse"


class Unheard:
    """An observer that does not listen."""

    def dispatching(self, number: int, target: str) -> None: ...

    def written(self) -> None: ...

    def progressed(self) -> None: ...


async def call(server: FaultServer, base: str, key: str, **model: str) -> object:
    driver = HttpDriver("g", WIRE_FORMATS[GEMINI], Endpoint.parse(server.url + base), Secret(key))
    spec = model_of(GEMINI, **model)
    try:
        prepared = driver.prepare(ask("Hi"), spec)
        return await driver.start(prepared, spec, FREE_TEXT, Unheard(), deltas=False).run()
    finally:
        await driver.aclose()


@pytest.mark.parametrize(
    ("base", "model", "target"),
    [
        ("", "m", f"/v1beta/models/m:{STREAM}"),
        ("/v1beta", "m", f"/v1beta/models/m:{STREAM}"),
        ("/v1alpha", "m", f"/v1alpha/models/m:{STREAM}"),
        (f"{VERTEX}/publishers/google", "m", f"{VERTEX}/publishers/google/models/m:{STREAM}"),
        (VERTEX, "endpoints/123", f"{VERTEX}/endpoints/123:{STREAM}"),
        ("/v1/projects/p/gateway", "m", f"/v1/projects/p/gateway/v1beta/models/m:{STREAM}"),
    ],
)
async def test_the_version_is_said_once_wherever_the_api_stands(base, model, target):
    async with FaultServer(Reply(chunks=[wire.stream(wire.text("Hello"))])) as server:
        result = await call(server, base, "AIza-key", provider_model=model)
    assert isinstance(result, Answer)
    (request,) = server.requests
    assert request.target == target
    assert request.headers["x-goog-api-key"] == "AIza-key"
    assert "authorization" not in request.headers


async def test_a_token_is_sent_as_a_bearers_and_scrubbed_from_what_the_provider_says():
    error = wire.error(400, "INVALID_ARGUMENT", message="bad token ya29.secret")
    async with FaultServer(Reply(status=400, chunks=[body(error)])) as server:
        failed = await call(server, "", "ya29.secret")
    assert server.requests[0].headers["authorization"] == "Bearer ya29.secret"
    assert "ya29.secret" not in server.requests[0].target
    assert "ya29.secret" not in repr(failed.message)  # type: ignore[attr-defined]
    assert "[redacted]" in failed.message  # type: ignore[attr-defined]
