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

IN_FLIGHT = 64
"""Calls at a time: enough that the processor is never idle while calls wait for a commit."""

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


class Pair(NamedTuple):
    """A round without a ledger and one with it, right after each other: what else the machine does bears on both."""

    plain: Round
    kept: Round


def measure(url: str, rounds: int, calls: int) -> bool:
    """Print calls per second with each ledger in front of the provider at `url`; say whether all bounds held."""
    with ExitStack() as stack:
        plain = stack.enter_context(running("bench.gateway", url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelmeter-bench-")))
        kept = _with_sqlite(stack, url, folder) + _with_postgres(stack, url)
        for process in (plain, *(each.process for each in kept)):
            _round(process, calls)
        found: list[list[Pair]] = [[] for _ in kept]
        for number in range(rounds):
            for each, pairs in zip(kept, found, strict=True):
                pairs.append(_pair(plain, each.process, calls, plain_first=number % 2 == 0))
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


def _pair(plain: Process, kept: Process, calls: int, *, plain_first: bool) -> Pair:
    if plain_first:
        return Pair(_round(plain, calls), _round(kept, calls))
    kept_round = _round(kept, calls)
    return Pair(_round(plain, calls), kept_round)


def _round(process: Process, calls: int) -> Round:
    cpu, began = process.cpu_seconds(), time.perf_counter()
    asyncio.run(round_of(process.port, MODEL, calls, IN_FLIGHT))
    return Round(calls / (time.perf_counter() - began), (process.cpu_seconds() - cpu) / calls)


def _report(kept: list[Kept], found: list[list[Pair]]) -> bool:
    print(f"\nCalls per second with a ledger, {IN_FLIGHT} in flight; ratios to rounds without one")
    print(
        f"{'ledger':<20}  {'calls/s':>7}  {'ratio':>5}  {'least':>5}  {'most':>5}  {'bound':>5}"
        f"  {'CPU ms':>6}  {'ratio':>5}"
    )
    plain = [pair.plain for pairs in found for pair in pairs]
    print(f"{'none':<20}  {_rate(plain):>7.0f}{'':<28}  {_cpu(plain):>6.2f}")
    verdicts = [_report_one(each, pairs) for each, pairs in zip(kept, found, strict=True)]
    return all(verdicts)


def _report_one(each: Kept, pairs: list[Pair]) -> bool:
    own = [pair.kept for pair in pairs]
    ratios = [pair.kept.rate / pair.plain.rate for pair in pairs]
    ratio = statistics.median(ratios)
    holds = each.bound is None or ratio >= each.bound
    print(
        f"{each.name:<20}  {_rate(own):>7.0f}  {ratio:>5.2f}  {min(ratios):>5.2f}  {max(ratios):>5.2f}"
        f"  {each.bound or '':>5}  {_cpu(own):>6.2f}"
        f"  {statistics.median(pair.kept.cpu / pair.plain.cpu for pair in pairs):>5.2f}{'' if holds else '  BELOW'}"
    )
    return holds


def _rate(rounds: list[Round]) -> float:
    return statistics.median(each.rate for each in rounds)


def _cpu(rounds: list[Round]) -> float:
    return 1e3 * statistics.median(each.cpu for each in rounds)
