"""Signals in the middle of everything: streams, plain calls, sessions, and calls that wait for a connection.

Whatever was taken is answered, or cut when the time is up; what the provider was asked for is in the ledger, once.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import modelmeter
from modelmeter import Completion, ModelmeterError
from modelmeter.enums import Cause, Certainty
from modelmeter.errors import DrainingError, LostContactError, NotConnectedError
from tests.support.fault_server import FaultServer
from tests.support.ledger_truth import calls_when_ended, require_all_true, require_sums, told_by
from tests.support.logged_server import LoggedServer, logged_server
from tests.support.telling_provider import Plan, TellingProvider, drawn, prompt

CALLERS = 24
CONNECTIONS = 10
"""To the provider: more than half of the callers wait for one."""
REFUSED = (DrainingError, NotConnectedError, LostContactError)
"""What is told of calls that were not made. Contact is lost by those that reach a server while it closes; that the
provider knows nothing of them is what the tests hold them to."""

_TEXT = """
[server]
listen = "127.0.0.1:0"
drain_seconds = {drain}
reload_on_change = false
[ledger]
url = "sqlite:///ledger.db"
[providers.p]
kind = "anthropic"
base_url = "{url}"
api_key_env = "KEY"
timeouts = {{ idle = {idle}, pool = 30 }}
limits = {{ connections = {connections} }}
[models.m]
provider = "p"
model = "m-test"
price = {{ currency = "USD", input = "{price}", output = "2" }}
"""


@dataclass
class Load:
    """Callers that ask one call after the other until they are refused."""

    provider: TellingProvider
    address: str
    heard: dict[str, Completion | ModelmeterError] = field(default_factory=dict)

    async def run(self) -> None:
        """Return when every caller has been refused."""
        async with modelmeter.AsyncClient(self.address, ask_ledger=0) as client:
            faces = (self._complete, self._stream, self._turn)
            await asyncio.gather(*(self._call_on(client, faces[number % 3]) for number in range(CALLERS)))

    async def _call_on(self, client, ask) -> None:
        while True:
            call_id = str(uuid.uuid4())
            try:
                self.heard[call_id] = await ask(client, call_id)
            except ModelmeterError as error:
                self.heard[call_id] = error
                if isinstance(error, REFUSED) or error.cause is Cause.DRAIN:
                    return

    async def _complete(self, client: modelmeter.AsyncClient, call_id: str) -> Completion:
        return await client.complete("m", prompt(call_id), call_id=call_id)

    async def _stream(self, client: modelmeter.AsyncClient, call_id: str) -> Completion:
        async with client.stream("m", prompt(call_id), call_id=call_id) as stream:
            async for _ in stream:
                pass
        return stream.completion

    async def _turn(self, client: modelmeter.AsyncClient, call_id: str) -> Completion:
        async with client.session("m") as session:
            return await (await session.turn(prompt(call_id), call_id=call_id)).result()

    async def require_truth(self, file: Path) -> None:
        """Hold the ledger, as another server finds it, against the provider and against what was told."""
        async with (
            logged_server(*_options(file), env={"KEY": "k"}) as server,
            modelmeter.AsyncClient(server.address) as client,
        ):
            rows = await calls_when_ended(client, self.provider.books)
            require_all_true(rows, self.provider.books)
            await require_sums(client, rows)
        for call_id, heard in self.heard.items():
            if isinstance(heard, REFUSED):
                assert call_id not in self.provider.books, heard
                assert call_id not in rows or rows[call_id].certainty is Certainty.NONE
            elif call_id in rows:
                told = (heard.certainty, told_by(heard.usage))
                assert told == (rows[call_id].certainty, told_by(rows[call_id].usage)), (heard, rows[call_id])
            else:
                assert heard.certainty is Certainty.NONE, heard


def _options(file: Path) -> tuple[str, str]:
    return "--config", str(file)


def write(file: Path, url: str, *, drain: float = 20, idle: float = 20, price: int = 1) -> None:
    text = _TEXT.format(url=url, drain=drain, idle=idle, price=price, connections=CONNECTIONS)
    file.write_text(text)


@asynccontextmanager
async def loaded(
    folder: Path, provider: TellingProvider
) -> AsyncIterator[tuple[LoggedServer, FaultServer, Load, asyncio.Task[None]]]:
    """Serve in front of the provider with all callers at work."""
    async with FaultServer(provider) as upstream:
        write(folder / "m.toml", upstream.url)
        async with logged_server(*_options(folder / "m.toml"), env={"KEY": "k"}) as server:
            load = Load(provider, server.address)
            callers = asyncio.create_task(load.run())
            await upstream.received(CALLERS * 2)
            yield server, upstream, load, callers


async def test_signals_under_load_break_no_call_and_lose_no_bill(tmp_path):
    provider = TellingProvider(lambda call_id: drawn(call_id, slowest=0.03))
    async with loaded(tmp_path, provider) as (server, upstream, load, callers):
        for number in range(1, 5):
            # Another driver each time; every second time another price as well.
            write(tmp_path / "m.toml", upstream.url, idle=20 + number, price=1 + number // 2)
            server.send(signal.SIGHUP)
            line = await server.told("the configuration was reloaded", count=number)
            assert "providers.p.timeouts" in line["changed"]
            await upstream.received(len(upstream.requests) + CALLERS)
        server.send(signal.SIGTERM)
        draining = await server.told("draining")
        await callers
        assert await server.process.wait() == 0
        await load.require_truth(tmp_path / "m.toml")
    assert draining["calls"] > 0
    assert server.find("stopped", cut=0)
    answers = [each for each in load.heard.values() if isinstance(each, Completion)]
    assert len(answers) == provider.requests
    assert {each.certainty for each in answers} == {Certainty.EXACT}
    assert all(isinstance(each, (Completion, *REFUSED)) for each in load.heard.values())


def _endless(call_id: str) -> Plan:
    """Tell some figures and fall silent, so that only the end of the drain ends the call."""
    plan = drawn(call_id)
    return Plan(plan.input, plan.outputs, steps=len(plan.outputs), end="stall")


async def test_a_drain_that_runs_out_under_load_leaves_every_bill_in_the_ledger(tmp_path):
    provider = TellingProvider(_endless)
    async with FaultServer(provider) as upstream:
        write(tmp_path / "m.toml", upstream.url, drain=0.5)
        async with logged_server(*_options(tmp_path / "m.toml"), env={"KEY": "k"}) as server:
            load = Load(provider, server.address)
            callers = asyncio.create_task(load.run())
            await upstream.received(CONNECTIONS)
            server.send(signal.SIGTERM)
            await callers
            assert await server.process.wait() == 0
            await load.require_truth(tmp_path / "m.toml")
    sent = [load.heard[call_id] for call_id in provider.books]
    assert len(sent) == CONNECTIONS
    assert all(isinstance(each, ModelmeterError) and each.cause is Cause.DRAIN for each in sent)
    assert {each.certainty for each in sent} == {Certainty.AT_LEAST}
