"""A provider that costs next to nothing: one answer, rendered once, sent whole.

Run as `python -m bench.provider`: prints the port, serves on loopback until its standard input ends. Every event of
the answer stands in an HTTP chunk of its own, as providers send them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

EVENTS = 400
"""Text deltas in the answer: a page of text."""


def answer_bytes(deltas: int = EVENTS) -> bytes:
    """Return the HTTP answer with an Anthropic stream of so many text deltas."""
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_bench",
                "type": "message",
                "role": "assistant",
                "model": "bench-1",
                "content": [],
                "usage": {"input_tokens": 25, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"word{n} "}}
            for n in range(deltas)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": deltas},
        },
        {"type": "message_stop"},
    ]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(map(_chunk, events)) + b"0\r\n\r\n"


def _chunk(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, separators=(",", ":"))
    payload = f"event: {event['type']}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class Provider(asyncio.Protocol):
    """Answer every request on a connection once its body is whole; no pipelining."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
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
            self._transport.write(self._answer)


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    answer = answer_bytes()
    server = await loop.create_server(lambda: Provider(answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
