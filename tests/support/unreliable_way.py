"""The way to a provider, which can be lost: a listener that passes everything on, refuses it, or swallows it."""

from __future__ import annotations

import asyncio
from typing import Self


class UnreliableWay:
    """Listen on one port of the loopback and pass on to another one."""

    def __init__(self, port: int) -> None:
        """Lead to this port."""
        self.url = ""
        self.accepted = 0
        """How many connections were taken."""
        self._to = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._is_stalled = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def lead_to(self, port: int) -> None:
        """Pass new connections on to another port; those that are open stay where they are."""
        self._to = port

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def die(self) -> None:
        """Refuse connections and reset those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._drop()

    async def stall(self) -> None:
        """Take connections and requests, and let nothing through in either direction."""
        self._is_stalled = True
        if self._server is None:
            await self._listen()

    async def recover(self) -> None:
        """Pass everything on again; what was swallowed is reset."""
        self._is_stalled = False
        self._drop()
        if self._server is None:
            await self._listen()

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            on_reader, on_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(on_writer)
        for source, sink in ((reader, on_writer), (on_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                if not self._is_stalled:
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass  # one side is gone, and so is the other
        finally:
            sink.transport.abort()
            self._writers.discard(sink)
