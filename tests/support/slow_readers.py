"""Many callers with a stream each, as a process of its own, over a few connections.

Run as `python -m tests.support.slow_readers ADDRESS STREAMS`: prints `open` once each stream has told its first
word, then reads them to their ends and prints how many ended with a completion. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

import grpc.aio

from modelmeter.v1 import model_service_pb2 as service_pb2

PER_CHANNEL = 500
"""Streams of one connection."""

AT_ONCE = 200
"""Streams that are opened at once: nobody begins ten thousand in one moment."""

_METHOD = "/modelmeter.v1.ModelService/StreamComplete"


class Callers:
    """All streams, and how they stand."""

    def __init__(self, address: str, streams: int) -> None:
        self.ends: Counter[str] = Counter()
        self.opened = asyncio.Semaphore(0)
        self._address = address
        self._streams = streams
        self._opening = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            grpc.aio.insecure_channel(self._address, options=options)
            for _ in range(-(-self._streams // PER_CHANNEL))
        ]
        calls = [
            channel.unary_stream(
                _METHOD,
                request_serializer=service_pb2.StreamCompleteRequest.SerializeToString,
                response_deserializer=service_pb2.StreamCompleteResponse.FromString,
            )
            for channel in channels
        ]
        await asyncio.gather(*(self._read(calls[number // PER_CHANNEL]) for number in range(self._streams)))
        for channel in channels:
            await channel.close()

    async def _read(self, method: grpc.aio.UnaryStreamMultiCallable) -> None:
        request = service_pb2.StreamCompleteRequest(
            request=service_pb2.CompleteRequest(model="m", text="Speak slowly.")
        )
        async with self._opening:
            call: Any = method(request, timeout=600)
            try:
                while (response := await call.read()) is not grpc.aio.EOF:
                    if response.WhichOneof("event") == "text":
                        break
            except grpc.aio.AioRpcError as error:
                self.ends[error.code().name] += 1
                return
            finally:
                self.opened.release()
        last = ""
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                last = response.WhichOneof("event")
        except grpc.aio.AioRpcError as error:
            last = error.code().name
        self.ends[last] += 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _main(address: str, streams: int) -> None:
    callers = Callers(address, streams)
    reading = asyncio.create_task(callers.run())
    for _ in range(streams):
        await callers.opened.acquire()
    _say("open" if not callers.ends else f"lost {dict(callers.ends)}")
    await reading
    _say(" ".join(f"{word}={count}" for word, count in sorted(callers.ends.items())))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
