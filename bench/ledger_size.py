"""What a ledger costs when it is large: a call, and the question what was spent."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from bench.answers import KINDS
from bench.calls import round_of
from bench.ledger_fill import fill
from bench.ledger_load import load
from bench.processes import Process, running
from modelmeter_server.ledger.queries import get_spend
from modelmeter_server.ledger.questions import SpendAsked
from modelmeter_server.ledger.storage import StorageSettings, StoredLedger, open_ledger
from modelmeter_server.ledger.tables import calls

if TYPE_CHECKING:
    from sqlalchemy import Connection

COST_BOUND = 1.1
"""Most CPU of a `Complete` with a large ledger, as a multiple of what it takes with an empty one."""

SPEND_BOUND = 50.0
"""Most time of `GetSpend` over all calls of a tenant, in reads of one row by its primary key."""

ROUNDS = 9
CALLS = 300
READS = 50
IN_FLIGHT = 64

_TENANT = "default"


def measure(url: str, size: int) -> bool:
    """Print what a call and a question cost in a SQLite ledger of `size` calls; say whether both bounds held.

    `url` is the provider's.
    """
    with tempfile.TemporaryDirectory(prefix="modelmeter-bench-") as folder:
        empty, large = Path(folder) / "empty.db", Path(folder) / "large.db"
        began = time.perf_counter()
        asyncio.run(_make_large(large, size))
        print(
            f"\nA SQLite ledger of {size:,} calls, made in {time.perf_counter() - began:.0f} s, to an empty one"
        )
        passed = _report("CPU of a call", _calls(url, empty, large), COST_BOUND)
        own, spend = asyncio.run(_inside(empty, large, size))
        _report("CPU of a call inside the ledger", own)
        return _report("GetSpend, to a read by primary key", spend, SPEND_BOUND) and passed


def _calls(url: str, empty: Path, large: Path) -> list[float]:
    """Return ratios of the service's CPU for a call; the first rounds warm up and do not count."""

    def cost(process: Process) -> float:
        before = process.cpu_seconds()
        asyncio.run(round_of(process.port, f"{KINDS[0]}/bench-1", CALLS, IN_FLIGHT))
        return process.cpu_seconds() - before

    with (
        running("bench.gateway", url, f"sqlite:///{empty}") as plain,
        running("bench.gateway", url, f"sqlite:///{large}") as full,
    ):
        turns = [(plain, full) if number % 2 else (full, plain) for number in range(ROUNDS + 2)]
        costs = [{process: cost(process) for process in turn} for turn in turns]
        return [each[full] / each[plain] for each in costs[2:]]


async def _inside(empty: Path, large: Path, size: int) -> tuple[list[float], list[float]]:
    """Return ratios of what a call, and a question, cost the ledger alone."""
    ledgers = await _open(empty), await _open(large)
    try:
        return await _cost(*ledgers), await _spend(ledgers[1], size)
    finally:
        for ledger in ledgers:
            await ledger.aclose()


async def _open(path: Path) -> StoredLedger:
    return await open_ledger(StorageSettings(url=f"sqlite:///{path}"))


async def _make_large(path: Path, size: int) -> None:
    ledger = await _open(path)
    await load(ledger, 1, concurrency=1)
    await ledger.aclose()
    connection = sqlite3.connect(path, isolation_level=None)
    fill(connection, size)
    connection.close()


async def _cost(empty: StoredLedger, large: StoredLedger) -> list[float]:
    """Return ratios of the ledger's CPU for a call; the first rounds warm up and do not count."""
    ratios = []
    for number in range(ROUNDS + 2):
        costs = {}
        for ledger in (empty, large) if number % 2 else (large, empty):
            costs[ledger] = await load(ledger, CALLS)
        ratios.append(costs[large] / costs[empty])
    return ratios[2:]


async def _spend(ledger: StoredLedger, size: int) -> list[float]:
    """Return ratios of the time that two questions take."""
    asked = SpendAsked(tenant=_TENANT, limit=100)

    def by_key(connection: Connection) -> object:
        return connection.execute(select(calls.c.detail).where(calls.c.id == 1)).one()

    def spent(connection: Connection) -> object:
        sums = get_spend(connection, asked)
        assert sum(each.calls for each in sums) >= size
        return sums

    ratios = []
    for _ in range(ROUNDS):
        seconds = []
        for question in (by_key, spent):
            began = time.perf_counter()
            for _ in range(READS):
                await ledger.read(question)
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[1] / seconds[0])
    return ratios


def _report(what: str, ratios: list[float], bound: float | None = None) -> bool:
    ratio = statistics.median(ratios)
    holds = bound is None or ratio <= bound
    verdict = "" if bound is None else f", {'within' if holds else 'ABOVE'} the bound of {bound:g}"
    print(f"{what}: median ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}){verdict}")
    return holds
