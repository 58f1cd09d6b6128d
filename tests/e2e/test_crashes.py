"""Servers that are killed in mid-flight: whoever comes after them finds every call, once, with a true bill.

Each test kills five servers one after the other, on one database. `make crash` kills 200, the suite 20.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

import modelmeter
from modelmeter import Completion, ModelmeterError
from modelmeter.errors import LedgerDownError, LostContactError
from tests.conftest import DATABASES
from tests.support.fault_server import FaultServer
from tests.support.ledger_truth import (
    calls_of,
    calls_when_ended,
    require_all_true,
    require_as_told,
    require_sums,
    told_by,
    was_given_up,
)
from tests.support.server_process import ServerProcess, configuration, server_process
from tests.support.telling_provider import Plan, TellingProvider, Told, drawn, prompt

MOMENTS = ("any", "reply", "any", "any", "sight")
"""When the servers of one test are killed."""
KILLS = len(MOMENTS)
CALLS = 12
SLOWEST = 0.25
"""Seconds between two steps of an answer: some are longer than the time between two checkpoints, some are not."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make as many tests as were asked for."""
    if "seed" in metafunc.fixturenames:
        crashes = metafunc.config.getoption("crashes")
        seeds = -(-crashes // (KILLS * len(DATABASES)))
        metafunc.parametrize("seed", range(seeds))


def slowly(call_id: str) -> Plan:
    """Return what is done about a call: a quarter of them stop in the middle and stay silent."""
    plan, random = drawn(call_id, slowest=SLOWEST), Random(f"silence {call_id}")
    if random.random() < 0.75:
        return plan
    return replace(plan, steps=random.randint(1, len(plan.outputs)), end="stall")


@dataclass
class Crash:
    """One server's life: calls, a look at the ledger now and then, and a sudden end."""

    random: Random
    provider: TellingProvider
    heard: dict[str, Completion | ModelmeterError] = field(default_factory=dict)
    seen: dict[str, Told] = field(default_factory=dict)
    """The last figure of a call under way that anybody saw in the ledger."""

    given_up: set[str] = field(default_factory=set)
    """Calls whose server was late for its lease, a second, before it was killed: a busy machine does that."""

    def __post_init__(self) -> None:
        self.call_ids = [str(uuid.UUID(int=self.random.getrandbits(128), version=4)) for _ in range(CALLS)]
        self._replies = asyncio.Semaphore(0)
        self._sighted = asyncio.Event()

    async def happen(self, server: ServerProcess, moment: str) -> None:
        """Run into it: at any time, after a `reply`, or at the `sight` of the last figure that a call told."""
        async with modelmeter.AsyncClient(server.address, ask_ledger=0) as client:
            asking = [asyncio.create_task(self._ask(client, call_id)) for call_id in self.call_ids]
            watching = asyncio.create_task(self._watch(client))
            await self._until(moment)
            await server.kill()
            await asyncio.gather(*asking, watching)

    async def _until(self, moment: str) -> None:
        if moment == "reply":
            for _ in range(self.random.randint(1, 3)):
                await self._replies.acquire()
        elif moment == "sight":
            await self._sighted.wait()
        else:
            await asyncio.sleep(self.random.uniform(0.05, 1.2))

    async def _ask(self, client: modelmeter.AsyncClient, call_id: str) -> None:
        try:
            async with client.stream("m", prompt(call_id), call_id=call_id) as stream:
                async for _ in stream:
                    pass
            self.heard[call_id] = stream.completion
        except (LostContactError, LedgerDownError):
            return  # nothing was told, or nothing was sent
        except ModelmeterError as error:
            self.heard[call_id] = error
        self._replies.release()

    async def _watch(self, client: modelmeter.AsyncClient) -> None:
        try:
            while True:
                for call_id, row in (await calls_of(client)).items():
                    if call_id in self.call_ids and row.usage.input_tokens is not None:
                        self._sight(call_id, told_by(row.usage))
        except ModelmeterError:
            pass  # the server is dead

    def _sight(self, call_id: str, figure: Told) -> None:
        self.seen[call_id] = figure
        told, silent_after = self.provider.books[call_id].told, self.provider.planned(call_id).steps
        if len(told) == silent_after and figure == told[-1]:
            self._sighted.set()

    async def require_truth(self, client: modelmeter.AsyncClient) -> int:
        """Hold the ledger against everybody's memory; return how many figures were seen and had to stay."""
        sent = [call_id for call_id in self.call_ids if call_id in self.provider.books]
        rows = await calls_when_ended(client, sent)
        require_all_true(rows, self.provider.books)
        await require_sums(client, rows)
        for call_id, heard in self.heard.items():
            require_as_told(rows[call_id], heard)
            if was_given_up(rows[call_id]):
                self.given_up.add(call_id)
        stayed = 0
        for call_id, figure in self.seen.items():
            told = self.provider.books[call_id].told
            assert told.index(told_by(rows[call_id].usage)) >= told.index(figure)
            stayed += told[-1] == figure
        return stayed

    async def require_no_second_purchase(self, client: modelmeter.AsyncClient) -> None:
        """Ask for everything once more."""
        self.provider.hurried = True
        again = [client.complete("m", prompt(call_id), call_id=call_id) for call_id in self.call_ids]
        answers = await asyncio.gather(*again, return_exceptions=True)
        self.provider.hurried = False
        for call_id, answer in zip(self.call_ids, answers, strict=True):
            assert isinstance(answer, Completion | ModelmeterError), answer
            assert self.provider.books[call_id].requests <= 1 if call_id in self.provider.books else True
            if isinstance(self.heard.get(call_id), Completion) and call_id not in self.given_up:
                assert isinstance(answer, Completion)
                assert answer.replayed


@pytest.fixture
async def told() -> AsyncIterator[tuple[TellingProvider, FaultServer]]:
    """Return a provider that takes its time."""
    provider = TellingProvider(slowly)
    async with FaultServer(provider) as server:
        yield provider, server


@pytest.mark.timeout(240)  # ten starts of a server beside seven other things
async def test_a_server_that_is_killed_leaves_every_call_once_with_a_true_bill(
    seed: int, ledger_url: str, told: tuple[TellingProvider, FaultServer], tmp_path: Path
):
    provider, upstream = told
    random = Random(f"{seed} {ledger_url.partition(':')[0]}")
    file = configuration(tmp_path, upstream.url, ledger_url)
    stayed = 0
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(file))
        for moment in MOMENTS:
            crash = Crash(random, provider)
            await crash.happen(server, moment)
            server = await stack.enter_async_context(server_process(file))
            async with modelmeter.AsyncClient(server.address) as client:
                stayed += await crash.require_truth(client)
                await crash.require_no_second_purchase(client)
    assert stayed > 0
