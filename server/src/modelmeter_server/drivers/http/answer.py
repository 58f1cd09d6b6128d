"""Reading one answer: bytes off the wire in, head and raw body out. No socket, no clock, no decoding.

The parser's callbacks only note what they saw; whoever feeds the bytes acts afterwards. So an exception can
come from our own code at one place only, and what a broken answer brought before it broke is still delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

from .faults import Fault
from .message import Headers, ResponseHead

if TYPE_CHECKING:
    from .limits import Limits

_BODILESS = frozenset({204, 304})


class AnswerReader:
    """Parse one answer of a connection. Feed it reads; look at the attributes after each."""

    def __init__(self, limits: Limits, *, to_head: bool = False) -> None:
        """Start reading. `to_head` tells that the request was HEAD: its answer announces a body and sends none."""
        self.head: ResponseHead | None = None
        """Head of the final answer, once whole."""
        self.begun = False
        """At least one byte arrived, of whatever it was."""
        self.complete = False
        """The message came to its end as HTTP defines it."""
        self.keep_alive = False
        """The connection may carry another exchange. Known when `complete`."""
        self.excess = False
        """Bytes came after the end of the message."""
        self.failure: tuple[Fault, str] | None = None
        """What is wrong with the answer, once it is."""
        self.body_seen = False
        """At least one raw body byte arrived."""

        self._limits = limits
        self._to_head = to_head
        self._header_size = 0
        self._barren = 0
        self._interim = False
        self._until_close = False
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []
        self._parts_at_end: int | None = None
        # One C call per chunk and no Python frame: an event stream sends each event as a chunk of its own.
        self.on_body = self._parts.append
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse one read. Never raises for what the peer sent: see `failure`."""
        self.begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Fault.MALFORMED, "the peer switched protocols unasked")
        except httptools.HttpParserCallbackError as exc:
            raise exc.__context__ or exc from None
        except httptools.HttpParserError as exc:
            # llhttp's reasons are fixed sentences, no byte of the peer's is in them.
            self._fail(Fault.MALFORMED, f"not HTTP/1.x: {exc}")
        if not self.complete:
            self._count_barren(len(data))

    def take(self) -> bytes:
        """Return the raw body bytes of the reads since the last call, joined."""
        parts = self._parts
        if self._parts_at_end is not None:
            # A second message in the same read would have gone on appending.
            del parts[self._parts_at_end :]
            self._parts_at_end = 0
        if not parts:
            return b""
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        # Cleared in place: the parser holds this list's own append.
        parts.clear()
        self.body_seen = True
        return body

    def end_of_stream(self) -> None:
        """Tell that the peer closed in good order: that completes a body without a length (httptools has no
        such call)."""
        if self._until_close and self.failure is None:
            self.complete = True

    def close(self) -> None:
        """Let go of the parser, which holds methods of ours. Nothing is fed afterwards."""
        del self._parser

    @property
    def content_length(self) -> int | None:
        """The announced length of the raw body, or `None`."""
        value = self.head.headers.get("content-length") if self.head else None
        return int(value) if value and value.isdecimal() else None

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        self._header_size += len(name) + len(value) + 4
        if self._header_size > self._limits.header_bytes:
            self._fail(Fault.HEADER_LIMIT, f"headers over {self._limits.header_bytes} bytes")
        elif self.head is None:
            self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        # A refusal is one whatever else is wrong with its head; an answer that cannot be had whole is not begun.
        if self.failure is not None and status < 300:
            return
        if status < 200:
            self._interim = True
            if status < 100:
                self._fail(Fault.MALFORMED, "a status below 100")
            return
        headers = Headers(self._headers)
        self.head = ResponseHead(status, headers)
        codings = ",".join(headers.get_all("transfer-encoding")).replace(" ", "").lower()
        if codings not in ("", "identity", "chunked"):
            self._fail(Fault.ENCODING, "a transfer coding other than chunked")
        if self._to_head:
            self.complete = True
            self._parts_at_end = 0
        framed = codings == "chunked" or "content-length" in headers or status in _BODILESS
        self._until_close = not framed

    def on_message_complete(self) -> None:
        if self._interim:
            # llhttp ends every 1xx like a message of its own; the real answer is still to come.
            self._interim = False
            self._headers.clear()
            self._header_size = 0
        elif not self.complete:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
            self._parts_at_end = len(self._parts)

    def _count_barren(self, size: int) -> None:
        """Bound what is read without getting a body byte: an endless header costs quadratic time in the parser."""
        if self._parts:
            self._barren = 0
            return
        self._barren += size
        if self._barren > self._limits.header_bytes:
            self._fail(Fault.HEADER_LIMIT, f"over {self._limits.header_bytes} bytes without head or body")

    def _fail(self, fault: Fault, detail: str) -> None:
        if self.complete:
            self.excess = True
        elif self.failure is None:
            self.failure = (fault, detail)
