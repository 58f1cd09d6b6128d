"""Calls as a client makes them: rounds of `Complete`, many at a time, each answer checked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from bench.provider import EVENTS
from modelmeter.v1 import model_service_pb2 as service_pb2
from modelmeter.v1 import model_service_pb2_grpc as service_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.processes import Process

    Cost = Callable[[int], float]
    """Make so many calls and return the seconds of processor for each."""

TURNS = 4
"""Turns of each side in a round of two that are compared."""


async def round_of(port: int, model: str, calls: int, in_flight: int) -> None:
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


def cpu_per_call(process: Process, model: str, calls: int, in_flight: int) -> float:
    """Return seconds of the process for each of so many completions."""
    before = process.cpu_seconds()
    asyncio.run(round_of(process.port, model, calls, in_flight))
    return (process.cpu_seconds() - before) / calls


def side_by_side(one: Cost, other: Cost, calls: int) -> tuple[float, float]:
    """Return what a call costs the one way and the other, each over so many calls in turns of a few.

    What else the machine does comes and goes within seconds, and so bears on both alike. The order is reversed from
    turn to turn: ABBA.
    """
    spent = {one: 0.0, other: 0.0}
    for turn in range(TURNS):
        for cost in (one, other) if turn % 2 == 0 else (other, one):
            spent[cost] += cost(max(1, calls // TURNS)) / TURNS
    return spent[one], spent[other]
