"""The place of the interceptor that asks who calls, so that a reload can put another one there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from modelmeter_server.identity.principal import ANYBODY

from .authorization import Authorization, OpenHouse
from .identity import let_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from grpc import HandlerCallDetails

    from modelmeter_server.identity.authenticator import CallerAuthenticator

    _Handler = grpc.RpcMethodHandler[Any, Any]
    _Continuation = Callable[["HandlerCallDetails"], Awaitable["_Handler | None"]]


def keeper(
    authenticator: CallerAuthenticator | None, *, open_health: bool = False, open_reflection: bool = False
) -> grpc.aio.ServerInterceptor:
    """Return who stands at the gate: nobody without an authenticator."""
    if authenticator is None:
        return OpenHouse()
    return Authorization(authenticator, open_health=open_health, open_reflection=open_reflection)


class Gate(grpc.aio.ServerInterceptor):
    """Ask whoever stands there now. RPCs that are past it go on as whom they were let in."""

    def __init__(self, keeper: grpc.aio.ServerInterceptor) -> None:
        self.keeper = keeper

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: HandlerCallDetails
    ) -> _Handler | None:
        """See `Authorization` and `OpenHouse`."""
        handler: _Handler | None = await self.keeper.intercept_service(continuation, handler_call_details)
        return handler


class SideDoor(grpc.aio.ServerInterceptor):
    """Let everybody in to some services, and through the gate to the others."""

    def __init__(self, gate: Gate, services: frozenset[str]) -> None:
        self._gate = gate
        self._services = services

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: HandlerCallDetails
    ) -> _Handler | None:
        """Return the method's handler."""
        if handler_call_details.method.strip("/").partition("/")[0] in self._services:
            let_in(ANYBODY)
            return await continuation(handler_call_details)
        return await self._gate.intercept_service(continuation, handler_call_details)
