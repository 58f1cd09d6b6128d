"""In front of a server that none of us wrote: the LiteLLM proxy, on all three of its routes, streamed and buffered."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import modelmeter
from modelmeter_server.app import running
from modelmeter_server.config import load
from tests.conformance.asking import Heard, ask
from tests.support.litellm_proxy import PROGRAM, TEXT, litellm_proxy

# One proxy for all: it takes a third of a gigabyte and seconds to start.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("litellm")]

CONFIG = """
[server]
listen = "127.0.0.1:0"
[providers.chat]
kind = "chat_completions"
base_url = "{url}/v1"
api_key_env = "KEY"
dialect = {{ base = "compatible" }}
[providers.messages]
kind = "anthropic"
base_url = "{url}"
api_key_env = "KEY"
[providers.responses]
kind = "openai_responses"
base_url = "{url}/v1"
api_key_env = "KEY"
"""
MODEL = """
[models."{provider}/{model}{suffix}"]
provider = "{provider}"
model = "{model}"
buffered = {buffered}
"""
PROVIDERS = ("chat", "messages", "responses")
MODELS = [bridge + mock for bridge in ("", "bridged-") for mock in ("plain", "calling", "busy", "broken")]
FACES = pytest.mark.parametrize("face", ["unary", "stream"])


def _config(url: str) -> str:
    return CONFIG.format(url=url) + "".join(
        MODEL.format(provider=provider, model=model, suffix=suffix, buffered=buffered)
        for provider in PROVIDERS
        for model in MODELS
        for suffix, buffered in (("", "false"), ("-buffered", "true"))
    )


@pytest.fixture(scope="module")
def proxy(tmp_path_factory) -> Iterator[str]:
    if not PROGRAM.exists():
        reason = "no LiteLLM proxy: `make litellm` installs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with litellm_proxy(tmp_path_factory.mktemp("litellm")) as url:
        yield url


@pytest.fixture
async def client(proxy: str, tmp_path: Path) -> AsyncIterator[modelmeter.AsyncClient]:
    file = tmp_path / "modelmeter.toml"
    file.write_text(_config(proxy), encoding="utf-8")
    async with (
        running(load(file, {"KEY": "sk-1"})) as addresses,
        modelmeter.AsyncClient(addresses[0], timeout=60) as client,
    ):
        yield client


@dataclass(frozen=True)
class Said:
    """What the proxy tells on one of its ways, and what we say it told."""

    model: str
    usage: tuple[int, int]
    stop: str
    text: str = TEXT


# The proxy makes figures up: a constant for each route when it mocks the route itself, others for whole mocked chat
# completions, and its own count of the words for streamed ones.
ANSWERS = [
    Said("chat/plain", (8, 10), "stop"),
    Said("chat/plain-buffered", (10, 20), "stop"),
    Said("chat/bridged-plain", (8, 10), "stop"),
    Said("chat/bridged-plain-buffered", (10, 20), "stop"),
    # Asked for a stream, it answers with a document; the first byte tells (R-H4).
    Said("messages/plain", (2095, 503), "end_turn"),
    Said("messages/plain-buffered", (2095, 503), "end_turn"),
    # Its translation tells zeros at the start and the figures at the end (R-U2).
    Said("messages/bridged-plain", (8, 10), "end_turn"),
    Said("messages/bridged-plain-buffered", (10, 20), "end_turn"),
    Said("responses/plain-buffered", (36, 87), "completed"),
    Said("responses/bridged-plain", (8, 10), "completed"),
    Said("responses/bridged-plain-buffered", (10, 20), "completed"),
]


def completion_of(heard: Heard) -> modelmeter.Completion:
    assert isinstance(heard.result, modelmeter.Completion), heard.result
    return heard.result


@FACES
@pytest.mark.parametrize("said", ANSWERS, ids=[said.model for said in ANSWERS])
async def test_an_answer_is_told_whole_with_its_exact_bill(client, face, said: Said):
    heard = await ask(client, face, said.model, "Hi")
    completion = completion_of(heard)
    assert completion.text == said.text
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == said.usage
    assert (completion.certainty.name, completion.stop_reason) == ("EXACT", said.stop)
    assert (completion.finish.name, completion.truncated) == ("STOP", False)
    if heard.streamed:
        assert heard.text == said.text


CALLS = [
    # Its mocks of whole answers have tool calls, its mocks of streams have none.
    "chat/calling-buffered",
    "chat/bridged-calling-buffered",
    "messages/bridged-calling-buffered",
    "responses/bridged-calling-buffered",
]


@FACES
@pytest.mark.parametrize("model", CALLS)
async def test_a_tool_call_is_told_with_its_arguments(client, face, model):
    look = modelmeter.Tool("look", parameters={"type": "object", "properties": {"at": {"type": "integer"}}})
    completion = completion_of(await ask(client, face, model, "Look.", tools=[look]))
    (call,) = completion.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "look", {"at": 1})
    assert (completion.text, completion.finish.name, completion.certainty.name) == (
        "I look.",
        "TOOL_CALLS",
        "EXACT",
    )


BUSY = [
    f"{route}{suffix}"
    for route in ("chat/busy", "messages/busy", "responses/bridged-busy")
    for suffix in ("", "-buffered")
]


@FACES
@pytest.mark.parametrize("model", BUSY)
async def test_a_throttled_call_is_free(client, face, model):
    heard = await ask(client, face, model, "Hi")
    error = heard.result
    assert isinstance(error, modelmeter.ModelmeterError)
    assert (error.kind.name, error.http_status, error.certainty.name) == ("RATE_LIMITED", 429, "NONE")


BROKEN = [
    "chat/broken",
    "chat/broken-buffered",
    "messages/broken",
    "messages/broken-buffered",
    "responses/bridged-broken-buffered",
    "responses/plain",  # it cannot stream its own mock: status 500 and an event
]


@FACES
@pytest.mark.parametrize("model", BROKEN)
async def test_a_broken_call_is_not_held_to_be_free(client, face, model):
    heard = await ask(client, face, model, "Hi")
    error = heard.result
    assert isinstance(error, modelmeter.ModelmeterError)
    assert (error.kind.name, error.http_status, error.certainty.name) == ("UNAVAILABLE", 500, "UNKNOWN")
