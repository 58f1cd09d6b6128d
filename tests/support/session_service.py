"""The whole service in front of a provider's WebSocket, and all that its sessions told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from modelmeter import AsyncSession, Completion, ModelmeterError, TurnEnd
from modelmeter_server.core.session_events import SessionEvent

from .provider_service import ProviderService, provider_service
from .socket_server import Answer, Reply, SocketServer, socket_server

MODEL = "openai_responses"


@dataclass
class Sessions:
    """A service that sessions are opened with."""

    service: ProviderService
    provider: SocketServer
    events: list[SessionEvent] = field(default_factory=list)

    def open(self, **options: Any) -> Any:
        """Open a session, as an async context manager."""
        return self.service.client.session(MODEL, **options)

    @property
    def inputs(self) -> list[list[str]]:
        """Return what was said in each turn that reached the provider."""
        return [[_said(item) for item in asked.document["input"]] for asked in self.provider.asked]

    @property
    def previous(self) -> list[str | None]:
        """Return which response each of these turns went on from."""
        return [asked.document.get("previous_response_id") for asked in self.provider.asked]

    @property
    def connections(self) -> list[int]:
        """Return over which socket each of them came."""
        return [asked.connection for asked in self.provider.asked]


@asynccontextmanager
async def sessions(*replies: Reply, answer: Answer | None = None, **options: Any) -> AsyncIterator[Sessions]:
    """Serve sessions inside this block."""
    async with (
        socket_server(*replies, answer=answer) as provider,
        provider_service(provider, **options) as service,
    ):
        served = Sessions(service, provider)
        service.engine.sessions.tell = served.events.append
        yield served


async def take(
    session: AsyncSession, prompt: Any = "Hello", **options: Any
) -> tuple[Completion | ModelmeterError, TurnEnd]:
    """Take a turn to its end, whatever that is."""
    turn = await session.turn(prompt, **options)
    try:
        return await turn.result(), turn.end
    except ModelmeterError as error:
        return error, turn.end


async def fail(session: AsyncSession, prompt: Any = "Hello", **options: Any) -> ModelmeterError:
    """Take a turn that must fail."""
    result, _ = await take(session, prompt, **options)
    assert isinstance(result, ModelmeterError), result
    return result


def _said(item: dict[str, Any]) -> str:
    content = item.get("content", item.get("type", ""))
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)
