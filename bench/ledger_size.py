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

from bench.ledger_fill import fill
from bench.ledger_load import load
from modelmeter_server.ledger.queries import get_spend
from modelmeter_server.ledger.questions import SpendAsked
from modelmeter_server.ledger.storage import StorageSettings, StoredLedger, open_ledger
from modelmeter_server.ledger.tables import calls

if TYPE_CHECKING:
    from sqlalchemy import Connection

COST_BOUND = 1.1
"""Most CPU of a call in a large ledger, as a multiple of what it takes in an empty one."""

SPEND_BOUND = 50.0
"""Most time of `GetSpend` over all calls of a tenant, in reads of one row by its primary key."""

ROUNDS = 15
CALLS = 300
READS = 50

_TENANT = "default"


def measure(size: int) -> bool:
    """Print what a call and a question cost in a SQLite ledger of `size` calls; say whether both bounds held."""
    with tempfile.TemporaryDirectory(prefix="modelmeter-bench-") as folder:
        return asyncio.run(_measure(Path(folder), size))


async def _measure(folder: Path, size: int) -> bool:
    began = time.perf_counter()
    await _make_large(folder / "large.db", size)
    print(f"\nA SQLite ledger of {size:,} calls, made in {time.perf_counter() - began:.0f} s")
    empty, large = await _open(folder / "empty.db"), await _open(folder / "large.db")
    try:
        cost = await _cost(empty, large)
        spend = await _spend(large)
    finally:
        await empty.aclose()
        await large.aclose()
    passed = _report("CPU of a call, to an empty ledger", cost, COST_BOUND)
    return _report("GetSpend, to a read by primary key", spend, SPEND_BOUND) and passed


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


async def _spend(ledger: StoredLedger) -> list[float]:
    """Return ratios of the time that two questions take."""
    asked = SpendAsked(tenant=_TENANT, limit=100)

    def by_key(connection: Connection) -> object:
        return connection.execute(select(calls.c.detail).where(calls.c.id == 1)).one()

    def spent(connection: Connection) -> object:
        (total,) = get_spend(connection, asked)
        return total

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


def _report(what: str, ratios: list[float], bound: float) -> bool:
    ratio = statistics.median(ratios)
    verdict = "within" if ratio <= bound else "ABOVE"
    print(f"{what}: median ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {verdict} the bound of {bound:g}")
    return ratio <= bound
