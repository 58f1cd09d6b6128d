"""A thousand calls that end badly at any moment, 64 at a time: each is in the ledger, with a true bill.

What a caller was told is durable by then: the server is killed right after the last reply, and the next one knows all.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

import modelmeter
from modelmeter import Completion, ModelmeterError
from tests.support.fault_server import End, FaultServer
from tests.support.ledger_truth import calls_when_ended, require_all_true, require_as_told, require_sums
from tests.support.server_process import configuration, server_process
from tests.support.telling_provider import Plan, TellingProvider, drawn, prompt

CALLS = 500
"""On each of two databases."""
AT_ONCE = 64
SLOWEST = 0.03
IDLE = 0.4
"""Seconds after which the server takes a silent provider for gone."""
LEASE = 4
"""Seconds. Longer than a busy machine makes a server wait for its turn, shorter than a test may take."""
KILLED_TOGETHER = 20
"""Calls of one client process that is killed."""

BREAKS: dict[str, End] = {"cut": "truncate", "reset": "reset", "stall": "stall"}
WAYS = ("cancel", "leave", "deadline", *BREAKS)


def ending_of(call_id: str) -> str:
    """Return how a call ends, drawn from its id."""
    return Random(f"end {call_id}").choice(WAYS)


def planned(call_id: str) -> Plan:
    """Return what the provider does: break off in the middle where that is how the call ends."""
    plan, way = drawn(call_id, slowest=SLOWEST), ending_of(call_id)
    if way not in BREAKS:
        return plan
    steps = Random(f"steps {call_id}").randrange(len(plan.outputs) + 2)
    return replace(plan, steps=steps, end=BREAKS[way])


def moment(call_id: str) -> float:
    """Return after how many seconds a caller has had enough."""
    return Random(f"moment {call_id}").uniform(0.0, 0.3)


@dataclass
class Crowd:
    """The callers, and what they heard before they left."""

    client: modelmeter.AsyncClient
    address: str
    heard: dict[str, Completion | ModelmeterError] = field(default_factory=dict)

    async def ask(self, call_id: str) -> None:
        """Make one call end in its way."""
        act: Callable[[str], Awaitable[None]] = getattr(self, f"_{ending_of(call_id)}", self._hear)
        await act(call_id)

    async def _hear(self, call_id: str, timeout: float = 30) -> None:
        unary = Random(f"face {call_id}").random() < 0.5
        try:
            if unary:
                heard = await self.client.complete("m", prompt(call_id), call_id=call_id, timeout=timeout)
            else:
                async with self.client.stream(
                    "m", prompt(call_id), call_id=call_id, timeout=timeout
                ) as stream:
                    async for _ in stream:
                        pass
                heard = stream.completion
        except ModelmeterError as error:
            if error.proto is not None and error.attempts_total:
                self.heard[call_id] = error
        else:
            self.heard[call_id] = heard

    async def _deadline(self, call_id: str) -> None:
        await self._hear(call_id, timeout=0.06 + moment(call_id))

    async def _cancel(self, call_id: str) -> None:
        asking = asyncio.create_task(self._hear(call_id))
        await asyncio.wait([asking], timeout=moment(call_id))
        asking.cancel()
        await asyncio.wait([asking])

    async def _leave(self, call_id: str) -> None:
        """Leave a stream after some of its events."""
        left = Random(f"events {call_id}").randint(1, 4)
        try:
            async with self.client.stream("m", prompt(call_id), call_id=call_id, flush_interval=0) as stream:
                async for _ in stream:
                    left -= 1
                    if not left:
                        return
        except ModelmeterError:
            return

    async def vanish(self, call_ids: list[str]) -> None:
        """Ask from a process that is killed in the middle."""
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.leaving_client",
            self.address,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n".join(call_ids).encode())
        child.stdin.close()
        assert await child.stdout.readline() == b"asking\n"
        await asyncio.sleep(moment(call_ids[0]))
        child.kill()
        await child.communicate()


async def crowd_through(crowd: Crowd, call_ids: list[str]) -> None:
    """Let every caller through, so many at a time."""
    waiting = iter(call_ids)

    async def one_after_another() -> None:
        for call_id in waiting:
            await crowd.ask(call_id)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE - KILLED_TOGETHER)))


async def killed(crowd: Crowd, call_ids: list[str]) -> None:
    """Let client processes come and be killed, one after the other."""
    for start in range(0, len(call_ids), KILLED_TOGETHER):
        await crowd.vanish(call_ids[start : start + KILLED_TOGETHER])


@pytest.mark.timeout(120)  # six starts of a process beside seven other things
async def test_a_thousand_calls_that_end_badly_leave_true_bills_that_outlive_the_server(
    ledger_url: str, tmp_path: Path
):
    random = Random(ledger_url.partition(":")[0])
    call_ids = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(CALLS)]
    provider = TellingProvider(planned)
    async with FaultServer(provider) as upstream:
        file = configuration(tmp_path, upstream.url, ledger_url, idle=IDLE, lease=LEASE)
        async with (
            server_process(file) as server,
            modelmeter.AsyncClient(server.address, ask_ledger=0) as client,
        ):
            crowd = Crowd(client, server.address)
            both = crowd_through(crowd, call_ids[80:]), killed(crowd, call_ids[:80])
            await asyncio.gather(*both)
            await server.kill()
        async with (
            server_process(file) as successor,
            modelmeter.AsyncClient(successor.address) as client,
        ):
            rows = await calls_when_ended(client, provider.books)
            await require_sums(client, rows)
    require_all_true(rows, provider.books)
    for call_id, heard in crowd.heard.items():
        require_as_told(rows[call_id], heard)
    causes = Counter(row.cause.name for row in rows.values())
    assert len(rows) > 0.6 * CALLS, "most callers came as far as the ledger before they left"
    assert {"CALLER", "DEADLINE", "NETWORK", "IDLE_TIMEOUT"} <= set(causes), causes
