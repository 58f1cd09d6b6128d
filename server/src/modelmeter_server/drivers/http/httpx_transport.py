"""The httpx face: ordinary `httpx.AsyncClient` calls over the same connections, pools and truths.

    client = httpx.AsyncClient(transport=HttpxTransport(), follow_redirects=False, trust_env=False)

For what is not generation: token counts, reconciliation, key sets. Whatever it raises carries the `ExchangeEnd`.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import httpx

from modelmeter_server.core.outcomes import Cause, Stage

from .egress import OPEN_GATE, EgressGate
from .endpoint import Endpoint, Proxy
from .faults import ExchangeEnd, Fault
from .limits import Limits, Timeouts
from .message import OWNED_HEADERS, HttpRequest, ResponseHead
from .pool import Pool

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

    from .exchange import Exchange

_BUFFER_BYTES = 256 * 1024

_EXCEPTIONS: dict[Fault, type[httpx.RequestError]] = {
    Fault.POOL_TIMEOUT: httpx.PoolTimeout,
    Fault.REQUEST_LIMIT: httpx.LocalProtocolError,
    Fault.NOT_ALLOWED: httpx.LocalProtocolError,
    Fault.EXHAUSTED: httpx.ConnectError,
    Fault.EGRESS: httpx.ConnectError,
    Fault.DNS: httpx.ConnectError,
    Fault.REFUSED: httpx.ConnectError,
    Fault.CONNECT_FAILED: httpx.ConnectError,
    Fault.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    Fault.TLS: httpx.ConnectError,
    Fault.CERTIFICATE: httpx.ConnectError,
    Fault.PROXY: httpx.ProxyError,
    Fault.PROXY_CREDENTIALS: httpx.ProxyError,
    Fault.WRITE_LOST: httpx.WriteError,
    Fault.WRITE_TIMEOUT: httpx.WriteTimeout,
    Fault.FIRST_BYTE_TIMEOUT: httpx.ReadTimeout,
    Fault.IDLE_TIMEOUT: httpx.ReadTimeout,
    Fault.TOTAL_TIMEOUT: httpx.ReadTimeout,
    Fault.RESET: httpx.ReadError,
    Fault.TRUNCATED: httpx.RemoteProtocolError,
    Fault.MALFORMED: httpx.RemoteProtocolError,
    Fault.ENCODING: httpx.DecodingError,
    Fault.HEADER_LIMIT: httpx.RemoteProtocolError,
    Fault.ANSWER_LIMIT: httpx.ReadError,
    Fault.CUT: httpx.ReadError,
    Fault.BUG: httpx.TransportError,
}
# What a fault that can strike at any stage is called before the request was written.
_EARLIER = {
    (Fault.TOTAL_TIMEOUT, Stage.NOT_WRITTEN): httpx.ConnectTimeout,
    (Fault.TOTAL_TIMEOUT, Stage.WRITING): httpx.WriteTimeout,
    (Fault.CUT, Stage.NOT_WRITTEN): httpx.ConnectError,
    (Fault.CUT, Stage.WRITING): httpx.WriteError,
}


def exception_for(end: ExchangeEnd, request: httpx.Request | None = None) -> httpx.RequestError:
    """Make the httpx exception that tells this end truthfully; `exchange_end` gets the end back from it."""
    kind = _EARLIER.get((end.fault, end.stage), _EXCEPTIONS[end.fault])
    if end.fault is Fault.RESET and end.error is None:
        # httpx's own word for a server that closes without an answer.
        kind = httpx.RemoteProtocolError
    elif end.fault is Fault.TLS and end.stage > Stage.NOT_WRITTEN:
        kind = httpx.ReadError
    exception = kind(end.detail, request=request)
    exception.__cause__ = end.error
    vars(exception)["exchange_end"] = end
    return exception


def exchange_end(exception: BaseException) -> ExchangeEnd | None:
    """Return how the exchange behind an exception of `HttpxTransport` ended; `None` for any other exception."""
    end = vars(exception).get("exchange_end")
    return end if isinstance(end, ExchangeEnd) else None


class _Body(httpx.AsyncByteStream):
    """Be the sink of one exchange and the stream of its httpx response. Holds back the peer when nobody reads."""

    def __init__(self, request: httpx.Request) -> None:
        self._request = request
        self._exchange: Exchange | None = None
        self._head: ResponseHead | None = None
        self._chunks: list[bytes] = []
        self._held = 0
        self._end: ExchangeEnd | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, exchange: Exchange) -> ResponseHead:
        """Start the exchange and wait for its head."""
        self._exchange = exchange
        exchange.start().add_done_callback(self._ended)
        try:
            while self._head is None:
                if self._end is not None:
                    raise exception_for(self._end, self._request)
                await self._change()
        except asyncio.CancelledError:
            exchange.cut(Cause.CALLER, "cancelled")
            raise
        return self._head

    def written(self) -> None:
        """Nobody waits for this here."""

    def head(self, head: ResponseHead) -> None:
        self._head = head
        self._wake()

    def data(self, chunk: bytes) -> bool:
        self._chunks.append(chunk)
        self._held += len(chunk)
        if self._held >= _BUFFER_BYTES and self._exchange is not None:
            self._exchange.pause_reading()
        self._wake()
        return False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._chunks:
                yield self._take()
            elif self._end is None:
                await self._change()
            elif self._end.fault is Fault.NONE:
                return
            else:
                raise exception_for(self._end, self._request)

    async def aclose(self) -> None:
        """Close the connection unless the answer is whole."""
        if self._exchange is not None:
            self._exchange.cut(Cause.CALLER, "response closed")

    def _take(self) -> bytes:
        body = b"".join(self._chunks)
        self._chunks.clear()
        if self._held >= _BUFFER_BYTES and self._exchange is not None:
            self._exchange.resume_reading()
        self._held = 0
        return body

    def _ended(self, done: asyncio.Future[ExchangeEnd]) -> None:
        self._end = done.result() if not done.cancelled() else None
        self._wake()

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpxTransport(httpx.AsyncBaseTransport):
    """Serve httpx requests over one pool per origin. Decodes gzip and deflate itself, under the limits."""

    def __init__(
        self,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        *,
        proxy: str | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        resend_on_stale_connection: bool = True,
        keepalive: float = 30.0,
        gate: EgressGate = OPEN_GATE,
    ) -> None:
        """Prepare; the arguments mean what they mean to `Endpoint` and `Pool`.

        `timeouts` holds where httpx's own pool, connect, write and read timeouts say nothing, and for the total.

        Raises:
            ValueError: `proxy` is not a usable URL.
        """
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or Limits()
        self._proxy = Proxy.parse(proxy) if proxy is not None else None
        self._tls = tls
        self._resend = resend_on_stale_connection
        self._keepalive = keepalive
        self._gate = gate
        self._pools: dict[tuple[str, str, int], Pool] = {}

    @classmethod
    def over(cls, pool: Pool) -> HttpxTransport:
        """Return a transport that uses a pool there is already; closing it closes that too."""
        transport = cls()
        endpoint = pool.endpoint
        transport._pools[endpoint.scheme, endpoint.host, endpoint.port] = pool
        transport._timeouts = pool.timeouts
        return transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` and return the response as soon as its head is there.

        Raises:
            httpx.RequestError: it did not come to a head; see `exception_for`.
        """
        content = await self._body_of(request)
        try:
            outgoing = HttpRequest(
                request.method,
                request.url.raw_path.decode("ascii"),
                tuple(_forwarded(request.headers)),
                content,
            )
        except ValueError as exc:
            raise httpx.LocalProtocolError(str(exc), request=request) from exc
        body = _Body(request)
        timeouts = self._timeouts_of(request.extensions.get("timeout", {}))
        head = await body.send(self._pool_for(request.url).exchange(outgoing, body, timeouts))
        return httpx.Response(
            head.status, headers=_decoded(head), stream=body, extensions={"http_version": b"HTTP/1.1"}
        )

    async def aclose(self) -> None:
        """Close every pool; what runs is cut."""
        for pool in self._pools.values():
            await pool.aclose()

    def _pool_for(self, url: httpx.URL) -> Pool:
        if url.scheme not in ("http", "https"):
            msg = "the URL must start with https:// or http://"
            raise httpx.UnsupportedProtocol(msg)
        host = url.raw_host.decode("ascii").strip("[]")
        origin = (url.scheme, host, url.port or (443 if url.scheme == "https" else 80))
        if origin not in self._pools:
            endpoint = Endpoint(*origin, proxy=self._proxy, tls=self._tls, gate=self._gate)
            self._pools[origin] = Pool(
                endpoint,
                self._timeouts,
                self._limits,
                resend_on_stale_connection=self._resend,
                keepalive=self._keepalive,
            )
        return self._pools[origin]

    async def _body_of(self, request: httpx.Request) -> bytes:
        """Read the request's body, one chunk past the limit at most: the exchange then says that it is too large."""
        if not isinstance(request.stream, httpx.AsyncByteStream):
            msg = "the request's body must be bytes or an async iterator"
            raise httpx.LocalProtocolError(msg, request=request)
        parts, size = [], 0
        async for part in request.stream:
            parts.append(part)
            size += len(part)
            if size > self._limits.request_bytes:
                break
        return b"".join(parts)

    def _timeouts_of(self, given: Mapping[str, Any]) -> Timeouts:
        def seconds(name: str, default: float) -> float:
            value = given.get(name, default)
            # httpx spells "no timeout" None.
            return math.inf if value is None else float(value)

        own = self._timeouts
        return Timeouts(
            pool=seconds("pool", own.pool),
            connect=seconds("connect", own.connect),
            write=seconds("write", own.write),
            first_byte=seconds("read", own.first_byte),
            idle=seconds("read", own.idle),
            tail=own.tail,
            total=own.total,
        )


def _forwarded(headers: httpx.Headers) -> list[tuple[str, str]]:
    """Leave out what httpx fills in and the transport decides: Host, lengths, encodings, connection."""
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]
    return [(name, value) for name, value in pairs if name.lower() not in OWNED_HEADERS]


def _decoded(head: ResponseHead) -> list[tuple[str, str]]:
    """Drop the headers that would make httpx decode, or measure, what is decoded already."""
    if "content-encoding" not in head.headers:
        return list(head.headers.items())
    return [pair for pair in head.headers.items() if pair[0] not in ("content-encoding", "content-length")]
