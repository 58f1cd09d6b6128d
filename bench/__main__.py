"""CPU for each `Complete` of an answer of 400 events: this service against a naive gateway, in one run.

Both gateways read the same bytes from the same provider process and answer the same client. Rounds alternate, and a
ratio is taken within each round; the median ratio is the result. Exit code 1 when it is above the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics

import grpc.aio

from bench.processes import Process, running
from bench.provider import EVENTS
from modelmeter.v1 import model_service_pb2 as service_pb2
from modelmeter.v1 import model_service_pb2_grpc as service_grpc

BOUND = 0.16
"""Highest share of the naive gateway's CPU that this service may use."""


async def _round(port: int, model: str, calls: int, in_flight: int) -> None:
    """Make `calls` completions, `in_flight` at a time, and check each answer."""
    slots = asyncio.Semaphore(in_flight)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = service_grpc.ModelServiceStub(channel)

        async def one() -> None:
            async with slots:
                request = service_pb2.CompleteRequest(model=model, text="Write a page.")
                answer = await stub.Complete(request, timeout=60)
                assert answer.completion.usage.output_tokens == EVENTS
                assert answer.completion.text.count(" ") == EVENTS

        await asyncio.gather(*(one() for _ in range(calls)))


def _cpu_per_call(process: Process, model: str, calls: int, in_flight: int) -> float:
    before = process.cpu_seconds()
    asyncio.run(_round(process.port, model, calls, in_flight))
    return (process.cpu_seconds() - before) / calls


def _measure(rounds: int, calls: int, in_flight: int) -> list[tuple[float, float]]:
    with running("bench.provider") as provider:
        url = f"http://127.0.0.1:{provider.port}"
        with running("bench.naive_gateway", url) as naive, running("bench.gateway", url) as ours:
            for process in (naive, ours):
                _cpu_per_call(process, "bench/bench-1", in_flight, in_flight)
            return [
                (
                    _cpu_per_call(naive, "bench/bench-1", calls, in_flight),
                    _cpu_per_call(ours, "bench/bench-1", calls * 4, in_flight),
                )
                for _ in range(rounds)
            ]


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=100, help="calls to the naive gateway in each round")
    parser.add_argument("--in-flight", type=int, default=32)
    options = parser.parse_args()
    rows = _measure(options.rounds, options.calls, options.in_flight)
    print(f"CPU per Complete of {EVENTS} events, {options.in_flight} in flight")
    print(f"{'round':>5}  {'naive ms':>9}  {'modelmeter ms':>13}  {'ratio':>6}")
    for number, (naive, ours) in enumerate(rows, 1):
        print(f"{number:>5}  {naive * 1e3:>9.2f}  {ours * 1e3:>13.2f}  {ours / naive:>6.3f}")
    ratio = statistics.median(ours / naive for naive, ours in rows)
    verdict = "within" if ratio <= BOUND else "ABOVE"
    print(f"median ratio {ratio:.3f}, {verdict} the bound of {BOUND}")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
