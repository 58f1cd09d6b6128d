"""One of two targets dies, then stalls, then recovers, with 64 calls in flight: what callers and books say of it."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import modelmeter
from modelmeter.enums import ErrorKind, Stage
from modelmeter.records import LedgerCall
from modelmeter_server.core.models import Strategy
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.engine.breaker import BreakerRules, State
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.fault_server import FaultServer
from tests.support.ledger_truth import calls_when_ended, require_all_true
from tests.support.ledgers import ledger_in, until
from tests.support.routed_service import ROUTED, RoutedService, routed_service
from tests.support.telling_provider import Served, TellingProvider, drawn, prompt
from tests.support.unreliable_way import UnreliableWay

CALLERS = 64
RULES = BreakerRules(failures=5, open_seconds=0.2, most_open_seconds=0.5, probes=2)
TIMEOUTS = Timeouts(pool=10, connect=2, write=5, first_byte=1.5, idle=1.5, tail=1.5, total=20)
LANDED = (ErrorKind.INTERRUPTED, ErrorKind.UNACCOUNTED)


@dataclass
class Scene:
    """Two providers with their books, the way to the first one, and callers who ask without pause."""

    service: RoutedService
    way: UnreliableWay
    providers: tuple[TellingProvider, TellingProvider]
    errors: list[modelmeter.ModelmeterError] = field(default_factory=list)
    answers: int = 0
    is_over: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.service.targets.find("a/m").seen

    async def callers(self) -> None:
        """Ask until the scene is over, every other time for a stream."""
        for number in itertools.count():
            if self.is_over:
                return
            call_id = str(uuid.uuid4())
            try:
                await self._ask(call_id, is_streamed=number % 2 == 1)
                self.answers += 1
            except modelmeter.ModelmeterError as error:
                self.errors.append(error)

    async def _ask(self, call_id: str, *, is_streamed: bool) -> None:
        if not is_streamed:
            await self.service.client.complete(ROUTED, prompt(call_id), call_id=call_id, timeout=20)
            return
        async with self.service.client.stream(ROUTED, prompt(call_id), call_id=call_id, timeout=20) as stream:
            async for _ in stream:
                pass

    async def end(self) -> dict[str, LedgerCall]:
        """Let every caller hear the end of its last call, and return what the ledger has then."""
        self.is_over = True
        await asyncio.gather(*self.tasks)
        return await calls_when_ended(self.service.client, self.books())

    async def more_answers(self, count: int = 2 * CALLERS) -> None:
        """Wait until so many more calls were answered."""
        wanted = self.answers + count
        await until(lambda: self.answers >= wanted)

    async def more_of_the_first(self, count: int = CALLERS) -> None:
        wanted = self.providers[0].requests + count
        await until(lambda: self.providers[0].requests >= wanted)

    def books(self) -> Mapping[str, Served]:
        """Return the books of both providers together."""
        books: dict[str, Served] = {}
        for provider in self.providers:
            for call_id, served in provider.books.items():
                known = books.setdefault(call_id, Served())
                known.requests += served.requests
                known.told += served.told
                known.stopped = known.stopped or served.stopped
        return books


@asynccontextmanager
async def scene(folder: Path, policy: RetryPolicy, telemetry: Telemetry) -> AsyncIterator[Scene]:
    """Serve, and have all callers ask."""
    providers = tuple(TellingProvider(lambda call_id: drawn(call_id, slowest=0.005)) for _ in range(2))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        a, b = [await enter(FaultServer(each)) for each in providers]
        way = await enter(UnreliableWay(a.port))
        ledger = await enter(ledger_in(folder))
        service = await enter(
            routed_service(
                {"a": way.url, "b": b.url},
                strategy=Strategy.LEAST_LOADED,
                rules=RULES,
                timeouts=TIMEOUTS,
                retry=policy,
                ledger=ledger,
                telemetry=telemetry,
            )
        )
        found = Scene(service, way, (providers[0], providers[1]))
        async with asyncio.TaskGroup() as group:
            found.tasks = [group.create_task(found.callers()) for _ in range(CALLERS)]
            yield found
            found.is_over = True


async def play(acting: Scene) -> None:
    """Let the first target serve, die, stall and recover, each long enough to be noticed."""
    await acting.more_of_the_first()
    await acting.way.die()
    await until(lambda: acting.state is State.OPEN)
    await acting.more_answers()
    await acting.way.stall()
    await acting.more_answers(4 * CALLERS)
    await acting.way.recover()
    await until(lambda: acting.state is State.CLOSED)
    await acting.more_of_the_first()


def changes(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    read = {each.described.name: each.points for each in telemetry.meters.read()}
    return {point.values: point.value for point in read["modelmeter.target.changes"]}


def require_bounded(acting: Scene, counted: dict[tuple[str, ...], float]) -> None:
    """Hold the scene against what breakers promise."""
    # Those in flight when it died, those when it stalled, and the few that tried whether it works again.
    assert len(acting.errors) <= 2 * CALLERS + 50
    assert counted["a/m", "OPEN"] >= 1
    assert counted["a/m", "CLOSED"] >= 1
    assert not any(target == "b/m" for target, _ in counted)


async def test_callers_lose_only_what_no_other_target_could_serve_and_every_bill_is_the_providers(tmp_path):
    telemetry = Telemetry()
    async with scene(tmp_path, RetryPolicy(max_attempts=2), telemetry) as acting:
        await play(acting)
        rows = await acting.end()
        require_all_true(rows, acting.books())
    for error in acting.errors:
        # It may have generated: a second request might have been a second bill.
        assert error.stage not in (Stage.NOT_WRITTEN, Stage.WRITING)
        assert error.kind in LANDED or (error.kind is ErrorKind.UNAVAILABLE and not error.retryable)
    require_bounded(acting, changes(telemetry))


async def test_where_two_bills_are_accepted_callers_lose_only_what_had_generated_and_both_are_booked(
    tmp_path,
):
    telemetry = Telemetry()
    async with scene(tmp_path, RetryPolicy(max_attempts=2, ambiguous=True), telemetry) as acting:
        await play(acting)
        rows, books = await acting.end(), acting.books()
    twice = {call_id for call_id, served in books.items() if served.requests == 2}
    once = {call_id: served for call_id, served in books.items() if call_id not in twice}
    require_all_true({call_id: row for call_id, row in rows.items() if call_id not in twice}, once)
    for call_id in twice:
        assert rows[call_id].attempts_total >= 2
        assert rows[call_id].booking.unsettled.tokens > 0  # what the first request may have cost
        assert rows[call_id].booking.held.tokens == 0
    assert {error.kind for error in acting.errors} <= set(LANDED)
    require_bounded(acting, changes(telemetry))
