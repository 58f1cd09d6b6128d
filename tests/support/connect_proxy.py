"""A CONNECT proxy on 127.0.0.1 that checks its credentials and opens real tunnels."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Self


class ConnectProxy:
    """Tunnel to wherever a client with the right user and password asks."""

    def __init__(self, user: str, password: str) -> None:
        self.tunnels: list[str] = []
        """Authorities that tunnels were opened to."""
        self.heads: list[bytes] = []
        """What clients sent to open them."""
        self.port = 0
        self._credentials = b64encode(f"{user}:{password}".encode())
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        authority = head.split(b" ")[1].decode()
        if b"proxy-authorization: Basic " + self._credentials + b"\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            return
        host, _, port = authority.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self.tunnels.append(authority)
        writer.write(b"HTTP/1.1 200 Connection established\r\nvia: 1.1 proxy\r\n\r\n")
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            back.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
