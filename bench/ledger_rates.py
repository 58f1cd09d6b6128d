"""Calls per second with a ledger, against the same service without one."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.answers import KINDS
from bench.calls import round_of
from bench.processes import Process, running
from tests.support.postgres import MISSING, postgres_server, programs

SQLITE_BOUND = 0.7
POSTGRES_BOUND = 0.5
"""Least share of the calls per second without a ledger; for `power` there is none, it waits for the disk."""

MODEL = f"{KINDS[0]}/bench-1"


class Kept(NamedTuple):
    """A service with a ledger."""

    name: str
    process: Process
    bound: float | None


class Round(NamedTuple):
    """What one service did in one round."""

    rate: float
    """Calls per second."""
    cpu: float
    """Seconds of the service's processor for each call."""


def measure(url: str, rounds: int, calls: int, in_flight: int) -> bool:
    """Print calls per second with each ledger in front of the provider at `url`; say whether all bounds held."""
    with ExitStack() as stack:
        plain = stack.enter_context(running("bench.gateway", url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelmeter-bench-")))
        kept = _with_sqlite(stack, url, folder) + _with_postgres(stack, url)
        processes = [plain, *(each.process for each in kept)]
        for process in processes:
            _round(process, calls, in_flight)
        found = [_turn(processes, number, calls, in_flight) for number in range(rounds)]
    return _report(kept, found)


def _with_sqlite(stack: ExitStack, url: str, folder: Path) -> list[Kept]:
    def serve(durability: str, bound: float | None) -> Kept:
        ledger = f"sqlite:///{folder / durability}.db"
        process = stack.enter_context(running("bench.gateway", url, ledger, durability))
        return Kept(f"SQLite, {durability}", process, bound)

    return [serve("process", SQLITE_BOUND), serve("power", None)]


def _with_postgres(stack: ExitStack, url: str) -> list[Kept]:
    if programs() is None:
        print(MISSING)
        return []
    server = stack.enter_context(postgres_server(fsync=True))

    def serve(durability: str, bound: float | None) -> Kept:
        process = stack.enter_context(running("bench.gateway", url, server.create_database(), durability))
        return Kept(f"PostgreSQL, {durability}", process, bound)

    return [serve("process", POSTGRES_BOUND), serve("power", None)]


def _turn(processes: list[Process], number: int, calls: int, in_flight: int) -> list[Round]:
    """Measure each once; a turn begins one service later than the one before."""
    order = [(number + place) % len(processes) for place in range(len(processes))]
    found = {place: _round(processes[place], calls, in_flight) for place in order}
    return [found[place] for place in range(len(processes))]


def _round(process: Process, calls: int, in_flight: int) -> Round:
    cpu, began = process.cpu_seconds(), time.perf_counter()
    asyncio.run(round_of(process.port, MODEL, calls, in_flight))
    return Round(calls / (time.perf_counter() - began), (process.cpu_seconds() - cpu) / calls)


def _report(kept: list[Kept], turns: list[list[Round]]) -> bool:
    print(
        f"\n{'ledger':<20}  {'calls/s':>7}  {'ratio':>5}  {'least':>5}  {'most':>5}  {'bound':>5}  {'CPU ms':>6}  {'ratio':>5}"
    )
    plain = [turn[0] for turn in turns]
    print(f"{'none':<20}  {_median([each.rate for each in plain]):>7.0f}{'':<37}{_cpu(plain):>6.2f}")
    passed = True
    for place, each in enumerate(kept, 1):
        own = [turn[place] for turn in turns]
        ratios = [turn[place].rate / turn[0].rate for turn in turns]
        cpu = _median([turn[place].cpu / turn[0].cpu for turn in turns])
        holds = each.bound is None or _median(ratios) >= each.bound
        passed = passed and holds
        print(
            f"{each.name:<20}  {_median([one.rate for one in own]):>7.0f}  {_median(ratios):>5.2f}  {min(ratios):>5.2f}"
            f"  {max(ratios):>5.2f}  {each.bound or '':>5}  {_cpu(own):>6.2f}  {cpu:>5.2f}{'' if holds else '  BELOW'}"
        )
    return passed


def _cpu(rounds: list[Round]) -> float:
    return 1e3 * _median([each.cpu for each in rounds])


def _median(values: list[float]) -> float:
    return statistics.median(values)
