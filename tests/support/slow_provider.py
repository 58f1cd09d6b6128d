"""A provider of many slow streams, as a process of its own: each gives a word now and then, until all may end.

Run as `python -m tests.support.slow_provider SECONDS`: prints its port, lets each stream have a word every so many
seconds, and once a line comes on its standard input ends each with its next word. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from . import anthropic_events
from .wire_bytes import Json, frame

INPUT_TOKENS = 7
OUTPUT_TOKENS = 11
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(*events: Json) -> bytes:
    data = b"".join(map(frame, events))
    return b"%x\r\n%b\r\n" % (len(data), data)


_START = _HEAD + _chunk(
    anthropic_events.start({"input_tokens": INPUT_TOKENS, "output_tokens": 1}), anthropic_events.opened(0)
)
_WORD = _chunk(anthropic_events.text(0, "word "))
_END = (
    _chunk(
        anthropic_events.closed(0),
        anthropic_events.ended("end_turn", {"output_tokens": OUTPUT_TOKENS}),
        anthropic_events.STOP,
    )
    + b"0\r\n\r\n"
)


class SlowStream(asyncio.Protocol):
    """One connection, and the stream on it. A request is one read: it is small, and nothing else comes."""

    is_ending = False

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"}"):
            self._received = b""
            self._transport.write(_START)
            self._tell()

    def _tell(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(_WORD)
        if SlowStream.is_ending:
            self._transport.write(_END)
        else:
            asyncio.get_running_loop().call_later(self._seconds, self._tell)


async def _serve(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SlowStream(seconds), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while await loop.run_in_executor(None, sys.stdin.readline):
        SlowStream.is_ending = True
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
