"""Amazon's event stream encoding (`application/vnd.amazon.eventstream`): bytes of a body in, frames out.

A frame is a prelude (total length and length of the headers, 32 bits each, big endian, and the CRC-32 of these eight
bytes), headers, a payload, and the CRC-32 of all before it. Invariants: any chunking of the same bytes gives the same
frames; time is linear in the bytes; memory is bounded by the frame limit. A frame with a bad checksum is a dead
connection: nothing after it can be trusted, not even where it begins.
"""

from __future__ import annotations

import struct

# The same function as zlib's, from a module that decompresses nothing.
from binascii import crc32
from collections.abc import Mapping
from typing import Final

import msgspec

from .sse import EVENT_LIMIT

_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_LENGTHS: Final = 8  # bytes of the prelude without its checksum
_OVERHEAD: Final = _PRELUDE.size + _CHECKSUM.size

MAX_HEADERS: Final = 128 * 1024
"""Bytes of headers that one frame may have, by the encoding's specification."""

_STRING: Final = 7
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # true, false, 8 to 64 bits, time, UUID
_SIZED: Final = (6, _STRING)  # bytes and text, which tell their length

# A stream repeats fewer than ten header blocks, byte for byte; a hostile one must not grow the table.
_KNOWN_HEADERS: Final = 64
_KNOWN_LENGTH: Final = 256


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message of the stream."""

    headers: Mapping[str, str]
    """Its headers of type string; providers use no other."""
    payload: bytes


class BadFrame(Exception):
    """Report bytes that are no frame; the stream cannot be read any further."""

    def __init__(self, reason: str, frames: list[Frame]) -> None:
        super().__init__(reason)
        self.frames = frames
        """The frames that were whole before, in order. They count."""


class FrameTooLarge(BadFrame):
    """Report a frame over the limit."""


class FrameDecoder:
    """Cut the bytes of one body into frames. One instance reads one body."""

    __slots__ = ("_buffer", "_is_dead", "_known", "_limit", "_wanted")

    def __init__(self, *, frame_limit: int = EVENT_LIMIT) -> None:
        """Start before the first byte; `frame_limit` bounds one frame with all its parts, in bytes."""
        self._limit = frame_limit
        self._buffer = bytearray()
        self._wanted = _PRELUDE.size
        """Bytes that the buffer must hold before there is anything to do."""
        self._known: dict[bytes, dict[str, str]] = {}
        self._is_dead = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that the bytes complete. Raises BadFrame once; after it every byte is ignored."""
        if self._is_dead:
            return []
        if self._buffer:
            self._buffer += chunk
            if len(self._buffer) < self._wanted:
                return []
            chunk = bytes(self._buffer)
            self._buffer.clear()
        frames: list[Frame] = []
        try:
            start = self._cut(chunk, frames)
        except BadFrame:
            self._is_dead = True
            raise
        if start < len(chunk):
            self._buffer += chunk[start:]
        return frames

    def _cut(self, data: bytes, frames: list[Frame]) -> int:
        """Append the whole frames of the data; return where the first that is not whole begins."""
        start, size, known = 0, len(data), self._known
        while size - start >= _PRELUDE.size:
            total, headers_size, checksum = _PRELUDE.unpack_from(data, start)
            headers_at = start + _PRELUDE.size
            if crc32(data[start : start + _LENGTHS]) != checksum:
                reason = "a frame of the stream begins with a wrong checksum"
                raise BadFrame(reason, frames)
            if not _OVERHEAD + headers_size <= total <= self._limit or headers_size > MAX_HEADERS:
                raise self._impossible(total, headers_size, frames)
            if size - start < total:
                self._wanted = total
                return start
            start += total
            end = start - _CHECKSUM.size
            # The checksum of the whole goes on from that of the prelude.
            if (
                crc32(data[headers_at - _CHECKSUM.size : end], checksum)
                != _CHECKSUM.unpack_from(data, end)[0]
            ):
                reason = "a frame of the stream has a wrong checksum"
                raise BadFrame(reason, frames)
            payload_at = headers_at + headers_size
            block = data[headers_at:payload_at]
            headers = known.get(block)
            if headers is None:
                headers = self._read(block, frames)
            frames.append(Frame(headers, data[payload_at:end]))
        self._wanted = _PRELUDE.size
        return start

    def _impossible(self, total: int, headers: int, frames: list[Frame]) -> BadFrame:
        if total > self._limit and headers <= min(total - _OVERHEAD, MAX_HEADERS):
            return FrameTooLarge(f"a frame of the stream is larger than {self._limit} bytes", frames)
        return BadFrame("a frame of the stream has impossible lengths", frames)

    def _read(self, block: bytes, frames: list[Frame]) -> dict[str, str]:
        headers = _headers(block)
        if headers is None:
            reason = "a frame of the stream has headers that cannot be read"
            raise BadFrame(reason, frames)
        if len(self._known) < _KNOWN_HEADERS and len(block) <= _KNOWN_LENGTH:
            self._known[block] = headers
        return headers


def _headers(block: bytes) -> dict[str, str] | None:
    """Return the headers of type string; `None` if the block is damaged or names one twice."""
    headers: dict[str, str] = {}
    names: set[str] = set()
    position = 0
    try:
        while position < len(block):
            name_at, position = position + 1, position + 1 + block[position]
            name = block[name_at:position].decode("utf-8", "replace")
            type = block[position]
            position += 1
            if type in _SIZED:
                size = _LENGTH.unpack_from(block, position)[0]
                position += _LENGTH.size
            else:
                size = _SIZES[type]
            if name in names or position + size > len(block):
                return None
            names.add(name)
            if type == _STRING:
                headers[name] = block[position : position + size].decode("utf-8", "replace")
            position += size
    except (IndexError, KeyError, struct.error):
        return None
    return headers
