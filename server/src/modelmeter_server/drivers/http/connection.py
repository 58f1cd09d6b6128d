"""One TCP connection, perhaps under TLS: exact writes, reads handed to whoever owns it at the moment."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tls import TlsSession

_READ = 64 * 1024


class Owner(Protocol):
    """Who a connection reports to. Called from the loop's read and write path; must not block."""

    def received(self, data: bytes) -> None:
        """Take the plain bytes of one socket read, never empty."""

    def resumed(self) -> None:
        """Go on writing: everything written so far has left this process."""

    def ended(self, error: BaseException | None, *, clean: bool) -> None:
        """Learn that nothing more will come. `clean` means the peer closed in good order; called at most once."""

    def failed(self, error: Exception) -> None:
        """Learn that one of the calls above raised: a bug of ours, not the connection's."""


class Connection(asyncio.Protocol):
    """A connection on either event loop. With no owner it is idle; then anything but silence ends it."""

    def __init__(self, sock: socket.socket, on_lost: Callable[[Connection], None]) -> None:
        """Wrap a connected socket. `on_lost` is called once, after the owner was told, when it is gone for good."""
        self.owner: Owner | None = None
        self.tls: TlsSession | None = None
        self.is_lost = False
        """It is gone for good: the loop has let go of it."""
        self._sock = sock
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._paused = False
        self._drained = True
        self._aborted = False
        self._reading = True
        self._broken: ssl.SSLError | None = None

    @property
    def is_writable(self) -> bool:
        """Everything written so far is out of this process and more may follow."""
        return not (self._paused or self.is_closing)

    @property
    def is_drained(self) -> bool:
        """Every byte written so far left this process; stays true when the connection is lost afterwards."""
        return self._drained

    @property
    def is_closing(self) -> bool:
        """Say whether the connection is gone or going."""
        return self._aborted or self._transport is None or self._transport.is_closing()

    def write(self, data: bytes | memoryview) -> None:
        """Hand over one piece; only while `is_writable`. A failure shows as `is_closing`, then as `Owner.ended`."""
        if self.tls is not None:
            try:
                data = self.tls.encrypt(data)
            except ssl.SSLError as exc:
                self._drained, self._broken = False, exc
                if self._transport is not None:
                    self._transport.abort()
                return
        self.write_raw(data)

    def write_raw(self, data: bytes | memoryview) -> None:
        """Write past TLS: for the handshake and for what the session itself has to say."""
        if data and self._transport is not None and not self.is_closing:
            self._transport.write(data)
            self._drained = self.is_writable

    def abort(self) -> None:
        """Close now, whatever is unsent or unread. The owner hears nothing."""
        self.owner = None
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Close an idle connection in good order."""
        if self.tls is not None:
            self.write_raw(self.tls.say_goodbye())
        if self._transport is not None and self._drained:
            self._transport.close()
        self.abort()

    def pause_reading(self) -> None:
        """Let the peer wait: read no more until `resume_reading`."""
        if self._reading and not self.is_closing and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again after `pause_reading`."""
        if not self._reading and self._transport is not None:
            self._reading = True
            if not self.is_closing:
                self._transport.resume_reading()

    def is_fresh_enough(self) -> bool:
        """Look into the socket, so that an idle connection that the peer has just closed is not written to."""
        if self.is_closing:
            return False
        try:
            data = self._sock.recv(_READ, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if data:
            # Under TLS this may be a session ticket, which is no reason to part; `data_received` judges.
            self.data_received(data)
        return bool(data) and not self.is_closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # With a limit of 0 both loops pause in the very write that leaves a byte behind and resume at an empty buffer.
        self._transport.set_write_buffer_limits(high=0)
        if self._aborted:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused, self._drained = False, True
        # Not from here: asyncio's transport loses its footing (AttributeError) when a write in this very call fails.
        self._loop.call_soon(self._tell_resumed)

    def _tell_resumed(self) -> None:
        owner = self.owner
        if owner is not None and self.is_writable:
            try:
                owner.resumed()
            except Exception as exc:  # noqa: BLE001 - a bug of ours must not pass for a lost connection
                owner.failed(exc)

    def data_received(self, data: bytes) -> None:
        tls = self.tls
        if tls is not None:
            data = tls.decrypt(data)
            if not self.is_closing:
                self.write_raw(tls.outgoing())
        if data:
            self._hand_over(data)
        if tls is not None and (tls.closed or tls.error is not None):
            self._end(tls.error, clean=tls.error is None)

    def eof_received(self) -> None:
        # Under TLS a FIN without close_notify may be anyone's (RFC 9112 9.8): not a clean end.
        self._end(None, clean=self.tls is None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.owner is not None and exc is not None:
            self._rescue()
        self._end(exc or self._broken, clean=False)
        self._aborted = self.is_lost = True
        self._on_lost(self)

    def _rescue(self) -> None:
        """Read what the kernel still holds. After a failed write both loops stop reading, with an early 413 unread."""
        while self.owner is not None:
            try:
                data = self._sock.recv(_READ, socket.MSG_DONTWAIT)
            except OSError:
                return
            if not data:
                return
            self.data_received(data)

    def _hand_over(self, data: bytes) -> None:
        owner = self.owner
        if owner is None:
            # Nothing was asked, so nothing can be an answer: an answer to come would be taken for the next one's.
            self.abort()
            return
        try:
            owner.received(data)
        except Exception as exc:  # noqa: BLE001 - a bug of ours must not pass for a lost connection
            owner.failed(exc)

    def _end(self, error: BaseException | None, *, clean: bool) -> None:
        owner, self.owner = self.owner, None
        if owner is not None:
            try:
                owner.ended(error, clean=clean)
            except Exception as exc:  # noqa: BLE001 - a bug of ours must not pass for a lost connection
                owner.failed(exc)
        if not self._aborted:
            self.abort()
