"""A sink that writes down what it is told, and the shortest way to run an exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from modelmeter_server.drivers.http import ExchangeEnd, HttpRequest, Pool, ResponseHead, Timeouts


@dataclass
class Recorder:
    """Record calls in order; raise or stop where told."""

    enough_after: int | None = None
    raise_in: str = ""
    calls: list[str] = field(default_factory=list)
    answer: ResponseHead | None = None
    chunks: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def written(self) -> None:
        self._note("written")

    def head(self, head: ResponseHead) -> None:
        self.answer = head
        self._note("head")

    def data(self, chunk: bytes) -> bool:
        self.chunks.append(chunk)
        self._note("data")
        return self.enough_after is not None and len(self.body) >= self.enough_after

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.raise_in:
            msg = "secret prompt"
            raise KeyError(msg)


def post(body: bytes = b"{}", target: str = "/v1/messages") -> HttpRequest:
    return HttpRequest("POST", target, (("content-type", "application/json"),), body)


async def run(
    pool: Pool,
    sink: Recorder | None = None,
    request: HttpRequest | None = None,
    timeouts: Timeouts | None = None,
) -> tuple[ExchangeEnd, Recorder]:
    sink = sink or Recorder()
    return await pool.exchange(request or post(), sink, timeouts).run(), sink


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Let the loop turn until `condition` holds: for states that no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is awaited is a property of the pool, not an event
            await asyncio.sleep(0)
