"""CPU of one exchange over the transport alone: 400 events of 120 bytes, each in an HTTP chunk of its own.

    python -m bench.transport [asyncio|uvloop] [exchanges] [in flight]

The server is a process of its own and sends the whole answer at once; only this process's CPU time is
counted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import sys
import time
from dataclasses import dataclass

import uvloop

from modelmeter_server.drivers.http import Endpoint, Fault, HttpRequest, Pool, ResponseHead

EVENTS = 400
EVENT = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"text":"0123456789abcdefg"}}\n\n'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + (b"%x\r\n%b\r\n" % (len(EVENT), EVENT)) * EVENTS
    + b"0\r\n\r\n"
)


class _Burst(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):
            self._transport.write(ANSWER)  # type: ignore[attr-defined]  # a Transport on either loop


def serve(listener: socket.socket) -> None:
    """Answer every request on `listener` until terminated."""

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(_Burst, sock=listener)
        await server.serve_forever()

    uvloop.run(forever())


@dataclass
class _Count:
    size: int = 0

    def written(self) -> None: ...

    def head(self, head: ResponseHead) -> None: ...

    def data(self, chunk: bytes) -> bool:
        self.size += len(chunk)
        return False


async def measure(port: int, exchanges: int, in_flight: int) -> float:
    """Return milliseconds of CPU per exchange."""
    pool = Pool(Endpoint.parse(f"http://127.0.0.1:{port}"))
    request = HttpRequest(
        "POST", "/v1/messages", (("content-type", "application/json"),), b'{"prompt":"hello"}'
    )
    left = exchanges

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            sink = _Count()
            end = await pool.exchange(request, sink).run()
            assert end.fault is Fault.NONE, end
            assert sink.size == EVENTS * len(EVENT)

    await worker_warm_up(pool, request)
    before = time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    spent = time.process_time() - before
    await pool.aclose()
    return 1000 * spent / exchanges


async def worker_warm_up(pool: Pool, request: HttpRequest) -> None:
    """Run a few exchanges that are not counted."""
    for _ in range(20):
        await pool.exchange(request, _Count()).run()


def main(loop: str = "uvloop", exchanges: int = 3000, in_flight: int = 32) -> float:
    """Measure once on the named loop and return milliseconds of CPU per exchange."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    process.start()
    try:
        work = measure(listener.getsockname()[1], exchanges, in_flight)
        return uvloop.run(work) if loop == "uvloop" else asyncio.run(work)
    finally:
        process.terminate()
        process.join()
        listener.close()


if __name__ == "__main__":
    name, count, flight = [*sys.argv[1:], *["uvloop", "3000", "32"][len(sys.argv) - 1 :]]
    for _ in range(3):
        print(f"{name}: {main(name, int(count), int(flight)):.3f} ms CPU per exchange")
