"""Calls as a client makes them: rounds of `Complete`, many at a time, each answer checked."""

from __future__ import annotations

import asyncio

import grpc.aio

from bench.provider import EVENTS
from modelmeter.v1 import model_service_pb2 as service_pb2
from modelmeter.v1 import model_service_pb2_grpc as service_grpc


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
