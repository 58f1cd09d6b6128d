"""What telemetry costs a call: CPU for each `Complete` of an answer of 400 events.

`python -m bench.telemetry` compares, within each round and in alternating order, telemetry on with telemetry off, and
10,000 events a second that three watch, one of them asleep, with as many that nobody watches. The median of the ratios
is the result; the memory of the watched server is told as well. Exit code 1 when a ratio is above its bound.
"""

from __future__ import annotations

import argparse
import statistics

from bench.answers import KINDS
from bench.calls import cpu_per_call
from bench.processes import Process, running
from bench.provider import EVENTS

BOUND = 1.10
"""Highest CPU of a call that is observed, as a multiple of one that is not; of watched events as of unwatched ones."""

MEMORY_BOUND = 60
"""MB by which the watched server may grow over all rounds: what waits for watchers, and nothing that adds up."""

CALLS = 600
"""Of each measurement."""

MODEL = f"{KINDS[0]}/bench-1"


def _watched(server: Process, calls: int, in_flight: int) -> float:
    with running("bench.watchers", str(server.port)):
        return cpu_per_call(server, MODEL, calls, in_flight)


def _pair(number: int, one: float, other: float) -> None:
    print(f"{number:>5}  {one * 1e3:>9.3f}  {other * 1e3:>9.3f}  {other / one:>6.3f}")


def _on_and_off(off: Process, on: Process, rounds: int, calls: int, in_flight: int) -> list[float]:
    ratios = []
    print(f"{'round':>5}  {'off ms':>9}  {'on ms':>9}  {'ratio':>6}")
    for number in range(rounds):
        turns = (off, on) if number % 2 else (on, off)
        spent = {turn: cpu_per_call(turn, MODEL, calls, in_flight) for turn in turns}
        _pair(number + 1, spent[off], spent[on])
        ratios.append(spent[on] / spent[off])
    return ratios


def _watching(busy: Process, rounds: int, calls: int, in_flight: int) -> list[float]:
    ratios = []
    print(f"{'round':>5}  {'alone ms':>9}  {'watched':>9}  {'ratio':>6}")
    for number in range(rounds):
        if number % 2:
            alone = cpu_per_call(busy, MODEL, calls, in_flight)
            watched = _watched(busy, calls, in_flight)
        else:
            watched = _watched(busy, calls, in_flight)
            alone = cpu_per_call(busy, MODEL, calls, in_flight)
        _pair(number + 1, alone, watched)
        ratios.append(watched / alone)
    return ratios


def _verdict(what: str, ratios: list[float]) -> bool:
    ratio = statistics.median(ratios)
    verdict = "within" if ratio <= BOUND else "ABOVE"
    print(f"{what}: median ratio {ratio:.3f}, {verdict} the bound of {BOUND}")
    return ratio <= BOUND


def measure(url: str, rounds: int, calls: int = CALLS, in_flight: int = 32) -> bool:
    """Compare against the provider at `url`, print both tables, and say whether both are within the bounds."""
    print(f"\nCPU per Complete of {EVENTS} events, {in_flight} in flight, with telemetry off and on")
    with (
        running("bench.observed_gateway", url, "off") as off,
        running("bench.observed_gateway", url, "on") as on,
    ):
        for server in (off, on):
            cpu_per_call(server, MODEL, calls, in_flight)
        passed = _verdict("telemetry on", _on_and_off(off, on, rounds, calls, in_flight))
    print("\nbeside 10,000 other events a second, unwatched and with three watchers, one of them asleep")
    with running("bench.observed_gateway", url, "busy") as busy:
        _watched(busy, calls, in_flight)
        before = busy.resident_bytes()
        ratios = _watching(busy, rounds, calls, in_flight)
        grown = (busy.resident_bytes() - before) / 1e6
    passed = _verdict("three watchers", ratios) and passed
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
