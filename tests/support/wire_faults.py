"""The faults by name: replies of the fault server that more than one test folder wants."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence

from tests.support.fault_server import End, Reply


def event_stream(events: Sequence[bytes], end: End = "clean") -> Reply:
    """Answer like a provider: each event a chunk of its own."""
    return Reply(headers={"content-type": "text/event-stream"}, chunks=events, end=end)


def close_on_accept(end: End = "truncate") -> Reply:
    """Close before a byte of the request was read."""
    return Reply(on_accept=True, silent=True, end=end)


def close_while_written(read: int = 100_000, end: End = "reset") -> Reply:
    """Close after `read` bytes of the body."""
    return Reply(read_body=read, silent=True, end=end)


def close_after_written(end: End = "truncate") -> Reply:
    """Close once the request was read whole, without an answer."""
    return Reply(silent=True, end=end)


def never_read() -> Reply:
    """Leave the request in the socket and say nothing."""
    return Reply(on_accept=True, silent=True, end="stall")


def never_answer() -> Reply:
    """Read the request and say nothing."""
    return Reply(silent=True, end="stall")


def early(status: int, body: bytes = b"{}", *, polite: bool = False) -> Reply:
    """Answer before the body was read; then close upon the unread rest, or politely read it."""
    return Reply(status, {"connection": "close"}, [body], framing="length", early=True, drain=polite)


def html_error(status: int = 502) -> Reply:
    """Answer as a load balancer does when its backend is gone."""
    page = b"<html><head><title>Bad Gateway</title></head></html>"
    return Reply(status, {"content-type": "text/html"}, [page], framing="length")


def redirect(status: int = 307, location: str = "http://127.0.0.1:9/elsewhere") -> Reply:
    """Send the client elsewhere."""
    return Reply(status, {"location": location}, framing="length")


def half_body(body: bytes, end: End = "truncate") -> Reply:
    """Announce twice what comes."""
    return Reply(chunks=[body], framing="length", announce=2 * len(body), end=end)


def interim_first(body: bytes = b"{}") -> Reply:
    """Send 100 and 103 before the answer."""
    interim = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"]
    return Reply(interim=interim, chunks=[body])


def garbage(data: bytes = b"\x16\x03\x01 SSH-2.0 hello\r\n\r\n") -> Reply:
    """Answer with something that is no HTTP."""
    return Reply(raw=[data], end="stall")


def huge_header(size: int) -> Reply:
    """Send one whole header of `size` bytes."""
    return Reply(headers={"x-padding": "p" * size}, framing="length")


def endless_header() -> Reply:
    """Begin a header line and never end it."""
    return Reply(raw=_endless(b"HTTP/1.1 200 OK\r\nx-padding: ", b"p" * 1024))


def endless_headers() -> Reply:
    """Send one small header after another."""
    return Reply(raw=_endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 200))


def endless_trailers() -> Reply:
    """End the body, then send trailers for ever."""
    return Reply(
        raw=_endless(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"x: y\r\n" * 200
        )
    )


def endless_line() -> Reply:
    """Stream one event-stream line that never ends."""
    return Reply(headers={"content-type": "text/event-stream"}, chunks=_endless(b"data: ", b"x" * 65536))


def split_everywhere(body: bytes) -> Reply:
    """Send every byte as a chunk of its own: multi-byte characters and line ends fall apart."""
    return Reply(chunks=[body[i : i + 1] for i in range(len(body))])


def gzipped(parts: Sequence[bytes], end: End = "clean", keep: int | None = None) -> Reply:
    """Send `parts` gzip-coded and flushed one by one; `keep` leaves only the first bytes of the whole."""
    packer = zlib.compressobj(wbits=31)
    chunks = [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    chunks.append(packer.flush())
    if keep is not None:
        chunks = [b"".join(chunks)[:keep]]
    return Reply(headers={"content-encoding": "gzip"}, chunks=chunks, end=end)


def gzip_bomb(mebibytes: int) -> Reply:
    """Send zeros that unpack to `mebibytes`, about a thousandth of that on the wire."""
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the coder starts afresh: the same block may be repeated as often as one likes.
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return Reply(headers={"content-encoding": "gzip"}, chunks=[start, *[block] * (mebibytes - 1)])


def bytes_after_message(after: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") -> Reply:
    """Send more than one answer to one request."""
    return Reply(chunks=[b"{}"], after=after, joined=True)


def held(before: Sequence[bytes], gate: asyncio.Event, after: Sequence[bytes], end: End = "clean") -> Reply:
    """Stream `before`, wait for `gate`, stream `after`."""
    return Reply(headers={"content-type": "text/event-stream"}, chunks=[*before, gate, *after], end=end)


def _endless(start: bytes, block: bytes) -> Iterator[bytes]:
    yield start
    while True:
        yield block
