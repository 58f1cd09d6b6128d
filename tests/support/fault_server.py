"""A scripted HTTP/1.1 server on 127.0.0.1 that can misbehave at any point: the other end of every transport test.

    async with FaultServer() as server:
        server.script([Reply(status=429), Reply(chunks=[b"one", event, b"two"])])

Each request takes the next entry of the script: a `Reply`, or a function of the `RecordedRequest` that
returns one. When the script is used up, `default` answers. An `asyncio.Event` among the chunks holds the
answer until it is set. It runs in the test's own loop, asyncio's or uvloop's; nothing in it sleeps.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, cast

import trustme

End = Literal["clean", "reset", "truncate", "abort", "stall"]
Framing = Literal["chunked", "length", "close"]


@dataclass
class Reply:
    """What the server does with one request."""

    status: int = 200
    headers: dict[str, str] | Sequence[tuple[str, str]] = field(default_factory=dict)
    chunks: Iterable[bytes | asyncio.Event] = ()
    """The body; with chunked framing each element is a chunk. May be endless, then only with chunked or close."""
    end: End = "clean"
    """clean: as HTTP says. truncate: FIN before the end. reset: RST. abort: close without a TLS goodbye.
    stall: nothing more, but the connection stays."""
    framing: Framing = "chunked"
    announce: int | None = None
    """Content-Length to announce instead of the body's own."""
    early: bool = False
    """Answer once the request's head is there and read no more of it."""
    read_body: int | None = None
    """Read only so many body bytes before acting; `None` reads all."""
    on_accept: bool = False
    """Act as soon as the connection is there, before any request."""
    drain: bool = False
    """After an early answer go on reading and discard, as a polite server does."""
    gate: asyncio.Event | None = None
    """Send nothing before this is set."""
    interim: Sequence[bytes] = ()
    """Whole 1xx heads to send first."""
    raw: Iterable[bytes | asyncio.Event] | None = None
    """Send this instead of a head and a body."""
    silent: bool = False
    """Send nothing at all; only `end` happens."""
    after: bytes = b""
    """Bytes behind the message, in the same write as its end."""
    close: bool = False
    """Close after a clean end, without having announced it."""
    joined: bool = False
    """Send the whole answer in a single write."""


@dataclass
class RecordedRequest:
    """A request as far as the server read it."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Number of the connection it came on, from 0."""


Script = Reply | Callable[[RecordedRequest], Reply | Awaitable[Reply]]


class Authority:
    """A certificate authority of our own, for servers that are right and servers that are wrong."""

    def __init__(self) -> None:
        self.ca = trustme.CA()

    def server(self, *names: str) -> ssl.SSLContext:
        """Return a server context with a certificate for `names`, by default those of the loopback."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """Return a verifying client context that trusts this authority."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


class NobodyListens:
    """A port of the loopback that refuses connections, kept from everyone else meanwhile."""

    def __enter__(self) -> Self:
        self._sock = socket.socket()
        self._sock.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


class FaultServer:
    """Serve scripted replies and record what was asked."""

    def __init__(
        self,
        default: Script | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        """Prepare. `receive_buffer` bytes of a request fit unread, so that a large one must stop half-way."""
        self.default: Script = default or Reply()
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        """How many connections were accepted."""
        self._tls = tls
        self._receive_buffer = receive_buffer
        self._script: deque[Script] = deque()
        self._wires: list[_Wire] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self.port = 0

    async def __aenter__(self) -> Self:
        # The protocol is named because asyncio switches Nagle off only then; a held-back piece would die by the RST.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if self._receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Wire(self), sock=listener, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for wire in self._wires:
            wire.abort()
        await asyncio.gather(*(wire.lost.wait() for wire in self._wires))
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The base URL, without a slash at the end."""
        return self.url_as("http" if self._tls is None else "https")

    def url_as(self, scheme: str) -> str:
        """The base URL under another scheme, to speak TLS to a plain server or the other way round."""
        return f"{scheme}://127.0.0.1:{self.port}"

    def script(self, replies: Sequence[Script]) -> None:
        """Append what the next requests get."""
        self._script.extend(replies)

    async def received(self, count: int, seconds: float = 5.0) -> None:
        """Wait until `count` requests are recorded."""
        await self._until(lambda: len(self.requests) >= count, seconds)

    async def accepted(self, count: int, seconds: float = 5.0) -> None:
        """Wait until `count` connections are accepted."""
        await self._until(lambda: self.connections >= count, seconds)

    async def disconnected(self, number: int = -1, seconds: float = 1.0) -> None:
        """Wait until the peer closed or reset connection `number`; TimeoutError when it does not."""
        async with asyncio.timeout(seconds):
            await self._wires[number].gone.wait()

    def drop(self, number: int = -1, *, reset: bool = False) -> None:
        """End connection `number` from our side now, as a server does with an idle one."""
        self._wires[number].close("reset" if reset else "truncate")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def admit(self, wire: _Wire) -> None:
        """Start to serve a connection (called by the protocol)."""
        wire.number = self.connections
        self.connections += 1
        self._wires.append(wire)
        self._changed.set()
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire: _Wire) -> None:
        try:
            while await self._serve_one(wire):
                pass
        except ConnectionError:
            wire.abort()

    async def _serve_one(self, wire: _Wire) -> bool:
        first = self._script[0] if self._script else self.default
        if isinstance(first, Reply) and first.on_accept:
            if self._script:
                self._script.popleft()
            wire.pause()
            return await _answer(wire, first)
        request = await wire.read_head()
        script = self._script.popleft() if self._script else self.default
        if isinstance(script, Reply) and (script.early or script.read_body is not None):
            wire.pause()
            await wire.read_body(request, script.read_body or 0)
        else:
            await wire.read_body(request, None)
        self.requests.append(request)
        self._changed.set()
        reply = script if isinstance(script, Reply) else script(request)
        if inspect.isawaitable(reply):
            reply = await reply
        return await _answer(wire, reply)


class _Wire(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, server: FaultServer) -> None:
        self.number = -1
        self.gone = asyncio.Event()
        """The peer ended it."""
        self.lost = asyncio.Event()
        """The loop has let go of it."""
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._discarding = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from asyncio's
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        if not self._discarding:
            self._buffer += data
        self._arrived.set()

    def eof_received(self) -> None:
        self.gone.set()
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for event in (self.gone, self.lost, self._arrived, self._writable):
            event.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def pause(self) -> None:
        """Stop taking bytes from the socket."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def discard(self) -> None:
        """Read again, and forget what comes."""
        assert self._transport is not None
        self._discarding = True
        if not self._transport.is_closing():
            self._transport.resume_reading()

    async def read_head(self) -> RecordedRequest:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        method, target, _ = first.split(" ")
        pairs = [line.split(": ", 1) for line in lines]
        return RecordedRequest(
            method, target, {name.lower(): value for name, value in pairs}, b"", self.number
        )

    async def read_body(self, request: RecordedRequest, limit: int | None) -> None:
        size = int(request.headers.get("content-length", "0"))
        wanted = size if limit is None else min(size, limit)
        while len(self._buffer) < wanted:
            assert self._transport is not None
            self._transport.resume_reading()
            await self._more()
            if limit is not None:
                self.pause()
        request.body = bytes(self._buffer[:wanted])
        del self._buffer[:wanted]

    async def _more(self) -> None:
        if self.gone.is_set():
            raise ConnectionResetError
        self._arrived.clear()
        await self._arrived.wait()

    async def write(self, data: bytes) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError
        self._transport.write(data)
        await self._writable.wait()

    def close(self, end: End) -> None:
        assert self._transport is not None
        if end == "reset":
            self._linger_no_longer()
            self._transport.abort()
        elif end == "abort":
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _linger_no_longer(self) -> None:
        """Make the close that follows a real RST."""
        assert self._transport is not None
        sock = self._transport.get_extra_info("socket")
        if sock.fileno() >= 0:
            with socket.socket(fileno=os.dup(sock.fileno())) as twin:
                twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _answer(wire: _Wire, reply: Reply) -> bool:
    """Carry out `reply`; return whether the connection may serve another request."""
    if reply.gate is not None:
        await reply.gate.wait()
    if reply.drain:
        wire.discard()
    if reply.joined:
        await wire.write(b"".join(part for part in _parts(reply) if isinstance(part, bytes)))
    else:
        for part in _parts(reply):
            if isinstance(part, bytes):
                await wire.write(part)
            else:
                await part.wait()
    if reply.end == "stall" or (reply.drain and reply.end == "clean"):
        await wire.gone.wait()
    elif reply.end == "clean" and reply.framing != "close" and not (reply.close or reply.early):
        return True
    wire.close(reply.end)
    return False


def _parts(reply: Reply) -> Iterable[bytes | asyncio.Event]:
    if reply.silent:
        return
    yield from reply.interim
    if reply.raw is not None:
        yield from reply.raw
        return
    chunks = list(reply.chunks) if reply.framing == "length" else reply.chunks
    yield _head(reply, chunks)
    for chunk in chunks:
        if isinstance(chunk, bytes) and reply.framing == "chunked":
            yield b"%x\r\n%b\r\n" % (len(chunk), chunk)
        else:
            yield chunk
    if reply.end == "clean":
        yield (b"0\r\n\r\n" if reply.framing == "chunked" else b"") + reply.after


def _head(reply: Reply, chunks: Iterable[bytes | asyncio.Event]) -> bytes:
    pairs = list(reply.headers.items() if isinstance(reply.headers, dict) else reply.headers)
    if reply.framing == "chunked":
        pairs.append(("transfer-encoding", "chunked"))
    elif reply.framing == "length":
        size = sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes))
        pairs.append(("content-length", str(size if reply.announce is None else reply.announce)))
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
