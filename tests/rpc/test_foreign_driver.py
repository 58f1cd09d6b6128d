"""A driver of another distribution, installed as its users install it, from the configuration to the bill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import modelmeter
from modelmeter_server.app import running
from modelmeter_server.config import load
from tests.support import ROOT
from tests.support.fault_server import FaultServer, Reply

# One worker, so that the example is built once.
pytestmark = pytest.mark.xdist_group("foreign_driver")

CONFIG = """
[server]
listen = "127.0.0.1:0"
[providers.aviary]
kind = "parrot"
base_url = "{url}"
api_key_env = "KEY"
settings = {{ voice = "loud" }}
[models.polly]
provider = "aviary"
model = "grey-2"
[models.polly.price]
currency = "USD"
input = "1"
output = "2"
[models.polly-whole]
provider = "aviary"
model = "grey-2"
buffered = true
"""
STREAM = {"content-type": "text/event-stream"}
WORDS = [b'event: word\ndata: {"text":"Hel"}\n\n', b'event: word\ndata: {"text":"lo"}\n\n']
FIRST_BILL = b'event: bill\ndata: {"bill":{"heard":7,"said":1}}\n\n'
END = b'event: end\ndata: {"why":"said"}\n\n'
LAST_BILL = b'event: bill\ndata: {"bill":{"heard":7,"said":3}}\n\n'


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Return a folder in which the example driver is installed, metadata and all."""
    folder = tmp_path_factory.mktemp("site")
    words = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(folder)]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        *words,
        str(ROOT / "tests/example_driver"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture
def installed(site, monkeypatch) -> None:
    """Let this process see the installed example."""
    monkeypatch.syspath_prepend(str(site))


@asynccontextmanager
async def front_door(folder: Path, *replies: Reply):
    """Serve the configuration in front of a provider that gives these replies."""
    file = folder / "m.toml"
    async with FaultServer(*replies) as provider:
        file.write_text(CONFIG.format(url=provider.url))
        async with (
            running(load(file, {"KEY": "sk-parrot-1"})) as addresses,
            modelmeter.AsyncClient(addresses[0]) as client,
        ):
            yield provider, client


def streamed(events: Sequence[bytes], **fields) -> Reply:
    return Reply(headers=STREAM, chunks=events, **fields)


async def test_a_configured_instance_of_a_foreign_kind_completes_and_is_billed(tmp_path, installed):
    events = [*WORDS, END, LAST_BILL]
    async with front_door(tmp_path, streamed(events)) as (provider, client):
        completion = await client.complete("polly", "Hi", seed=3)
        model = await client.model("polly")
        (request,) = provider.requests
    assert (completion.text, completion.certainty.name) == ("Hello", "EXACT")
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (7, 3)
    assert completion.cost is not None
    assert model.provider_kind == "parrot"
    assert (request.target, request.headers["x-parrot-key"]) == ("/v1/say", "sk-parrot-1")
    assert msgspec.json.decode(request.body)["voice"] == "loud"


async def test_its_buffered_answer_is_the_same(tmp_path, installed):
    body = b'{"text":"Hello","why":"said","bill":{"heard":7,"said":3}}'
    reply = Reply(headers={"content-type": "application/json"}, chunks=[body])
    async with front_door(tmp_path, reply) as (_, client):
        completion = await client.complete("polly-whole", "Hi")
    assert (completion.text, completion.usage.output_tokens) == ("Hello", 3)
    assert completion.certainty.name == "EXACT"


async def test_a_cut_answer_of_a_foreign_kind_bills_what_was_told(tmp_path, installed):
    async with front_door(tmp_path, streamed([FIRST_BILL, *WORDS], end="reset")) as (_, client):
        with pytest.raises(modelmeter.CallInterruptedError) as caught:
            await client.complete("polly", "Hi")
    assert caught.value.certainty.name == "AT_LEAST"
    assert (caught.value.usage.input_tokens, caught.value.usage.output_tokens) == (7, 1)


async def test_a_cut_without_a_bill_is_unaccounted(tmp_path, installed):
    async with front_door(tmp_path, streamed(WORDS, end="reset")) as (_, client):
        with pytest.raises(modelmeter.UnaccountedError):
            await client.complete("polly", "Hi")


async def test_the_driver_says_what_the_providers_own_status_means(tmp_path, installed):
    reply = Reply(status=460, chunks=[b'{"squawk":"full_cage"}'])
    async with front_door(tmp_path, reply) as (_, client):
        with pytest.raises(modelmeter.RateLimitedError) as caught:
            await client.complete("polly", "Hi")
    assert (caught.value.provider_code, caught.value.http_status) == ("full_cage", 460)


async def test_what_the_driver_cannot_do_is_refused_before_anything_is_sent(tmp_path, installed):
    async with front_door(tmp_path, streamed([END])) as (provider, client):
        with pytest.raises(modelmeter.RefusedError) as caught:
            await client.complete("polly", "Hi", system="Be brief.", temperature=0.5)
        assert not provider.requests
    assert "temperature" in str(caught.value)


async def test_the_deltas_of_a_foreign_kind_are_streamed(tmp_path, installed):
    async with (
        front_door(tmp_path, streamed([*WORDS, END, LAST_BILL])) as (_, client),
        client.stream("polly", "Hi") as stream,
    ):
        pieces = [event.text async for event in stream if isinstance(event, modelmeter.TextDelta)]
    assert "".join(pieces) == "Hello"
