"""Opening a connection: name, TCP, the proxy's tunnel, TLS. Each failure is told apart; none sends request bytes."""

from __future__ import annotations

import asyncio
import errno
import math
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .connection import Connection
from .faults import ConnectError, Fault
from .tls import TlsSession

if TYPE_CHECKING:
    from .endpoint import Endpoint, Proxy

_PROXY_HEAD_BYTES = 16 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")

_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""What says that there is too little here; nothing is known of the peer then."""

Lost = Callable[[Connection], None]
Address = tuple[int, int, tuple[object, ...]]


class _Inbox:
    """Own a connection while it is being opened: reads wait here for the coroutine that opens it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._ended = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        connection.owner = self

    async def read(self) -> bytes:
        """Wait for bytes and take all there are; empty at the end.

        Raises:
            OSError: the connection broke.
        """
        while not (self._parts or self._ended):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = b"".join(self._parts)
        self._parts.clear()
        if not data and isinstance(self._error, OSError):
            raise self._error
        return data

    def received(self, data: bytes) -> None:
        self._parts.append(data)
        self._wake()

    def resumed(self) -> None:
        """Nothing waits: what is written here is small."""

    def ended(self, error: BaseException | None, *, clean: bool) -> None:
        del clean
        self._ended, self._error = True, error
        self._wake()

    def failed(self, error: Exception) -> None:
        self.ended(error, clean=False)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def open_connection(
    endpoint: Endpoint, context: ssl.SSLContext | None, seconds: float, on_lost: Lost
) -> Connection:
    """Open a connection that is ready for a request; it has no owner yet. Cancelling closes what is half open.

    `seconds` only divides the time among several addresses of a host: the caller bounds the whole.

    Raises:
        ConnectError: it could not be opened; says how.
    """
    proxy = endpoint.proxy
    endpoint.gate.check(endpoint.scheme, endpoint.host, endpoint.port)
    if proxy is not None:
        endpoint.gate.check("http", proxy.host, proxy.port)
    try:
        connection = await _dial_any(endpoint, seconds, on_lost)
    except ConnectError as exc:
        if proxy is None or exc.fault in (Fault.EGRESS, Fault.EXHAUSTED):
            raise
        # Our way out is broken, which says nothing about the provider and no retry mends.
        raise ConnectError(Fault.PROXY, f"proxy: {exc.detail}", exc.error) from exc
    try:
        inbox = _Inbox(connection)
        if proxy is not None:
            await _tunnel(connection, inbox, endpoint, proxy)
        if context is not None:
            await _handshake(connection, inbox, context, endpoint)
        connection.owner = None
    except BaseException:
        connection.abort()
        raise
    return connection


async def _dial_any(endpoint: Endpoint, seconds: float, on_lost: Lost) -> Connection:
    proxy = endpoint.proxy
    scheme, host, port = (
        ("http", proxy.host, proxy.port) if proxy else (endpoint.scheme, endpoint.host, endpoint.port)
    )
    addresses = await _resolve(host, port)
    for _, _, target in addresses:
        endpoint.gate.check_address(scheme, host, str(target[0]), port)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    failure: ConnectError | None = None
    for index, address in enumerate(addresses):
        # An address that swallows packets must leave time for the next one.
        share = max(0.0, deadline - loop.time()) / (len(addresses) - index)
        try:
            async with asyncio.timeout(share if math.isfinite(share) else None):
                return await _dial(address, on_lost)
        except TimeoutError as exc:
            failure = ConnectError(Fault.CONNECT_TIMEOUT, f"no connection to {host} in time", exc)
        except ConnectionRefusedError as exc:
            failure = ConnectError(Fault.REFUSED, f"{host} refused the connection", exc)
        except OSError as exc:
            if exc.errno in _OURS:
                raise _exhausted(exc) from exc
            reason = exc.strerror or type(exc).__name__
            failure = ConnectError(Fault.CONNECT_FAILED, f"cannot connect to {host}: {reason}", exc)
    raise failure or ConnectError(Fault.DNS, f"{host} has no address")


def _exhausted(error: OSError) -> ConnectError:
    reason = (error.strerror or "no room").lower()
    return ConnectError(Fault.EXHAUSTED, f"this server cannot open another connection: {reason}", error)


async def _resolve(host: str, port: int) -> Sequence[Address]:
    try:
        # A literal address answers at once; only a name is worth a thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            if isinstance(exc, OSError) and exc.errno in _OURS:
                raise _exhausted(exc) from exc
            raise ConnectError(Fault.DNS, f"{host} does not resolve", exc) from exc
    return [(family, proto, address) for family, _, proto, _, address in found]


async def _dial(address: Address, on_lost: Lost) -> Connection:
    family, proto, target = address
    loop = asyncio.get_running_loop()
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that vanished without a word is noticed, even under a day-long idle limit.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await loop.sock_connect(sock, target)
        connection = Connection(sock, on_lost)
    except BaseException:
        sock.close()
        raise
    try:
        # From here on the transport closes the socket, also when this wait is cancelled.
        await loop.create_connection(lambda: connection, sock=sock)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _tunnel(connection: Connection, inbox: _Inbox, endpoint: Endpoint, proxy: Proxy) -> None:
    authority = endpoint.tunnel_authority
    lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    connection.write_raw("\r\n".join([*lines, "", ""]).encode("latin-1"))
    head = b""
    while b"\r\n\r\n" not in head:
        try:
            data = await inbox.read()
        except OSError as exc:
            raise ConnectError(Fault.PROXY, "the proxy broke the connection", exc) from exc
        head += data
        if not data or len(head) > _PROXY_HEAD_BYTES:
            raise ConnectError(
                Fault.PROXY, "the proxy closed without an answer" if not data else "endless proxy answer"
            )
    status = _STATUS_LINE.match(head)
    if status is None:
        raise ConnectError(Fault.PROXY, "the proxy's answer is not HTTP/1.x")
    if status[1] == b"407":
        raise ConnectError(Fault.PROXY_CREDENTIALS, "the proxy wants other credentials (407)")
    if not status[1].startswith(b"2"):
        raise ConnectError(Fault.PROXY, f"the proxy answered {status[1].decode()}")
    if not head.endswith(b"\r\n\r\n"):
        # In a tunnel the client speaks first, so bytes behind the head cannot be the provider's.
        raise ConnectError(Fault.PROXY, "the proxy sent bytes of its own into the tunnel")


async def _handshake(
    connection: Connection, inbox: _Inbox, context: ssl.SSLContext, endpoint: Endpoint
) -> None:
    host = endpoint.host
    tls = TlsSession(context, endpoint.server_hostname or host)
    data = b""
    try:
        while not tls.handshake(data):
            connection.write_raw(tls.outgoing())
            data = await inbox.read()
            if not data:
                raise ConnectError(Fault.TLS, f"{host} closed during the TLS handshake")
    except ssl.SSLCertVerificationError as exc:
        raise ConnectError(Fault.CERTIFICATE, f"certificate of {host}: {exc.verify_message}", exc) from exc
    except ssl.SSLError as exc:
        raise ConnectError(Fault.TLS, f"TLS handshake with {host}: {exc.reason or 'failed'}", exc) from exc
    except OSError as exc:
        raise ConnectError(Fault.TLS, f"{host} broke the connection during the TLS handshake", exc) from exc
    finally:
        # Also after a failure: the alert tells the peer why.
        connection.write_raw(tls.outgoing())
    connection.tls = tls
