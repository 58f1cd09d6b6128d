"""Three who watch the events of a server: two read, one is asleep.

Run as `python -m bench.watchers PORT`: prints the port, and then watches on the word `watch` and leaves on `leave`.
Each is a line of its standard input, answered by the same word once it is done. Ends with its standard input.
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


class Watchers:
    """Three streams of events, open or not."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        # As bytes: what reading costs the watchers is not measured.
        self._watch: Any = channel.unary_stream(METHOD)
        self._calls: list[Any] = []
        self._readers: list[asyncio.Task[None]] = []

    async def watch(self) -> None:
        """Open all three, and read two of them."""
        self._calls = [self._watch(b"") for _ in range(3)]
        for call in self._calls:
            await call.read()
        self._readers = [asyncio.create_task(_read(call)) for call in self._calls[:2]]

    async def leave(self) -> None:
        """Close what is open."""
        for reader in self._readers:
            reader.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._readers, *(call.code() for call in self._calls), return_exceptions=True)


async def _serve(port: str) -> None:
    target = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(target, channel_options(target, None)) as channel:
        watchers = Watchers(channel)
        print(port, flush=True)
        while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await (watchers.watch() if word == "watch" else watchers.leave())
            print(word, flush=True)
        await watchers.leave()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
