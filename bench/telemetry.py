"""What telemetry costs a call: CPU for each `Complete` of an answer of 400 events.

`python -m bench.telemetry` compares, in turns of a few calls within each round, telemetry on with telemetry off, and
10,000 events a second that three watch, one of them asleep, with as many that nobody watches. The median of the ratios
is the result; the memory of the watched server is told as well. Exit code 1 when a ratio is above its bound.
"""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING

from bench.answers import KINDS
from bench.calls import cpu_per_call, side_by_side
from bench.processes import Process, running
from bench.provider import EVENTS

if TYPE_CHECKING:
    from bench.calls import Cost

BOUND = 1.10
"""Highest CPU of a call that is observed, as a multiple of one that is not; of watched events as of unwatched ones."""

MEMORY_BOUND = 60
"""MB by which the watched server may grow over all rounds: what waits for watchers, and nothing that adds up."""

CALLS = 600
"""Of each measurement."""

MODEL = f"{KINDS[0]}/bench-1"


def _cost(server: Process, in_flight: int) -> Cost:
    return lambda calls: cpu_per_call(server, MODEL, calls, in_flight)


def _watched(watchers: Process, cost: Cost) -> Cost:
    def watched(calls: int) -> float:
        watchers.ask("watch")
        try:
            cost(calls // 2)  # until the one that is asleep has all that it was ever sent
            return cost(calls)
        finally:
            watchers.ask("leave")

    return watched


def _compare(one: Cost, other: Cost, rounds: int, calls: int) -> list[float]:
    """Print a line for each round, and return the other's cost as a multiple of the one's."""
    ratios = []
    for number in range(1, rounds + 1):
        spent, other_spent = side_by_side(one, other, calls)
        ratios.append(other_spent / spent)
        print(f"{number:>5}  {spent * 1e3:>9.3f}  {other_spent * 1e3:>9.3f}  {ratios[-1]:>6.3f}")
    return ratios


def _verdict(what: str, ratios: list[float]) -> bool:
    ratio = statistics.median(ratios)
    verdict = "within" if ratio <= BOUND else "ABOVE"
    print(f"{what}: median ratio {ratio:.3f}, {verdict} the bound of {BOUND}")
    return ratio <= BOUND


def measure(url: str, rounds: int, calls: int = CALLS, in_flight: int = 32) -> bool:
    """Compare against the provider at `url`, print both tables, and say whether both are within the bounds."""
    print(f"\nCPU per Complete of {EVENTS} events, {in_flight} in flight, with telemetry off and on")
    print(f"{'round':>5}  {'off ms':>9}  {'on ms':>9}  {'ratio':>6}")
    with (
        running("bench.observed_gateway", url, "off") as off,
        running("bench.observed_gateway", url, "on") as on,
    ):
        plain, observed = _cost(off, in_flight), _cost(on, in_flight)
        for cost in (plain, observed):
            cost(in_flight)
        passed = _verdict("telemetry on", _compare(plain, observed, rounds, calls))
    return _watching(url, rounds, calls, in_flight) and passed


def _watching(url: str, rounds: int, calls: int, in_flight: int) -> bool:
    print("\nbeside 10,000 other events a second, unwatched and with three watchers, one of them asleep")
    print(f"{'round':>5}  {'alone ms':>9}  {'watched':>9}  {'ratio':>6}")
    with (
        running("bench.observed_gateway", url, "busy") as busy,
        running("bench.watchers", str(busy.port)) as watchers,
    ):
        alone = _cost(busy, in_flight)
        watched = _watched(watchers, alone)
        watched(calls)
        before = busy.resident_bytes()
        ratios = _compare(alone, watched, rounds, calls)
        grown = (busy.resident_bytes() - before) / 1e6
    passed = _verdict("three watchers", ratios)
    verdict = "within" if grown <= MEMORY_BOUND else "ABOVE"
    print(f"memory of the watched server grew by {grown:.1f} MB, {verdict} the bound of {MEMORY_BOUND}")
    return passed and grown <= MEMORY_BOUND


def main() -> int:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--in-flight", type=int, default=32)
    options = parser.parse_args()
    with running("bench.provider") as provider:
        url = f"http://127.0.0.1:{provider.port}"
        return 0 if measure(url, options.rounds, options.calls, options.in_flight) else 1


if __name__ == "__main__":
    raise SystemExit(main())
