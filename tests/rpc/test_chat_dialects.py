"""A server that is declared in the configuration alone, over real sockets: what it is sent and how it is waited for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import modelmeter
from modelmeter_server.app import running
from modelmeter_server.config import load
from tests.support import chat_events as wire
from tests.support.fault_server import FaultServer, Reply
from tests.support.wire_bytes import sse

STREAM = {"content-type": "text/event-stream"}
CONFIG = """
[server]
listen = "127.0.0.1:0"
[providers.own]
kind = "chat_completions"
base_url = "{url}/gateway/v1"
api_key_env = "KEY"
timeouts = {{ idle = {idle}, tail = 0.2 }}
dialect = {{ base = "compatible", auth_header = "api-key", api_version = "2026-01-01", no_finish_reason = true }}
[models.m]
provider = "own"
model = "house"
"""


async def answer_of(folder: Path, provider: FaultServer, *, idle: float = 20) -> modelmeter.Completion:
    file = folder / "m.toml"
    file.write_text(CONFIG.format(url=provider.url, idle=idle))
    async with (
        running(load(file, {"KEY": "sk-1"})) as addresses,
        modelmeter.AsyncClient(addresses[0]) as client,
    ):
        return await client.complete("m", "Hi")


async def test_a_server_declared_in_the_configuration_alone_is_asked_in_its_dialect(tmp_path):
    quiet = sse(wire.text("Hello"), wire.usage(), wire.DONE)
    async with FaultServer(Reply(headers=STREAM, chunks=[quiet])) as provider:
        completion = await answer_of(tmp_path, provider)
        (request,) = provider.requests
    assert (completion.text, completion.stop_reason, completion.certainty.name) == ("Hello", "", "EXACT")
    assert request.target == "/gateway/v1/chat/completions?api-version=2026-01-01"
    assert request.headers["api-key"] == "sk-1"
    assert "authorization" not in request.headers


async def test_silence_after_the_finish_is_waited_for_no_longer_than_the_tail(tmp_path):
    """R-C3: the idle timeout of 20 s would fail the test's own."""
    silent = sse(wire.text("Hello"), wire.finish())
    begun = time.monotonic()
    async with FaultServer(Reply(headers=STREAM, chunks=[silent], end="stall")) as provider:
        completion = await answer_of(tmp_path, provider)
    assert (completion.text, completion.stop_reason, completion.certainty.name) == (
        "Hello",
        "stop",
        "UNKNOWN",
    )
    assert not completion.usage.told
    assert time.monotonic() - begun < 15


async def test_what_goes_on_after_a_stop_reason_has_its_time_again(tmp_path):
    """The tail's 0.2 s would end it early, as a completion that is none."""
    goes_on = [sse(wire.text("Hel"), wire.finish()), sse(wire.text("lo"))]
    begun = time.monotonic()
    async with FaultServer(Reply(headers=STREAM, chunks=goes_on, end="stall")) as provider:
        with pytest.raises(modelmeter.UnaccountedError) as caught:
            await answer_of(tmp_path, provider, idle=2)
    assert caught.value.cause.name == "IDLE_TIMEOUT"
    assert time.monotonic() - begun > 1.5
