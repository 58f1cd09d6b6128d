"""Content decoding in bounded steps: gzip and deflate, bytes in, pieces out.

A compressed byte can stand for a thousand, so nothing here ever holds more than one piece of decoded output:
the caller counts what it takes and stops when it has had enough.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 1024 * 1024
"""The most decoded bytes handed out at once."""

_GZIP = 16 + zlib.MAX_WBITS
_RAW_DEFLATE = -zlib.MAX_WBITS
# A server that flushes by closing members makes a few; without a bound, empty ones (20 bytes) would buy a
# fresh inflate state each.
_MAX_MEMBERS = 1024


class DecodingError(Exception):
    """The body is not what its Content-Encoding says, or is coded in a way nobody asked for."""


class GzipDecoder:
    """Decode gzip with any number of members. What follows the last member and is no gzip is ignored."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP)
        self._members = 1
        self._between = False
        self._magic = b""
        self._padding = False

    @property
    def is_whole(self) -> bool:
        """Say whether the bytes so far end where a member ends."""
        return self._between

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` decodes to, at most PIECE_BYTES at a time.

        Raises:
            DecodingError: the data is not gzip.
        """
        while data and not self._padding:
            if self._between:
                data = self._next_member(data)
                if not data:
                    return
            yield from _pieces(self._inflate, data)
            data = self._inflate.unused_data
            self._between = self._inflate.eof

    def _next_member(self, data: bytes) -> bytes:
        """Begin another member if `data` does; return what to feed it, nothing while that is open or is not so."""
        data = self._magic + data
        if not (data.startswith(b"\x1f\x8b") or b"\x1f\x8b".startswith(data)):
            # RFC 1952 leaves padding to the application. The answer is whole: keep it.
            self._padding = True
            return b""
        if len(data) < 2:
            self._magic = data
            return b""
        self._members += 1
        if self._members > _MAX_MEMBERS:
            msg = "too many gzip members"
            raise DecodingError(msg)
        self._magic, self._between = b"", False
        self._inflate = zlib.decompressobj(_GZIP)
        return data


class DeflateDecoder:
    """Decode `deflate` in both of its readings: zlib data as RFC 9110 says, raw deflate as some servers send."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        self._start = b""

    @property
    def is_whole(self) -> bool:
        """Say whether the compressed data has come to its own end."""
        return self._inflate is not None and self._inflate.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` decodes to, at most PIECE_BYTES at a time.

        Raises:
            DecodingError: the data is neither zlib nor raw deflate.
        """
        if self._inflate is None:
            data = self._start + data
            if len(data) < 2:
                self._start = data
                return
            is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else _RAW_DEFLATE)
        if not self._inflate.eof:
            yield from _pieces(self._inflate, data)


class UnknownDecoder:
    """Stand in for a coding nobody asked for: an empty body passes, the first byte does not."""

    is_whole = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Refuse `data`.

        Raises:
            DecodingError: always, once there is a byte.
        """
        if data:
            msg = "a content coding other than gzip or deflate"
            raise DecodingError(msg)
        yield from ()


Decoder = GzipDecoder | DeflateDecoder | UnknownDecoder


def decoder_for(content_encoding: tuple[str, ...]) -> Decoder | None:
    """Choose the decoder for these Content-Encoding values; `None` when the body is to be taken as it is."""
    codings = [coding.strip().lower() for value in content_encoding for coding in value.split(",")]
    match [coding for coding in codings if coding not in ("", "identity")]:
        case []:
            return None
        case ["gzip" | "x-gzip"]:
            return GzipDecoder()
        case ["deflate"]:
            return DeflateDecoder()
        case _:
            return UnknownDecoder()


def _pieces(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    piece = b""
    # zlib may hold output back when the limit was met exactly as the input ran out: a full piece means ask again.
    while (data or len(piece) == PIECE_BYTES) and not inflate.eof:
        try:
            piece = inflate.decompress(data, PIECE_BYTES)
        except zlib.error as exc:
            msg = "the compressed body does not decode"
            raise DecodingError(msg) from exc
        data = inflate.unconsumed_tail
        if piece:
            yield piece
