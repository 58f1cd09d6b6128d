"""The listener for operators: channelz, health and reflection, and the `AdminService` where it is configured so.

Channelz tells addresses of peers and the names of methods, so it is never on the public listener. Where only this
machine reaches the listener, nobody is asked who they are; elsewhere the gate of the public one holds, and channelz
is for admins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health_pb2_grpc

from .authorization import ADMIN_SERVICE, HEALTH_SERVICE
from .boundary import Boundary
from .gate import Gate, SideDoor
from .identity import current_principal
from .listen import ServerTls, TlsFiles, is_loopback, open_addresses
from .reflection import NAMES, reflection_handlers
from .server import server_options
from .services import add_admin

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

    from .admin_service import AdminService
    from .health import HealthService

CHANNELZ: Final = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


class PrivateServer:
    """A server beside the public one, in the same process. `start` it, then `stop` it."""

    def __init__(self, address: str, gate: Gate, health: HealthService, admin: AdminService | None) -> None:
        """Register the services; needs a running loop. Without `admin` that service is not here."""
        self._address = address
        self._is_local = is_loopback(address)
        self._tls: ServerTls | None = None
        open_services = {CHANNELZ, HEALTH_SERVICE, *NAMES} if self._is_local else set()
        self._server = grpc.aio.server(
            interceptors=[Boundary(), SideDoor(gate, frozenset(open_services))],
            # The same limits as those of the public one, and no port of another worker.
            options=server_options(),
        )
        self._server.add_generic_rpc_handlers((_channelz_handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        if admin is not None:
            add_admin(self._server, admin)
        names = (CHANNELZ, HEALTH_SERVICE, *(() if admin is None else (ADMIN_SERVICE,)))
        self._server.add_generic_rpc_handlers(reflection_handlers(names))

    async def start(self, tls: TlsFiles | None, *, allow_insecure: bool) -> str:
        """Listen and serve; return the address as bound. On loopback no TLS is spoken. Raises ListenError."""
        self._tls = None if tls is None or self._is_local else ServerTls(tls)
        bound = open_addresses(self._server, [self._address], self._tls, allow_insecure=allow_insecure)
        await self._server.start()
        return bound[0]

    def reconfigure(self, tls: TlsFiles | None) -> None:
        """Show what other files hold from the next connection on."""
        if self._tls is not None and tls is not None:
            self._tls.reconfigure(tls)

    async def stop(self) -> None:
        """Stop at once: nobody waits for a bill here."""
        await self._server.stop(None)


def _channelz_handlers() -> grpc.GenericRpcHandler:
    servicer: Any = channelz.aio.ChannelzServicer
    service = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"]
    handlers = {}
    for method in service.methods:
        request = getattr(channelz_pb2, method.input_type.name)
        response = getattr(channelz_pb2, method.output_type.name)
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            _for_admins(getattr(servicer, method.name)),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(CHANNELZ, handlers)


def _for_admins(behaviour: Any) -> Any:
    async def asked(request: Any, context: ServicerContext[Any, Any]) -> Any:
        if not current_principal().tenant.is_admin:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "channelz is for admins")
        return await behaviour(request, context)

    return asked
