"""No secret leaves by a side door: logs at DEBUG, every exporter on, providers that echo. And the marker is found."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import structlog

import modelmeter
from modelmeter_server import app
from modelmeter_server.config import load
from modelmeter_server.core.events import to_json
from modelmeter_server.telemetry import log
from modelmeter_server.telemetry.bus import EventFilter
from tests.support import anthropic_events as said
from tests.support import responses_events as responses
from tests.support.collector import Collector, collecting
from tests.support.fault_server import FaultServer, Reply
from tests.support.socket_server import Reply as Turn
from tests.support.socket_server import SocketServer, answered, frames, socket_server
from tests.support.wire_bytes import Json, sse

PROMPT = "prompt-secret-kGq7VtXw"
KEY = "sk-ant-provider-key-0123456789abcdef"
HEADER = "header-secret-Zp4RmNcY"
ANSWER = "answer-secret-Lw9BsDfH"
MARKER = "marker-conversation-1"

CONFIG = """
[server]
log_level = "debug"
[ledger]
url = "none"
[telemetry]
tool_payloads = true
old_names = true
[telemetry.otlp]
endpoint = "http://{collector}"
insecure = true
interval = 0.2
[telemetry.prometheus]
listen = "127.0.0.1:0"
[providers.anthropic]
kind = "anthropic"
base_url = "{provider}"
api_key_env = "PLANTED_KEY"
[models.claude]
provider = "anthropic"
model = "claude-opus-5"
[providers.openai]
kind = "openai_responses"
base_url = "{sockets}"
api_key_env = "PLANTED_KEY"
[models.gpt]
provider = "openai"
model = "gpt-5.2"
"""


@dataclass
class Told:
    """Everything that a deployment told about its calls."""

    events: str = ""
    watched: str = ""
    queried: str = ""
    insights: str = ""
    spans: str = ""
    metrics: str = ""
    prometheus: str = ""
    log: str = ""
    errors: list[str] = field(default_factory=list)
    span_names: set[str] = field(default_factory=set)
    metric_names: set[str] = field(default_factory=set)

    def all(self) -> dict[str, str]:
        """Return each place with what it holds."""
        return {
            "events": self.events,
            "WatchEvents": self.watched,
            "QueryEvents": self.queried,
            "GetInsights": self.insights,
            "spans": self.spans,
            "metrics": self.metrics,
            "prometheus": self.prometheus,
            "log": self.log,
            "errors": "\n".join(self.errors),
        }


@pytest.fixture
def log_stream():
    """Log at DEBUG into a buffer; puts the logging of the process back afterwards."""
    handlers, level = logging.root.handlers[:], logging.root.level
    stream = io.BytesIO()
    log.configure_logging("debug", stream)
    yield stream
    structlog.reset_defaults()
    log._outputs.clear()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def echo(status: int) -> Reply:
    """An error whose body repeats everything that was sent."""
    message = f"bad request: {PROMPT}, x-api-key: {KEY}, Authorization: Bearer {KEY}"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return Reply(status, chunks=[json.dumps(error).encode()])


def answer() -> Reply:
    events = said.message(said.text_block(0, ANSWER))
    return Reply(headers={"content-type": "text/event-stream"}, chunks=[sse(*events)])


def searched() -> Reply:
    """An answer after a search, of which the provider and the model repeat what they were sent."""
    query = f"rivers {KEY} Authorization: Bearer {HEADER}"
    use: Json = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
    hit = {"type": "web_search_result", "title": f"{KEY} x-api-key: {HEADER}", "url": "https://a.example/"}
    found: Json = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [hit]}
    events = [
        said.start(),
        *(said.opened(0, **use), said.json_piece(0, json.dumps({"query": query})), said.closed(0)),
        *(said.opened(1, **found), said.closed(1)),
        *said.text_block(2, ANSWER),
        *(said.ended("end_turn", {"output_tokens": 20}), said.STOP),
    ]
    return Reply(headers={"content-type": "text/event-stream"}, chunks=[sse(*events)])


def cut() -> Reply:
    """An answer that breaks off in the middle of its text."""
    events = said.message(said.text_block(0, ANSWER))[:3]
    return Reply(headers={"content-type": "text/event-stream"}, chunks=[sse(*events)], end="reset")


REPLIES = [answer(), searched(), echo(400), echo(401), echo(500), cut()]
FAILING = 4
"""Of these."""


def echoing_frame() -> str:
    """An error frame that repeats what was sent."""
    message = f"bad request: {PROMPT}, Authorization: Bearer {KEY}"
    error = {"type": "invalid_request_error", "code": "invalid_request", "message": message}
    return json.dumps({"type": "error", "status": 400, "error": error})


def echoing_end() -> str:
    """A response that fails and repeats what was sent."""
    error = {"code": "server_error", "message": f"{PROMPT} {KEY}"}
    failed = responses.response(status="failed") | {"error": error}
    return json.dumps(responses.event("failed", response=failed))


TURNS = [
    Turn(answered("r1", ANSWER)),
    Turn([echoing_frame()]),
    Turn([*frames(responses.created()), echoing_end()]),
    Turn(answered("r4", ANSWER)[:4], reset=True),
]
"""What a socket says to the turns of a session."""


@asynccontextmanager
async def deployment(
    collector: Collector, provider: FaultServer, sockets: SocketServer, folder
) -> AsyncIterator[app.App]:
    file = folder / "modelmeter.toml"
    file.write_text(CONFIG.format(collector=collector.address, provider=provider.url, sockets=sockets.url))
    running = app.App(load(file, {"PLANTED_KEY": KEY}, listen=["127.0.0.1:0"]))
    try:
        yield running
    finally:
        await running.stop(0)


async def ask_all(address: str, told: Told) -> None:
    async with modelmeter.AsyncClient(address) as client:
        for _ in REPLIES:
            try:
                await client.complete(
                    "claude",
                    f"My password is {PROMPT}",
                    labels={"conversation_id": MARKER},
                    metadata={"authorization": f"Bearer {HEADER}", "x-api-key": HEADER},
                    timeout=10,
                )
            except modelmeter.ModelmeterError as error:
                told.errors.append(
                    f"{error} {error!r} {error.metadata if hasattr(error, 'metadata') else ''}"
                )


async def talk_all(address: str, told: Told) -> None:
    """Hold a session over a socket, and an emulated one."""
    headers = {"authorization": f"Bearer {HEADER}", "x-api-key": HEADER}
    async with modelmeter.AsyncClient(address) as client:
        for model, turns in (("gpt", len(TURNS)), ("claude", len(REPLIES))):
            async with client.session(
                model, conversation_id=MARKER, keep_transcript=True, metadata=headers
            ) as session:
                for _ in range(turns):
                    try:
                        await session.ask(f"My password is {PROMPT}", timeout=10)
                    except modelmeter.ModelmeterError as error:
                        told.errors.append(f"{error} {error!r}")


async def watch_all(client: modelmeter.AsyncClient, told: Told, watching: asyncio.Event) -> None:
    """Watch over EventService until the last session has ended."""
    ends = 0
    async with client.events.watch() as batches:
        watching.set()
        async for batch in batches:
            for event in batch.events:
                told.watched += f"{event!r} {event.proto}\n"
                ends += event.kind == "response.session_ended"
            if ends == 2:
                return


async def look_back(client: modelmeter.AsyncClient, told: Told) -> None:
    """Ask EventService what was."""
    told.queried = "\n".join([str(event.proto) async for event in client.events.recent()])
    told.insights = str((await client.events.insights()).proto)


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


@pytest.fixture
async def told(tmp_path, log_stream) -> Told:
    """Make a call and a turn for each reply and collect what was told of them."""
    told = Told()
    async with collecting() as collector, FaultServer() as provider, socket_server(*TURNS) as sockets:
        provider.script(REPLIES * 2)
        async with deployment(collector, provider, sockets, tmp_path) as running:
            (address,) = await running.start()
            async with modelmeter.AsyncClient(address) as client:
                watching = asyncio.Event()
                watcher = asyncio.ensure_future(watch_all(client, told, watching))
                await watching.wait()
                await ask_all(address, told)
                await talk_all(address, told)
                await watcher
                await look_back(client, told)
            everything = EventFilter(tenant="default")
            events = running.telemetry.bus.recent(everything, before=None, limit=10**6)
            told.events = "\n".join(to_json(event).decode() for event in events)
            assert running.exporters is not None
            told.prometheus = await asyncio.to_thread(fetch, running.exporters.prometheus_port)
        # What waits is sent when the deployment stops.
        told.spans = "\n".join(map(str, collector.traces))
        told.metrics = "\n".join(map(str, collector.metrics))
        told.span_names = {span.name for span in collector.spans()}
        told.metric_names = collector.metric_names()
    told.log = log_stream.getvalue().decode()
    return told


async def test_no_secret_is_told_anywhere_and_the_marker_is_found_where_it_belongs(told):
    for secret in (PROMPT, KEY, HEADER, ANSWER):
        leaks = [place for place, text in told.all().items() if secret in text]
        # A caller may read what the provider says of its own request, which repeats the caller's own words.
        allowed = ["errors"] if secret == PROMPT else []
        assert [place for place in leaks if place not in allowed] == [], secret
    for place in (told.events, told.watched, told.queried, told.insights, told.log):
        assert MARKER in place
    assert MARKER in told.spans
    assert MARKER not in told.metrics + told.prometheus
    for place in (told.events, told.watched, told.queried):
        assert "rivers [redacted] Authorization" in place
    assert len(told.errors) == 2 * FAILING + len(TURNS) - 1


async def test_every_place_was_looked_into(told):
    calls = 2 * len(REPLIES) + len(TURNS)
    for text in (told.watched, told.queried):
        assert text.count('kind: "prompt.started"') == calls
        assert text.count('kind: "response.turn_completed"') == len(REPLIES) + len(TURNS)
        assert text.count('kind: "response.session_ended"') == 2
    assert told.events.count('"prompt.started"') == calls
    assert f"calls: {calls}" in told.insights
    assert {"chat claude-opus-5", "chat gpt-5.2"} <= told.span_names
    assert {f"modelmeter.v1.ModelService/{method}" for method in ("Complete", "Session")} <= told.span_names
    assert {"gen_ai.client.inference.duration", "modelmeter.calls"} <= told.metric_names
    assert 'modelmeter_outcome="REFUSED"' in told.prometheus
    lines = [json.loads(line) for line in told.log.splitlines()]
    assert sum(line["event"] == "call" for line in lines) == calls
    assert sum(line["event"] == "response.session_ended" for line in lines) == 2
    own = [line for line in lines if line["event"] == "call" or line["event"].startswith("response.")]
    assert all(line["trace_id"] for line in own)
    assert all(line["call_id"] for line in own if line["event"] in ("call", "response.turn_completed"))
