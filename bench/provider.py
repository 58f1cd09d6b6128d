"""A provider that costs next to nothing: one answer for each wire format, rendered once, sent whole.

Run as `python -m bench.provider`: prints the port, serves on loopback until its standard input ends. The path of a
request says which wire format it wants.
"""

from __future__ import annotations

import asyncio
import sys

from bench.answers import answers, kind_of

EVENTS = 400
"""Text deltas in the answer: a page of text."""


class Provider(asyncio.Protocol):
    """Answer every request on a connection once its body is whole; no pipelining."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer when head and announced body are there."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= _content_length(head):
            self._received = b""
            self._transport.write(self._answers[kind_of(head.partition(b"\r\n")[0])])


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    rendered = answers(EVENTS)
    server = await loop.create_server(lambda: Provider(rendered), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
