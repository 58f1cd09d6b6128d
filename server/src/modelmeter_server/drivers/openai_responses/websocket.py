"""One WebSocket to the provider: opened, written to exactly, read, closed. It carries one turn at a time.

The library `websockets` speaks the protocol, without I/O of its own; the bytes go over the same connection as HTTP's,
with its proxy, its TLS and its exact writes. So a turn's stage is a fact here too: it is WRITTEN when the last byte of
its frame has left this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from modelmeter_server.drivers.http.connect import open_connection
from modelmeter_server.drivers.http.faults import ConnectError, Fault
from modelmeter_server.drivers.http.message import Headers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from modelmeter_server.drivers.http import Endpoint
    from modelmeter_server.drivers.http.connection import Connection
    from modelmeter_server.drivers.http.limits import Limits, Timeouts

PIECE_BYTES: Final = 64 * 1024
"""What is handed to the network at once, as for HTTP; the next piece waits until it is out."""

MAX_WAITING: Final = 1_024
"""Answers to pings that may wait behind a frame that the peer does not read; one more ends the connection."""

# At DEBUG the library logs every header and frame, keys and prompts included; so it gets a logger that is never on.
_SILENT: Final = logging.Logger("websockets", logging.CRITICAL + 1)


class HandshakeRefused(Exception):
    """The provider answered the upgrade with an HTTP status of its own; no turn was sent."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body


class Rider(Protocol):
    """The turn that a socket carries. Called from its read and write path; must not block."""

    def writing(self) -> None:
        """The first bytes of the turn are handed over."""

    def written(self) -> None:
        """The whole turn has left this process."""

    def message(self, data: bytes) -> None:
        """One whole message came."""

    def alive(self) -> None:
        """Something came or left that is no message, such as a ping or a piece of a large one."""

    def closed(self, code: int, *, by_peer: bool) -> None:
        """The socket was closed: by the peer's close frame, or by us because of what it sent."""

    def lost(self, error: BaseException | None) -> None:
        """The connection ended without a close frame."""

    def failed(self, error: Exception) -> None:
        """Our own code raised."""


class Socket:
    """One WebSocket. After `abort`, `close` or the peer's end nothing of it is ever heard again."""

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        target: str,
        headers: Sequence[tuple[str, str]],
        *,
        timeouts: Timeouts,
        limits: Limits,
    ) -> None:
        """Open nothing yet. `number` tells it from the session's other sockets; `target` is path and query."""
        self.number = number
        self.turns = 0
        """Turns that it has been given."""
        self.handshake_headers = Headers()
        self._endpoint = endpoint
        self._context = context
        self._headers = headers
        self._timeouts = timeouts
        scheme = "ws" if endpoint.scheme == "http" else "wss"
        uri = parse_uri(f"{scheme}://{endpoint.authority}{target}")
        # No compression: it saves little on events of a hundred bytes, and costs memory that a peer can inflate.
        self._protocol = ClientProtocol(uri, max_size=limits.event_bytes, logger=_SILENT)
        self._connection: Connection | None = None
        self._opening: asyncio.Future[None] | None = None
        self._opened_at = 0.0
        self._rider: Rider | None = None
        self._unsent: deque[tuple[memoryview, bool]] = deque()
        """Pieces, and whether each belongs to a turn."""
        self._turn_pieces = 0
        self._is_writing = False
        self._message = bytearray()
        self._is_over = False

    # What its link asks

    @property
    def is_open(self) -> bool:
        """Say whether a turn can be sent."""
        connection = self._connection
        return (
            not self._is_over
            and connection is not None
            and not connection.is_closing
            and self._protocol.state is State.OPEN
        )

    def is_alive(self) -> bool:
        """Look into the connection, so that no turn is sent on one that the peer has just closed."""
        return self.is_open and self._connection is not None and self._connection.is_fresh_enough()

    @property
    def age(self) -> float:
        """Return the seconds since it was opened."""
        return asyncio.get_running_loop().time() - self._opened_at

    async def open(self) -> None:
        """Connect and upgrade; call it once. Raises ConnectError and HandshakeRefused. Cancelling closes it."""
        try:
            async with asyncio.timeout(self._timeouts.connect):
                self._connection = await open_connection(
                    self._endpoint, self._context, self._timeouts.connect, lambda _lost: None
                )
        except TimeoutError as error:
            raise ConnectError(
                Fault.CONNECT_TIMEOUT, f"no connection to {self._endpoint.host} in time"
            ) from error
        try:
            async with asyncio.timeout(self._timeouts.first_byte):
                await self._upgrade(self._connection)
        except TimeoutError as error:
            self.abort()
            raise ConnectError(
                Fault.CONNECT_TIMEOUT, "the provider did not answer the upgrade in time"
            ) from error
        except BaseException:
            self.abort()
            raise
        self._opened_at = asyncio.get_running_loop().time()

    async def _upgrade(self, connection: Connection) -> None:
        self._opening = asyncio.get_running_loop().create_future()
        request = self._protocol.connect()
        for name, value in self._headers:
            request.headers[name] = value
        self._protocol.send_request(request)
        connection.owner = self
        self._flush()
        await self._opening

    def begin(self, rider: Rider, frame: bytes) -> None:
        """Send a turn's frame, UTF-8 text; what comes from now on goes to `rider`, until `part`."""
        self._rider = rider
        self.turns += 1
        self._is_writing = False
        self._protocol.send_text(frame)
        self._queue(is_turn=True)
        self.resumed()

    def part(self, rider: Rider) -> None:
        """Let go of a turn that has ended. Between turns frames are nothing."""
        if self._rider is rider:
            self._rider = None

    def pause_reading(self) -> None:
        """Let the provider wait; its pings wait too."""
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        if self._connection is not None:
            self._connection.resume_reading()

    @property
    def is_written(self) -> bool:
        """Say whether nothing of a turn waits to be sent."""
        return not self._turn_pieces

    def abort(self) -> None:
        """Close now, whatever is under way: the provider stops generating, and nothing is heard any more."""
        self._is_over = True
        self._rider = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        """Close in good order, between turns."""
        connection = self._connection
        if self.is_open and connection is not None:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            connection.owner = None
            self._connection = None
            connection.retire()
        self.abort()

    # What the connection says

    def received(self, data: bytes) -> None:
        """Take one read."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._answered(event)
            elif isinstance(event, Frame):
                self._take(event)
        self._flush()
        self._look_at_handshake()
        if self._protocol.state is not State.OPEN and self._opening is None:
            self._closed()
        elif self._rider is not None:
            self._rider.alive()

    def resumed(self) -> None:
        """Write on, as far as the network takes it."""
        connection = self._connection
        while connection is not None and connection.is_writable:
            if self._is_writing and not self._turn_pieces:
                self._is_writing = False
                if self._rider is not None:
                    self._rider.written()
            if not self._unsent:
                return
            self._write(connection)

    def _write(self, connection: Connection) -> None:
        piece, is_turn = self._unsent.popleft()
        if is_turn:
            self._turn_pieces -= 1
            if self._rider is not None:
                if not self._is_writing:
                    self._rider.writing()
                self._rider.alive()
            self._is_writing = True
        connection.write(piece)

    def ended(self, error: BaseException | None, *, clean: bool) -> None:
        """Learn that the connection is at its end."""
        del clean
        connection = self._connection
        if self._is_writing and not self._turn_pieces and connection is not None and connection.is_drained:
            # The last piece left in the very moment of the loss: it may have landed.
            self._is_writing = False
            if self._rider is not None:
                self._rider.written()
        if self._opening is not None and not self._opening.done():
            self._protocol.receive_eof()
            self._look_at_handshake()
            if not self._opening.done():
                self._opening.set_exception(
                    ConnectError(Fault.CONNECT_FAILED, "the connection was lost during the upgrade")
                )
            return
        rider = self._rider
        self.abort()
        if rider is not None:
            rider.lost(error)

    def failed(self, error: Exception) -> None:
        """Learn that our own code raised."""
        rider = self._rider
        self.abort()
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(error)
        if rider is not None:
            rider.failed(error)

    # Handshake

    def _answered(self, response: Response) -> None:
        opening = self._opening
        if opening is None or opening.done():
            return
        headers = Headers(response.headers.raw_items())
        if self._protocol.handshake_exc is None:
            self.handshake_headers = headers
            self._opening = None
            opening.set_result(None)
        elif response.status_code != 101:
            opening.set_exception(
                HandshakeRefused(response.status_code, headers, bytes(response.body or b""))
            )

    def _look_at_handshake(self) -> None:
        opening = self._opening
        if opening is not None and not opening.done() and self._protocol.handshake_exc is not None:
            opening.set_exception(
                ConnectError(Fault.MALFORMED, "the provider's answer to the upgrade is no WebSocket's")
            )

    # Frames

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE or frame.opcode in (Opcode.PING, Opcode.PONG):
            return
        self._message += frame.data
        if frame.fin:
            message, self._message = bytes(self._message), bytearray()
            if self._rider is not None:
                self._rider.message(message)

    def _closed(self) -> None:
        told, ours = self._protocol.close_rcvd, self._protocol.close_sent
        rider = self._rider
        if told is not None:
            code, by_peer = told.code, True
        else:
            code, by_peer = (ours.code if ours is not None else CloseCode.ABNORMAL_CLOSURE), False
        self.abort()
        if rider is not None:
            rider.closed(code, by_peer=by_peer)

    def _queue(self, *, is_turn: bool = False) -> None:
        for data in self._protocol.data_to_send():
            pieces = [memoryview(data)[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
            self._unsent.extend((piece, is_turn) for piece in pieces)
            if is_turn:
                self._turn_pieces += len(pieces)

    def _flush(self) -> None:
        """Send what the protocol has to say for itself: after a turn's frame, never inside it."""
        self._queue()
        if len(self._unsent) - self._turn_pieces > MAX_WAITING:
            self.failed(ConnectionError("the peer asks for more answers than it reads"))
            return
        self.resumed()
