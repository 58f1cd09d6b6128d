"""The interceptor that asks every RPC, streams and reflection included, who calls and whether they may.

A bearer token is judged before the request is read: whoever is turned away does not get to send a large one. A client
certificate is known inside the RPC only.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import grpc

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.identity.certificate_names import names_in
from modelmeter_server.identity.principal import ANYBODY, NoKeys, NotAuthenticated, Principal
from modelmeter_server.telemetry.calls import NAME_BYTES
from modelmeter_server.telemetry.log import get_logger

from .identity import current_principal, let_in
from .reflection import NAMES
from .status import trailer
from .stays import Stays, unauthenticated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import NoReturn

    from grpc import HandlerCallDetails
    from grpc.aio import ServicerContext

    from modelmeter_server.identity.authenticator import CallerAuthenticator

    _Handler = grpc.RpcMethodHandler[Any, Any]
    _Behaviour = Callable[[Any, "ServicerContext[Any, Any]"], Awaitable[Any]]
    _Continuation = Callable[["HandlerCallDetails"], Awaitable["_Handler | None"]]

HEADER: Final = "authorization"

ADMIN_SERVICE: Final = "modelmeter.v1.AdminService"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"

ADMIN_METHODS: Final[frozenset[str]] = frozenset()
"""Full names of methods, such as `/modelmeter.v1.LedgerService/ReconcileCall`, that only admins may call although
others of their service are everybody's."""

# What gRPC calls the certificate that a client showed.
_CERTIFICATE: Final = "x509_pem_cert"

_log = get_logger(__name__)


class OpenHouse(grpc.aio.ServerInterceptor):
    """Let everybody in, as an admin of the one tenant there is: the deployment asks nobody who they are."""

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: HandlerCallDetails
    ) -> _Handler | None:
        """Return the method's handler."""
        let_in(ANYBODY)
        return await continuation(handler_call_details)


class Authorization(grpc.aio.ServerInterceptor):
    """Let nobody past who is not known, and nobody but admins to what is theirs."""

    def __init__(
        self, authenticator: CallerAuthenticator, *, open_health: bool = False, open_reflection: bool = False
    ) -> None:
        """`open_health` and `open_reflection` answer these two services to anybody."""
        self._authenticator = authenticator
        self._open: set[str] = {HEALTH_SERVICE} if open_health else set()
        self._open |= set(NAMES) if open_reflection else set()
        self._asked: dict[str, tuple[_Handler, _Handler]] = {}
        self._held: dict[str, tuple[_Handler, _Handler]] = {}
        self.stays = Stays(authenticator.why_ended)

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: HandlerCallDetails
    ) -> _Handler | None:
        """Return the method's handler, or one that turns the caller away; a method that nobody has stays unknown."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or _service(method) in self._open:
            return handler
        headers = _headers(handler_call_details.invocation_metadata)
        if not headers and self._authenticator.knows_certificates:
            return self._asking(handler, method)
        try:
            principal = await self._principal(headers)
        except (NotAuthenticated, NoKeys) as error:
            return _turned_away(_denial(error, method))
        denied = _forbidden(principal, method)
        if denied is not None:
            return _turned_away(denied)
        let_in(principal)
        return self._holding(handler, method)

    async def _principal(self, headers: list[str]) -> Principal:
        return (
            await self._authenticator.by_header(headers)
            if headers
            else self._authenticator.by_certificate(())
        )

    def _asking(self, handler: _Handler, method: str) -> _Handler:
        """Return a handler that looks at the client's certificate; made once for as long as the inner one stays."""
        inner, asking = self._asked.get(method, (None, None))
        if asking is None or inner is not handler:
            asking = _wrapped(handler, functools.partial(self._enter, method), self.stays)
            self._asked[method] = handler, asking
        return asking

    def _holding(self, handler: _Handler, method: str) -> _Handler:
        """Return a handler that stays no longer than its caller's credential; made once, as that of `_asking`."""
        inner, holding = self._held.get(method, (None, None))
        if holding is None or inner is not handler:
            holding = _wrapped(handler, _nothing, self.stays)
            self._held[method] = handler, holding
        return holding

    async def _enter(self, method: str, context: ServicerContext[Any, Any]) -> None:
        try:
            principal = self._authenticator.by_certificate(certificate_names(context.auth_context()))
        except NotAuthenticated as error:
            await _abort(context, _denial(error, method))
        denied = _forbidden(principal, method)
        if denied is not None:
            await _abort(context, denied)
        let_in(principal)


def _service(method: str) -> str:
    return method.strip("/").partition("/")[0]


def _headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> list[str]:
    values = [value for key, value in metadata or () if key == HEADER]
    return [value if isinstance(value, str) else value.decode("latin-1") for value in values]


def certificate_names(properties: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """Return the names that a client proved by TLS, as tenants spell them; none without a client certificate."""
    return tuple(name for pem in properties.get(_CERTIFICATE, ()) for name in names_in(pem))


def _forbidden(principal: Principal, method: str) -> Failure | None:
    admins_only = _service(method) == ADMIN_SERVICE or method in ADMIN_METHODS
    if principal.tenant.is_admin or not admins_only:
        return None
    _log.warning("denied", method=method, subject=principal.subject, tenant=principal.tenant.name)
    return failure(
        Kind.REFUSED,
        f'the tenant "{principal.tenant.name}" is no admin, and this is for admins',
        cause=Cause.LIMIT,
        code=Code.PERMISSION_DENIED,
    )


def _denial(error: NotAuthenticated | NoKeys, method: str) -> Failure:
    if isinstance(error, NoKeys):
        _log.error("nobody can be let in by a JWT", method=method, reason=str(error))
        return failure(
            Kind.UNREACHABLE,
            f"the caller cannot be authenticated: {error}",
            cause=Cause.NETWORK,
            retryable=True,
        )
    more = {"tenant": cut_utf8(error.tenant, NAME_BYTES)} if error.tenant else {}
    _log.warning("not authenticated", method=method, subject=error.subject, reason=str(error), **more)
    return unauthenticated(str(error))


async def _abort(context: ServicerContext[Any, Any], denied: Failure) -> NoReturn:
    end = trailer(CallOutcome(call_id="", model_asked="", result=denied), denied)
    await context.abort(end.code, end.message, end.metadata)


def _turned_away(denied: Failure) -> _Handler:
    """Return a handler that ends the RPC at once. It takes a stream, whatever the method takes: gRPC reads a single
    request before it calls the handler of one."""

    async def end(_requests: Any, context: ServicerContext[Any, Any]) -> None:
        await _abort(context, denied)

    return grpc.stream_stream_rpc_method_handler(end, None, None)


async def _nothing(_context: ServicerContext[Any, Any]) -> None:
    """Enter without a question: it was asked before."""


def _wrapped(
    handler: Any, enter: Callable[[ServicerContext[Any, Any]], Awaitable[None]], stays: Stays
) -> _Handler:
    """Return a handler of the same arity that is entered first, and that ends with the caller's credential."""
    arity = f"{_flow(handler.request_streaming)}_{_flow(handler.response_streaming)}"
    behaviour: _Behaviour = getattr(handler, arity)

    async def entered(request: Any, context: ServicerContext[Any, Any]) -> Any:
        await enter(context)
        stay = stays.enter(current_principal())
        try:
            return await _behave(behaviour, request, context)
        except asyncio.CancelledError:
            if not stay.ended:
                raise
            stay.task.uncancel()
            await _abort(context, unauthenticated(stay.ended))
        finally:
            stays.leave(stay)

    make = getattr(grpc, f"{arity}_rpc_method_handler")
    made: _Handler = make(entered, handler.request_deserializer, handler.response_serializer)
    return made


async def _behave(behaviour: _Behaviour, request: Any, context: ServicerContext[Any, Any]) -> Any:
    if not inspect.isasyncgenfunction(behaviour):
        return await behaviour(request, context)
    async for response in behaviour(request, context):
        await context.write(response)
    return None


def _flow(is_stream: bool) -> str:
    return "stream" if is_stream else "unary"
