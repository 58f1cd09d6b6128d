"""The outermost interceptor: whatever goes wrong inside, callers get a typed status and never an exception's text.

grpc.aio sends the text of an unhandled exception to the caller, keys and prompts included; it also runs
deserialisers and serialisers outside of the handler. So the boundary wraps all three. An unknown method passes
through and stays UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import OWN_FAULT, FieldViolation, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.telemetry.log import get_logger

from .status import trailer

if TYPE_CHECKING:
    from typing import NoReturn

    from grpc import HandlerCallDetails
    from grpc.aio import ServicerContext

    from modelmeter_server.core.errors import Failure

MAX_REQUEST_BYTES: Final = 32 * 1024 * 1024
"""Serialised bytes of a request, as many as the transport sends to a provider. The wire itself takes twice as much,
so that a somewhat larger request still gets a typed answer."""

current_call_id: ContextVar[str] = ContextVar("current_call_id")
"""The id of the call that this RPC runs, so that a fault is told and logged under it."""

_Behaviour = Callable[[Any, "ServicerContext[Any, Any]"], Any]
_Continuation = Callable[["HandlerCallDetails"], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]]

_log = get_logger(__name__)


class Boundary(grpc.aio.ServerInterceptor):
    """Turn unexpected exceptions into INTERNAL with a `ModelError`, and unreadable requests into INVALID_ARGUMENT."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[object, grpc.RpcMethodHandler[Any, Any]]] = {}

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the method's handler inside the boundary, wrapped once for as long as it stays the same.

        The interceptors inside are asked for every call: they may turn one away.
        """
        method = handler_call_details.method
        try:
            handler = await continuation(handler_call_details)
        except Exception as error:  # noqa: BLE001 - an interceptor's fault must not reach the caller as text either
            return _failing(error, method)
        if handler is None:
            return None
        inner, wrapped = self._wrapped.get(method, (None, None))
        if wrapped is None or inner is not handler:
            wrapped = _wrap(handler, method)
            self._wrapped[method] = handler, wrapped
        return wrapped


def _failing(error: Exception, method: str) -> grpc.RpcMethodHandler[Any, Any]:
    async def fail(_request: Any, _context: ServicerContext[Any, Any]) -> None:
        raise error

    return grpc.unary_unary_rpc_method_handler(_guarded_unary(fail, None, method))


class _Unreadable(Exception):
    """A request that is no message. Returned by the reader of a single request, raised by that of a stream."""


def _wrap(handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a handler of the same arity."""
    read = _reader(handler)
    if not handler.response_streaming:
        guarded = _guarded_unary(
            handler.stream_unary or handler.unary_unary, handler.response_serializer, method
        )
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(guarded, read, None)
        return grpc.unary_unary_rpc_method_handler(guarded, read, None)
    guarded = _guarded_stream(handler.stream_stream or handler.unary_stream, method)
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(guarded, read, handler.response_serializer)
    return grpc.unary_stream_rpc_method_handler(guarded, read, handler.response_serializer)


def _reader(handler: Any) -> Callable[[bytes], Any]:
    read = handler.request_deserializer

    def read_guarded(data: bytes) -> Any:
        if len(data) <= MAX_REQUEST_BYTES:
            try:
                return read(data)
            except DecodeError:
                complaint = "the request is no message of its type"
        else:
            complaint = (
                f"the request is {len(data):,} bytes, and {MAX_REQUEST_BYTES:,} are allowed: send less"
            )
        if handler.request_streaming:
            raise _Unreadable(complaint)
        # grpc.aio reads a single request outside of the handler: an exception would reach the caller as text.
        return _Unreadable(complaint)

    return read_guarded


def _guarded_unary(behaviour: _Behaviour, write: Callable[[Any], bytes] | None, method: str) -> _Behaviour:
    async def guarded(request: Any, context: ServicerContext[Any, Any]) -> Any:
        try:
            if isinstance(request, _Unreadable):
                raise request
            response = await behaviour(request, context)
            return response if write is None else write(response)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the boundary is here for all of them
            return await _settle(error, context, method)

    return guarded


def _guarded_stream(behaviour: _Behaviour, method: str) -> _Behaviour:
    async def guarded(request: Any, context: ServicerContext[Any, Any]) -> None:
        try:
            if isinstance(request, _Unreadable):
                raise request
            if inspect.isasyncgenfunction(behaviour):
                async for response in behaviour(request, context):
                    await context.write(response)
            else:
                await behaviour(request, context)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the boundary is here for all of them
            await _settle(error, context, method)

    return guarded


async def _settle(error: BaseException, context: ServicerContext[Any, Any], method: str) -> NoReturn:
    """End the RPC for an exception, unless it has ended: by an abort, by its caller, or with the server."""
    if _is_ordinary(error, context):
        raise error
    call_id = current_call_id.get(None) or str(uuid.uuid4())
    if isinstance(error, _Unreadable):
        mistake = FieldViolation("", str(error))
        refusal = failure(Kind.REFUSED, str(error), cause=Cause.LIMIT, violations=(mistake,))
        await _abort(context, refusal, call_id)
    _log.error("unexpected exception", call_id=call_id, method=method, exc_info=error)
    await _abort(context, failure(Kind.BUG, OWN_FAULT, cause=Cause.BUG), call_id)


def _is_ordinary(error: BaseException, context: ServicerContext[Any, Any]) -> bool:
    if isinstance(error, asyncio.CancelledError):
        # A cancellation from inside, such as a timeout's, would leave the caller without any answer (grpc/grpc#29248).
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    # A UsageError is a mistake of ours; the library's other exceptions say that the RPC is over.
    over = isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError)
    return over or context.done()


async def _abort(context: ServicerContext[Any, Any], failed: Failure, call_id: str) -> NoReturn:
    end = trailer(CallOutcome(call_id=call_id, model_asked="", result=failed), failed)
    await context.abort(end.code, end.message, end.metadata)
