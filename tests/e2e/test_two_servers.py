"""Two server processes on one database: a ceiling is not overshot by an instant, and an effect is bought once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import modelmeter
from modelmeter import Effect
from modelmeter.errors import CeilingError
from modelmeter.results import Standing
from modelmeter_server.core.reservation import BYTES_PER_TOKEN, FRAME_TOKENS
from tests.support.fault_server import FaultServer
from tests.support.server_process import configuration, server_process
from tests.support.telling_provider import Plan, TellingProvider, prompt

OUTPUT = 400
INPUT = -(-len(prompt(str(uuid.uuid4()))) // BYTES_PER_TOKEN) + FRAME_TOKENS
WORTH = INPUT + OUTPUT
"""What is held for a call; a refusal says the same."""
CALLS_WORTH = 100


@dataclass
class Pair:
    """Two servers, a client of each, and the provider behind both."""

    provider: TellingProvider
    clients: tuple[modelmeter.AsyncClient, modelmeter.AsyncClient]
    standings: list[Standing] = field(default_factory=list)
    """What the ceiling's window held at many instants."""

    async def complete(self, number: int, **options: Any) -> modelmeter.Completion:
        """Ask one of the two."""
        call_id = str(uuid.uuid4())
        return await self.clients[number % 2].complete(
            "m", prompt(call_id), call_id=call_id, max_output_tokens=OUTPUT, **options
        )

    @asynccontextmanager
    async def bounded(self, tokens: int) -> AsyncIterator[None]:
        """Set a ceiling, and look at where it stands as often as can be inside this block and once after it."""
        ceiling = await self.clients[0].ledger.set_ceiling("tenant", tokens=tokens)
        watching = asyncio.create_task(self._watch(ceiling.ceiling_id))
        yield
        watching.cancel()
        await asyncio.wait([watching])
        await self._look(ceiling.ceiling_id)

    async def _watch(self, ceiling_id: str) -> None:
        while True:
            await self._look(ceiling_id)

    async def _look(self, ceiling_id: str) -> None:
        ceiling = await self.clients[1].ledger.ceiling(ceiling_id)
        self.standings += ceiling.standings


@asynccontextmanager
async def pair(folder: Path, ledger_url: str, plan: Plan) -> AsyncIterator[Pair]:
    """Start both in front of a provider that does the same for every call."""
    provider = TellingProvider(lambda _: plan)
    async with FaultServer(provider) as upstream:
        file = configuration(folder, upstream.url, ledger_url, lease=10)
        async with (
            server_process(file) as one,
            server_process(file) as other,
            modelmeter.AsyncClient(one.address) as left,
            modelmeter.AsyncClient(other.address) as right,
        ):
            yield Pair(provider, (left, right))


def require_never_above(standings: list[Standing], allowed: int) -> None:
    """Hold every look against the ceiling."""
    assert len(standings) > 3
    assert max(each.settled + each.held + each.unsettled for each in standings) <= allowed


two_starts = pytest.mark.timeout(120)  # beside seven other things


@two_starts
async def test_of_four_hundred_calls_at_once_exactly_as_many_are_served_as_a_ceiling_has_room_for(
    ledger_url: str, tmp_path: Path
):
    allowed = CALLS_WORTH * WORTH
    async with pair(tmp_path, ledger_url, Plan(INPUT, (OUTPUT // 2, OUTPUT))) as servers:
        async with servers.bounded(allowed):
            asked = (servers.complete(number) for number in range(400))
            heard = await asyncio.gather(*asked, return_exceptions=True)
        served = [each for each in heard if isinstance(each, modelmeter.Completion)]
        refused = [each for each in heard if isinstance(each, CeilingError)]
    assert (len(served), len(refused)) == (CALLS_WORTH, 300)
    assert servers.provider.requests == CALLS_WORTH
    assert all(each.settled for each in served)
    assert {standing.asked for each in refused for standing in each.standings} == {WORTH}
    require_never_above(servers.standings, allowed)
    last = servers.standings[-1]
    assert (last.settled, last.held, last.unsettled) == (allowed, 0, 0)


class Patience:
    """Callers that try again whenever another call has ended, as long as one is under way."""

    def __init__(self, servers: Pair) -> None:
        self._servers = servers
        self._ended = asyncio.Event()
        self._under_way = 0

    async def ask(self, number: int) -> bool:
        """Ask until served, or until nothing can make room any more; say which."""
        while True:
            ended = self._ended
            self._under_way += 1
            try:
                await self._servers.complete(number)
            except CeilingError:
                self._under_way -= 1
                if not self._under_way:
                    self._tell()
                    return False
            else:
                self._under_way -= 1
                self._tell()
                return True
            if not self._under_way:
                return False
            await ended.wait()

    def _tell(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()


@two_starts
async def test_callers_that_try_again_use_up_a_ceiling_when_calls_use_a_tenth_of_what_they_hold(
    ledger_url: str, tmp_path: Path
):
    allowed, tenth = CALLS_WORTH * WORTH, WORTH // 10
    async with pair(tmp_path, ledger_url, Plan(tenth // 2, (tenth - tenth // 2,))) as servers:
        patience, waiting, served = Patience(servers), iter(range(1000)), 0

        async def one_after_another() -> int:
            return sum([await patience.ask(number) for number in waiting])

        async with servers.bounded(allowed):
            served = sum(await asyncio.gather(*(one_after_another() for _ in range(150))))
    assert 900 <= served <= 1000
    assert servers.provider.requests == served
    require_never_above(servers.standings, allowed)
    last = servers.standings[-1]
    assert (last.settled, last.held, last.unsettled) == (served * tenth, 0, 0)


@two_starts
async def test_an_effect_that_two_clients_want_at_once_from_two_servers_is_bought_once(
    ledger_url: str, tmp_path: Path
):
    async with pair(tmp_path, ledger_url, Plan(INPUT, (10, 20), pause=0.05)) as servers:

        async def want(number: int) -> list[modelmeter.Completion]:
            key, words = Effect("run", f"effect-{number}"), prompt(str(uuid.uuid4()))
            return await asyncio.gather(
                *(client.complete("m", words, effect=key) for client in servers.clients)
            )

        answers = await asyncio.gather(*(want(number) for number in range(50)))
    assert servers.provider.requests == 50
    for one, other in answers:
        assert (one.text, one.usage, one.call_id) == (other.text, other.usage, other.call_id)
        assert {one.replayed, other.replayed} == {True, False}
