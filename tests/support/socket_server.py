"""A provider's WebSocket that can break at any point, on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from . import responses_events as responses
from .wire_bytes import Json


@dataclass
class Reply:
    """What comes back for one turn."""

    frames: list[str] = field(default_factory=list)
    after: asyncio.Event | None = None
    """Send `rest` once this is set."""
    rest: list[str] = field(default_factory=list)
    close: int | None = None
    """Close the socket with this code after the frames."""
    reset: bool = False
    """Break the connection after the frames."""
    hold: bool = False
    """Say nothing more until the caller goes."""


@dataclass
class Asked:
    """One message that a caller sent."""

    connection: int
    """From 1."""
    document: Json


_SILENT = logging.Logger("socket_server", logging.CRITICAL + 1)
"""What this server logs is no log of the code under test."""

Answer = Callable[[Asked], Reply]


@dataclass
class SocketServer:
    """The server: it answers turn by turn, from a script or by a function."""

    replies: list[Reply] = field(default_factory=list)
    answer: Answer | None = None
    """Answers in place of the script."""
    refuse: tuple[int, bytes] | None = None
    """Status and body of an upgrade that is refused."""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    headers: list[Headers] = field(default_factory=list)
    """Of each upgrade."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a close was answered."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a caller has ended a socket."""
    deaf_until: asyncio.Event | None = None
    """Read nothing of a turn; break the connection when this is set."""
    url: str = ""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every message; for tests to clear and wait for."""

    async def serve(self, connection: ServerConnection) -> None:
        self.connections += 1
        number = self.connections
        if self.deaf_until is not None:
            connection.transport.pause_reading()
            await self.deaf_until.wait()
            connection.transport.abort()
            return
        try:
            async for message in connection:
                asked = Asked(number, json.loads(message))
                self.asked.append(asked)
                self.arrived.set()
                await self._reply(connection, self.answer(asked) if self.answer else self.replies.pop(0))
            self.left.set()
        except ConnectionClosed:
            self.left.set()

    async def _reply(self, connection: ServerConnection, reply: Reply) -> None:
        for frame in reply.frames:
            await connection.send(frame)
        if reply.after is not None:
            await reply.after.wait()
            for frame in reply.rest:
                await connection.send(frame)
        if reply.reset:
            connection.transport.abort()
        elif reply.close is not None:
            await connection.close(reply.close)
            self.closed.set()
        elif reply.hold:
            await connection.wait_closed()

    def upgrade(self, _connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers)
        if self.refuse is None:
            return None
        status, body = self.refuse
        headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(body))})
        return Response(status, HTTPStatus(status).phrase, headers, body)


@asynccontextmanager
async def socket_server(
    *replies: Reply, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[SocketServer]:
    """Serve inside this block."""
    server = SocketServer(list(replies), **options)
    async with serve(
        server.serve,
        "127.0.0.1",
        0,
        process_request=server.upgrade,
        max_size=None,
        close_timeout=1,
        ssl=tls,
        logger=_SILENT,
    ) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        server.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
        yield server


def frames(*events: Json) -> list[str]:
    """Return events as the text of frames."""
    return [json.dumps(event) for event in events]


def answered(id: str, text: str = "ok", *, usage: Json | None = None, done: bool = False) -> list[str]:
    """Return the frames of a whole answer."""
    message = responses.message(text)
    begun = responses.response(status="in_progress") | {"id": id}
    whole = responses.response(message, usage=usage or responses.USAGE) | {"id": id}
    events = [
        responses.event("created", response=begun),
        responses.added(0, {**message, "content": []}),
        responses.text(0, text),
        responses.item_done(0, message),
        responses.event("completed", response=whole),
    ]
    if done:
        events.append(responses.event("done", response=whole))
    return frames(*events)


def wrapped(status: int, code: str, **headers: str) -> str:
    """Return an error frame of the protocol."""
    error = {"type": "invalid_request_error", "code": code, "message": "synthetic", "param": None}
    frame = {"type": "error", "status": status, "error": error}
    return json.dumps(frame | ({"headers": headers} if headers else {}))
