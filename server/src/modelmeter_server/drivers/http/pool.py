"""The connections to one endpoint: taken, given back, waited for, each step in constant time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from modelmeter_server.core.outcomes import Cause

from .connect import open_connection
from .exchange import Exchange
from .faults import ConnectError, Fault
from .limits import Limits, Timeouts

if TYPE_CHECKING:
    from .connection import Connection
    from .delivery import Permit, Sink
    from .endpoint import Endpoint
    from .message import HttpRequest


class Pool:
    """Keep-alive connections to one endpoint, on one event loop.

    A place is held from the first packet of the connect to the loss of the connection, so
    `Limits.connections` bounds sockets, not calls. Whoever finds no place waits in line; nobody overtakes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        *,
        resend_on_stale_connection: bool = True,
        keepalive: float = 30.0,
    ) -> None:
        """Prepare; no connection is opened before the first exchange.

        `resend_on_stale_connection`: send a request once more, on a fresh connection, when a kept one ends
        before any byte of the answer. `keepalive`: seconds for which an idle connection is kept.

        Raises:
            OSError: the endpoint's trust file cannot be read.
            ssl.SSLError: the endpoint's trust file is not PEM.
        """
        self.endpoint = endpoint
        self.resends = resend_on_stale_connection
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or Limits()
        self._keepalive = keepalive
        self._context = endpoint.ssl_context()
        self._places = 0
        self._members: set[Connection] = set()
        # Ordered sets: the newest idle connection is reused, the oldest expires, any may vanish. Not plain
        # dictionaries: taking the first key of one again and again walks over all that were taken before.
        self._idle: OrderedDict[Connection, float] = OrderedDict()
        self._waiting: OrderedDict[Exchange, None] = OrderedDict()
        self._opening: dict[Exchange, asyncio.Task[Connection]] = {}
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    @property
    def timeouts(self) -> Timeouts:
        """What holds for an exchange that names none."""
        return self._timeouts

    @property
    def open_connections(self) -> int:
        """Connections open or being opened, idle ones included."""
        return self._places

    @property
    def idle_connections(self) -> int:
        """Connections that wait for an exchange."""
        return len(self._idle)

    @property
    def waiting(self) -> int:
        """Exchanges in line for a place."""
        return len(self._waiting)

    def exchange(
        self,
        request: HttpRequest,
        sink: Sink,
        timeouts: Timeouts | None = None,
        permit: Permit | None = None,
    ) -> Exchange:
        """Prepare an exchange; `timeouts` replaces the pool's own, `permit` must allow each attempt to leave."""
        return Exchange(self, request, sink, timeouts or self._timeouts, self._limits, permit)

    async def aclose(self) -> None:
        """Cut what runs (cause DRAIN), close every connection and wait until all are gone. Later exchanges are cut."""
        self._closed = True
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        for exchange in [*self._waiting, *self._opening]:
            exchange.cut(Cause.DRAIN, "pool closed")
        for connection in list(self._members):
            if isinstance(connection.owner, Exchange):
                connection.owner.cut(Cause.DRAIN, "pool closed")
            else:
                connection.retire()
        while self._places:
            if self._emptied is None or self._emptied.done():
                self._emptied = asyncio.get_running_loop().create_future()
            # Shielded: who waits here and is cancelled must not take the future from another who waits.
            await asyncio.shield(self._emptied)

    # What exchanges ask for.

    def acquire(self, exchange: Exchange) -> None:
        """Give `exchange` a connection: now, when one is opened, or when its turn comes."""
        if self._closed:
            exchange.cut(Cause.DRAIN, "pool closed")
            return
        # While anyone waits nothing is idle and every place is taken: what is given back goes to the first in line.
        connection = self._take_idle()
        if connection is not None:
            exchange.begin(connection, reused=True)
        elif self._places >= self._limits.connections:
            self._waiting[exchange] = None
            exchange.queued()
        else:
            self._places += 1
            self._open(exchange)

    def withdraw(self, exchange: Exchange) -> None:
        """Forget an exchange that waits for a connection."""
        self._waiting.pop(exchange, None)
        task = self._opening.get(exchange)
        if task is not None:
            task.cancel()

    def release(self, connection: Connection, *, reusable: bool) -> None:
        """Take a connection back; unless it is reusable it is closed now."""
        connection.owner = None
        if not reusable or self._closed or connection.is_closing:
            connection.abort()
            return
        # The last read may have made its reader ask for a pause, which is not the next one's.
        connection.resume_reading()
        if self._waiting:
            self._next_waiting().begin(connection, reused=True)
        else:
            now = asyncio.get_running_loop().time()
            self._idle[connection] = now
            if self._sweep_handle is None:
                self._sweep_at(now + self._keepalive)

    def replace(self, connection: Connection, exchange: Exchange) -> None:
        """Open a fresh connection for `exchange` in the place of one that went stale under it."""
        if connection in self._members:
            self._members.discard(connection)
        else:
            self._places += 1
        connection.abort()
        if self._closed:
            self._free_place()
            exchange.cut(Cause.DRAIN, "pool closed")
        else:
            self._open(exchange)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_fresh_enough():
                return connection
            connection.abort()
        return None

    def _next_waiting(self) -> Exchange:
        return self._waiting.popitem(last=False)[0]

    def _open(self, exchange: Exchange) -> None:
        exchange.connecting()
        opening = open_connection(self.endpoint, self._context, exchange.timeouts.connect, self._lost)
        task = asyncio.get_running_loop().create_task(opening)
        self._opening[exchange] = task
        task.add_done_callback(partial(self._opened, exchange))

    def _opened(self, exchange: Exchange, task: asyncio.Task[Connection]) -> None:
        del self._opening[exchange]
        if task.cancelled():
            self._free_place()
            exchange.cut(Cause.CALLER, "cancelled while connecting")
            return
        error = task.exception()
        if error is None:
            self._admit(task.result(), exchange)
            return
        self._free_place()
        if isinstance(error, ConnectError):
            exchange.unreachable(error)
        elif isinstance(error, Exception):
            exchange.failed(error)

    def _admit(self, connection: Connection, exchange: Exchange) -> None:
        if connection.is_lost:
            self._free_place()
            exchange.unreachable(
                ConnectError(Fault.CONNECT_FAILED, "the connection was lost as soon as it was open")
            )
            return
        self._members.add(connection)
        if exchange.end is None:
            exchange.begin(connection, reused=False)
        else:
            connection.abort()

    def _lost(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        if connection in self._members:
            self._members.discard(connection)
            self._free_place()

    def _free_place(self) -> None:
        self._places -= 1
        if self._waiting and not self._closed:
            self._places += 1
            self._open(self._next_waiting())
        elif not self._places and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep_at(self, when: float) -> None:
        self._sweep_handle = asyncio.get_running_loop().call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._sweep_handle = None
        oldest_allowed = asyncio.get_running_loop().time() - self._keepalive
        while self._idle:
            connection, since = next(iter(self._idle.items()))
            # uvloop's timers may be a millisecond early.
            if since > oldest_allowed + 0.001:
                self._sweep_at(since + self._keepalive)
                return
            del self._idle[connection]
            connection.retire()
