"""Three who watch the events of a server: two read, one is asleep.

Run as `python -m bench.watchers PORT`: prints the port once all watch, watches until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc.aio

from modelmeter._channel import channel_options

METHOD = "/modelmeter.v1.EventService/WatchEvents"


async def _read(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def _watch(port: str) -> None:
    target = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(target, channel_options(target, None)) as channel:
        # As bytes: what reading costs the watchers is not measured.
        watch: Any = channel.unary_stream(METHOD)
        calls = [watch(b"") for _ in range(3)]
        for call in calls:
            await call.read()
        readers = [asyncio.create_task(_read(call)) for call in calls[:2]]
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for reader in readers:
            reader.cancel()


if __name__ == "__main__":
    asyncio.run(_watch(sys.argv[1]))
