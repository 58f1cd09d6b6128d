"""The interceptor that watches every RPC: its time, its status, its place in the caller's trace.

It stands outside of the boundary, so that it sees the status that the caller sees. The libraries' own interceptors see
the statuses of aborts as OK, and have no names for asynchronous methods.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from .boundary import current_call_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from grpc import HandlerCallDetails
    from grpc.aio import ServicerContext

    from modelmeter_server.telemetry.observation import Telemetry

    Context = ServicerContext[Any, Any]
    Behaviour = Callable[[Any, Context], Awaitable[Any]]


class Watching(grpc.aio.ServerInterceptor):
    """Watch every RPC of a method that exists. Must be the first interceptor, with the boundary next."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._wrapped: dict[str, tuple[object, grpc.RpcMethodHandler[Any, Any]]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the method's handler, watched; wrapped once for as long as it stays the same."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        inner, wrapped = self._wrapped.get(method, (None, None))
        if wrapped is None or inner is not handler:
            wrapped = self._watched(handler, method.removeprefix("/"))
            self._wrapped[method] = handler, wrapped
        return wrapped

    def _watched(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler of the same arity. The boundary has made coroutine functions of all of them."""
        read, write = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            watched = self._around(handler.stream_stream or handler.unary_stream, method)
            if handler.request_streaming:
                return grpc.stream_stream_rpc_method_handler(watched, read, write)
            return grpc.unary_stream_rpc_method_handler(watched, read, write)
        watched = self._around(handler.stream_unary or handler.unary_unary, method)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(watched, read, write)
        return grpc.unary_unary_rpc_method_handler(watched, read, write)

    def _around(self, behaviour: Behaviour, method: str) -> Any:
        async def watched(request: Any, context: Context) -> Any:
            watch = self._telemetry.rpc_started(method, context.invocation_metadata() or ())
            code = "OK"
            try:
                return await behaviour(request, context)
            except BaseException as error:
                code = _code(error, context)
                raise
            finally:
                watch.end(code, current_call_id.get(""))

        return watched


def _code(error: BaseException, context: Context) -> str:
    """Return the name of the status that the caller sees, or would have seen if it had stayed."""
    code: Any = context.code()
    if isinstance(code, grpc.StatusCode) and code is not grpc.StatusCode.OK:
        return code.name
    remaining: float | None = context.time_remaining()
    if remaining is not None and remaining <= 0:
        return grpc.StatusCode.DEADLINE_EXCEEDED.name
    if isinstance(error, asyncio.CancelledError) or context.done():
        return grpc.StatusCode.CANCELLED.name
    return grpc.StatusCode.UNKNOWN.name
