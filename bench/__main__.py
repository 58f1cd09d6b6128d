"""What a `Complete` of an answer of 400 events costs, in one run.

First the CPU of this service against a naive gateway: both read the same bytes from the same provider process and
answer the same client. Then this service with itself: one wire format against another, with telemetry against without
and watched against unwatched, with a ledger against without, and a ledger of a million calls against an empty one.
Rounds alternate, and a ratio is taken within each round; the median ratio is the result. Exit code 1 when one is beyond
its bound.
"""

from __future__ import annotations

import argparse
import statistics

from bench import ledger_rates, ledger_size, telemetry
from bench.answers import KINDS
from bench.calls import cpu_per_call
from bench.processes import Process, running
from bench.provider import EVENTS

BOUND = 0.16
"""Highest share of the naive gateway's CPU that this service may use."""

FORMAT_BOUND = 1.6
"""Highest CPU of a wire format, as a multiple of what the first one, Anthropic's, takes."""


def _warm_up(process: Process, in_flight: int) -> None:
    for kind in KINDS:
        cpu_per_call(process, f"{kind}/bench-1", in_flight, in_flight)


def _against_naive(
    naive: Process, ours: Process, rounds: int, calls: int, in_flight: int
) -> list[tuple[float, float]]:
    model = f"{KINDS[0]}/bench-1"
    cpu_per_call(naive, model, in_flight, in_flight)
    return [
        (
            cpu_per_call(naive, model, calls, in_flight),
            cpu_per_call(ours, model, calls * 4, in_flight),
        )
        for _ in range(rounds)
    ]


def _by_format(ours: Process, rounds: int, calls: int, in_flight: int) -> list[dict[str, float]]:
    """Return seconds for each kind, of each round; a round begins one kind later than the one before."""
    turns = [KINDS[turn % len(KINDS) :] + KINDS[: turn % len(KINDS)] for turn in range(rounds)]
    return [
        {kind: cpu_per_call(ours, f"{kind}/bench-1", calls, in_flight) for kind in turn} for turn in turns
    ]


def _report_naive(rows: list[tuple[float, float]]) -> bool:
    print(f"{'round':>5}  {'naive ms':>9}  {'modelmeter ms':>13}  {'ratio':>6}")
    for number, (naive, ours) in enumerate(rows, 1):
        print(f"{number:>5}  {naive * 1e3:>9.2f}  {ours * 1e3:>13.2f}  {ours / naive:>6.3f}")
    ratio = statistics.median(ours / naive for naive, ours in rows)
    verdict = "within" if ratio <= BOUND else "ABOVE"
    print(f"median ratio {ratio:.3f}, {verdict} the bound of {BOUND}")
    return ratio <= BOUND


def _report_formats(rows: list[dict[str, float]]) -> bool:
    print(f"\n{'wire format':<17}  {'median ms':>9}  {'ratio':>6}  {'least':>6}  {'most':>6}")
    worst = 0.0
    for kind in KINDS:
        ratios = [row[kind] / row[KINDS[0]] for row in rows]
        ratio = statistics.median(ratios)
        spent = 1e3 * statistics.median(row[kind] for row in rows)
        print(f"{kind:<17}  {spent:>9.2f}  {ratio:>6.2f}  {min(ratios):>6.2f}  {max(ratios):>6.2f}")
        worst = max(worst, ratio)
    verdict = "within" if worst <= FORMAT_BOUND else "ABOVE"
    print(f"highest median ratio {worst:.2f}, {verdict} the bound of {FORMAT_BOUND}")
    return worst <= FORMAT_BOUND


def main() -> int:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="against the naive gateway; 0 leaves it out")
    parser.add_argument("--calls", type=int, default=100, help="calls to the naive gateway in each round")
    parser.add_argument("--format-rounds", type=int, default=7, help="of all wire formats; 0 leaves them out")
    parser.add_argument("--ledger-rounds", type=int, default=15, help="of all ledgers; 0 leaves them out")
    parser.add_argument(
        "--ledger-calls", type=int, default=1_000_000, help="in the large ledger; 0 leaves it out"
    )
    parser.add_argument(
        "--telemetry-rounds",
        type=int,
        default=9,
        help="of telemetry on and off, and watched; 0 leaves them out",
    )
    parser.add_argument("--in-flight", type=int, default=32)
    options = parser.parse_args()
    flight = options.in_flight
    passed = True
    with running("bench.provider") as provider:
        url = f"http://127.0.0.1:{provider.port}"
        with running("bench.naive_gateway", url) as naive, running("bench.gateway", url) as ours:
            _warm_up(ours, flight)
            if options.rounds or options.format_rounds:
                print(f"CPU per Complete of {EVENTS} events, {flight} in flight")
            if options.rounds:
                passed = _report_naive(_against_naive(naive, ours, options.rounds, options.calls, flight))
            if options.format_rounds:
                formats = _by_format(ours, options.format_rounds, options.calls * 4, flight)
                passed = _report_formats(formats) and passed
        if options.telemetry_rounds:
            passed = telemetry.measure(url, options.telemetry_rounds, in_flight=flight) and passed
        if options.ledger_rounds:
            passed = ledger_rates.measure(url, options.ledger_rounds, options.calls) and passed
        if options.ledger_calls:
            passed = ledger_size.measure(url, options.ledger_calls) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
