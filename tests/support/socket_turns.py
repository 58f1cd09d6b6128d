"""Turns on a session's sockets without the service around them: a driver's link, and calls that are run by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from modelmeter_server.config.secret import Secret
from modelmeter_server.core.answers import FREE_TEXT, Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.drivers.driver import ProviderCall, SessionLink, TurnTerms
from modelmeter_server.drivers.http import Endpoint, Limits, Timeouts
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS

from .completion_requests import OPENAI, ask, model_of
from .provider_service import API_KEY, SHORT
from .socket_server import SocketServer


@dataclass
class Witness:
    """Hears everything that a turn tells whoever started it and whoever listens to its socket."""

    permit: bool | None = None
    told: list[str] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    events: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None

    def dispatching(self, _number: int, _target: str) -> Awaitable[bool] | None:
        return None if self.permit is None else self._permitted(self.permit)

    async def _permitted(self, permit: bool) -> bool:
        return permit

    def written(self) -> None:
        self._tell("written")

    def progressed(self) -> None:
        self._tell("progressed")

    def sending(self, connection: int) -> None:
        self.connections.append(connection)
        self._tell("sending")

    def send_failed(self) -> None:
        self._tell("send_failed")

    def frame(self, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.frames.append(data)
        self._tell("frame")

    def transport_failed(self) -> None:
        self._tell("transport_failed")

    def _tell(self, word: str) -> None:
        self.told.append(word)
        self.events.set()

    async def hear(self, word: str) -> None:
        """Wait until this was told."""
        while word not in self.told:
            self.events.clear()
            await self.events.wait()


@dataclass
class Line:
    """A session's way to a provider."""

    driver: HttpDriver
    link: SessionLink

    def turn(
        self,
        request: CompletionRequest | str = "Hello",
        witness: Witness | None = None,
        *,
        previous: str | None = None,
        generate: bool = True,
    ) -> ProviderCall:
        """Make a turn without sending anything yet."""
        witness = witness or Witness()
        asked = ask(request) if isinstance(request, str) else request
        terms = TurnTerms(expand=lambda each: each, previous_response_id=previous, generate=generate)
        driver = self.link.turn(terms, witness)
        model = model_of(OPENAI)
        return driver.start(driver.prepare(asked, model), model, FREE_TEXT, witness, deltas=True)

    async def run(self, *arguments: Any, **options: Any) -> Answer | Failure:
        """Run a turn to its end."""
        return await self.turn(*arguments, **options).run()

    async def fail(self, *arguments: Any, **options: Any) -> Failure:
        """Run a turn that must fail."""
        return await ended(self.turn(*arguments, **options))

    async def answer(self, *arguments: Any, **options: Any) -> Answer:
        """Run a turn that must be answered."""
        result = await self.run(*arguments, **options)
        assert isinstance(result, Answer), result
        return result


async def ended(call: ProviderCall) -> Failure:
    """Run a call that must fail."""
    result = await call.run()
    assert isinstance(result, Failure), result
    return result


@asynccontextmanager
async def line(
    server: SocketServer | str,
    *,
    timeouts: Timeouts = SHORT,
    limits: Limits | None = None,
    age: float | None = 3300,
    **endpoint: Any,
) -> AsyncIterator[Line]:
    """Return a line to a server, or to an address, inside this block."""
    url = server if isinstance(server, str) else server.url
    driver = HttpDriver(
        "openai",
        WIRE_FORMATS[OPENAI],
        Endpoint.parse(url, **endpoint),
        Secret(API_KEY),
        timeouts=timeouts,
        limits=limits,
        socket_age=age,
    )
    link = driver.open_link()
    assert link is not None
    try:
        yield Line(driver, link)
    finally:
        link.close()
        await driver.aclose()
