"""Server-sent events: bytes of a response body in, events out.

Owns the framing only (WHATWG grammar, R-S1) and the errors that providers write past it (R-S3, R-E5). What an
event means is the accumulators' business; data stays bytes, so that one bad character costs no event.
Invariants: any chunking of the same bytes gives the same events; time is linear in the bytes; memory is
bounded by the event limit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from modelmeter_server.core.bare_document import BareDocument, may_begin

EVENT_LIMIT: Final = 16 * 1024 * 1024
"""Bytes that one event may hold by default. Recorded lines reach 40 kB, reported ones 144 kB; media in an
answer takes megabytes."""

_BOM: Final = b"\xef\xbb\xbf"
_PIECE: Final = 256 * 1024  # splitting a larger chunk at once would build a line list of many times its size
_FIELDS: Final = frozenset((b"", b"data", b"event", b"id", b"retry"))  # b"": a comment
_KNOWN_NAMES: Final = 64  # providers use fewer than thirty event names; a hostile one must not grow the table
_NAME_LINE: Final = 128


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """Hold one event whose data is not blank.

    An error that was written outside any event (R-S3, R-E5) is an event named `error`, as if the provider
    had framed it.
    """

    name: str
    """Value of the `event:` field; empty when there was none."""
    data: bytes
    """The data lines joined by LF, not decoded. Never empty, never only white space."""
    unterminated: bool = False
    """The body ended before the blank line: take it only if its data parses or is `[DONE]` (R-S2)."""


class EventTooLarge(Exception):
    """Report an event or a line over the limit; the stream cannot be read any further."""

    def __init__(self, limit: int, events: list[SseEvent]) -> None:
        super().__init__(f"an event of the stream is larger than {limit} bytes")
        self.limit = limit
        self.events = events
        """The events that were complete before the large one, in order. They count."""


class SseSplitter:
    """Split the bytes of one event stream into events. One instance reads one body."""

    __slots__ = (
        "_bom",
        "_data",
        "_dead",
        "_document",
        "_held",
        "_joined",
        "_limit",
        "_name",
        "_names",
        "_partial",
        "_recognised",
        "_skip_lf",
        "_steady",
    )

    def __init__(self, *, event_limit: int = EVENT_LIMIT) -> None:
        """Start before the first byte; an event or a line over `event_limit` bytes makes `feed` raise."""
        self._limit = event_limit
        self._bom: bytes | None = b""
        self._skip_lf = False
        self._dead = False
        self._steady = False
        self._partial = bytearray()
        self._held = (
            0  # at least what the open event and the open line hold; measured when it nears the limit
        )
        self._name = ""
        self._data: bytes | None = None
        self._joined: bytearray | None = None
        self._document: BareDocument | None = None
        self._names: dict[bytes, str] = {}
        self._recognised = False

    @property
    def recognised(self) -> bool:
        """Tell whether any field or comment line was seen: an HTML page with status 200 has none."""
        return self._recognised

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes, in order.

        Raises `EventTooLarge`, which carries the events completed before the large one; every later call
        raises too.
        """
        out: list[SseEvent] = []
        if len(chunk) <= _PIECE:
            self._feed(chunk, out)
        else:
            for start in range(0, len(chunk), _PIECE):
                self._feed(chunk[start : start + _PIECE], out)
        return out

    def close(self, clean: bool) -> list[SseEvent]:
        """Return what the end of the body completes.

        A clean end gives the open event, marked `unterminated`; a reset drops it (R-S2). A bare error
        document whose closing brace came is whole by itself and counts after both.
        """
        out: list[SseEvent] = []
        if self._dead:
            return out
        if self._partial:
            line = bytes(self._partial)
            self._partial.clear()
            self._line(line, out)
        data = self._take_data()
        if clean and data:
            out.append(SseEvent(self._name, data, unterminated=True))
        self._name = ""
        if self._document is not None:
            self._end_document(out, at_end=True, clean=clean)
        return out

    def _settle(self, chunk: bytes) -> bytes:
        """Do what only the start of a stream and the byte after a CR need."""
        if self._dead:
            raise EventTooLarge(self._limit, [])
        if not chunk:
            return chunk
        if self._skip_lf:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if self._bom is not None:
            chunk = self._bom + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._bom = chunk
                return b""
            self._bom = None
            chunk = chunk.removeprefix(_BOM)
        self._steady = True
        return chunk

    def _feed(self, chunk: bytes, out: list[SseEvent]) -> None:
        if not self._steady:
            chunk = self._settle(chunk)
        lines = chunk.split(b"\n") if b"\r" not in chunk else self._split_at_cr(chunk)
        rest = lines.pop()
        partial = self._partial
        self._held += len(chunk)
        if self._held > self._limit:
            self._held = self._weight() + len(partial) + len(chunk)
        tight = self._held > self._limit
        if lines:
            if partial:
                partial += lines[0]
                lines[0] = bytes(partial)
                partial.clear()
            if tight:
                self._take_checked(lines, out)
            else:
                self._take(lines, out)
        if rest:
            partial += rest
            if tight:
                self._check(len(partial), out)

    def _split_at_cr(self, chunk: bytes) -> list[bytes]:
        # Nothing but CRLF is the usual case. A search for one byte is several times as fast as for two.
        lines = chunk.split(b"\n")
        rest = lines.pop()
        bare = [line[:-1] for line in lines if line[-1:] == b"\r"]
        if len(bare) == len(lines) == chunk.count(b"\r"):
            bare.append(rest)
            return bare
        # A CR at the end of a read ends its line at once and swallows one LF later: holding it back would
        # delay the event until the next read, which a provider with CR line ends may send seconds later.
        if chunk[-1] == 13:
            self._skip_lf = True
            self._steady = False
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _weight(self) -> int:
        """Bytes of the open event. It must not depend on the chunking, or the limit would."""
        if self._joined is not None:
            return len(self._name) + len(self._joined)
        return len(self._name) + len(self._data) if self._data is not None else len(self._name)

    def _check(self, size: int, out: list[SseEvent]) -> None:
        if self._weight() + size > self._limit:
            self._dead = True
            self._steady = False
            self._partial.clear()
            self._data = self._joined = self._document = None
            raise EventTooLarge(self._limit, out)

    def _take_checked(self, lines: list[bytes], out: list[SseEvent]) -> None:
        for line in lines:
            self._check(len(line), out)
            self._take([line], out)

    def _take(self, lines: list[bytes], out: list[SseEvent]) -> None:
        """Read whole lines: the shapes that nearly every line has here, the others in `_line`."""
        name, data, names = self._name, self._data, self._names
        plain = self._recognised and self._joined is None and self._document is None
        for line in lines:
            if plain:
                if not line:
                    if data and not data.isspace():
                        out.append(SseEvent(name, data))
                    name, data = "", None
                    continue
                if data is None:
                    if names and not name and line in names:
                        name = names[line]
                        continue
                    if line[:6] == b"data: ":
                        data = line[6:]
                        continue
                    if line[:5] == b"data:":
                        data = line[5:]
                        continue
            self._name, self._data = name, data
            self._line(line, out)
            name, data = self._name, self._data
            plain = self._recognised and self._joined is None and self._document is None
        self._name, self._data = name, data

    def _line(self, line: bytes, out: list[SseEvent]) -> None:
        """Read one line by the whole grammar."""
        if not line:
            data = self._take_data()
            if data:
                out.append(SseEvent(self._name, data))
            self._name = ""
            self._end_document(out)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field in _FIELDS:
            self._recognised = True
            if field:  # a comment in the middle of a bare document does not end it
                self._end_document(out)
            if field == b"data":
                self._add_data(value)
            elif field == b"event":
                self._set_name(line, value)
        elif field == b"error" and value[:1] == b"{":
            # `error: {...}` is no field of the grammar, so strict parsers drop the only word about a failure
            # (llama.cpp behind GPUStack).
            self._recognised = True
            self._end_document(out)
            self._gather(BareDocument(marked=True), value, out)
        elif self._document is not None:
            self._gather(self._document, line, out)
        elif may_begin(line):
            self._gather(BareDocument(marked=False), line, out)

    def _add_data(self, value: bytes) -> None:
        if self._joined is not None:
            self._joined += b"\n"
            self._joined += value
        elif self._data is not None:
            # One growing buffer: a list of a million one-byte lines would weigh fifty times the limit.
            self._joined = bytearray(self._data)
            self._data = None
            self._add_data(value)
        else:
            self._data = value

    def _set_name(self, line: bytes, value: bytes) -> None:
        self._name = value.decode("utf-8", "replace")
        if len(line) <= _NAME_LINE and len(self._names) < _KNOWN_NAMES:
            self._names[line] = self._name

    def _take_data(self) -> bytes:
        """Return the data of the open event and forget it; blank data is no event (R-S3)."""
        data = bytes(self._joined) if self._joined is not None else self._data or b""
        self._data = self._joined = None
        return b"" if data.isspace() else data

    def _gather(self, document: BareDocument, line: bytes, out: list[SseEvent]) -> None:
        self._document = document
        if document.add(line):
            self._end_document(out)

    def _end_document(self, out: list[SseEvent], *, at_end: bool = False, clean: bool = True) -> None:
        document, self._document = self._document, None
        if document is None:
            return
        if document.is_error():
            out.append(SseEvent("error", document.text()))
        elif document.marked and clean and document.text() and not document.is_whole():
            # The provider called it an error; that its text is broken does not make it anything else.
            out.append(SseEvent("error", document.text(), unterminated=at_end))
