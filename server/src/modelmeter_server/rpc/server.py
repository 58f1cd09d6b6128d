"""The gRPC server: options, services, listening, and a shutdown that leaves no bill unsettled."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modelmeter.v1 import (
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)
from modelmeter_server.telemetry.log import get_logger

from .boundary import Boundary
from .health import HealthService
from .ledger_service import LedgerService
from .listen import TlsFiles, open_addresses
from .model_service import ModelService
from .reflection import reflection_handlers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.engine.engine import Engine
    from modelmeter_server.ledger.ledger import Ledger

_log = get_logger(__name__)

SERVICE: Final = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name
LEDGER: Final = ledger_service_pb2.DESCRIPTOR.services_by_name["LedgerService"].full_name
HEALTH: Final = "grpc.health.v1.Health"

RECEIVE_BYTES: Final = 64 * 1024 * 1024
"""Twice what a request may take, so that a request that is too large is refused by us, with a type and a reason."""

PING_INTERVAL_MS: Final = 10_000
"""Clients may ping this often, also while a model thinks for minutes. gRPC's own default ends such a connection with
`too_many_pings` (SeldonIO/MLServer#290, sgl-project/sglang#19986)."""

KEEPALIVE_MS: Final = 60_000
"""How often the server looks for clients that are gone without a word; they would hold provider calls open."""

KEEPALIVE_TIMEOUT_MS: Final = 20_000

LEDGER_LOOK_SECONDS: Final = 0.5
"""How often health looks at the ledger; as often as a ledger that is down tries its database."""

FLUSH_SECONDS: Final = 5.0
"""What settled calls get at shutdown to write their last message to a slow reader."""


def server_options(*, reuse_port: bool = False) -> list[tuple[str, Any]]:
    """Return the channel options. `reuse_port` lets several processes share a port; without it a clash is an error."""
    return [
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.max_receive_message_length", RECEIVE_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]


class RpcServer:
    """A server for one engine. `start` it, then `stop` it; it cannot be started again."""

    def __init__(self, engine: Engine, *, reflection: bool = True, reuse_port: bool = False) -> None:
        """Register the services; needs a running loop. `reflection` lets clients read the schema from the server."""
        self._engine = engine
        self._health = HealthService(SERVICE, LEDGER)
        self._following: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(
            interceptors=[Boundary()], options=server_options(reuse_port=reuse_port)
        )
        add_services(
            self._server, ModelService(engine), LedgerService(engine), self._health, reflection=reflection
        )

    async def start(
        self, addresses: Sequence[str], tls: TlsFiles | None = None, *, allow_insecure: bool = False
    ) -> list[str]:
        """Listen on every address and serve; return the addresses as bound. Raises ListenError."""
        bound = open_addresses(self._server, addresses, tls, allow_insecure=allow_insecure)
        await self._server.start()
        if self._engine.desk is not None:
            self._following = asyncio.create_task(self._follow(self._engine.desk.ledger))
        return bound

    async def _follow(self, ledger: Ledger) -> None:
        """Let health say what the ledger does; of its coming and going nobody tells."""
        was_up = True
        while True:
            is_up = ledger.is_up
            if is_up != was_up:
                _log.warning("the ledger is back" if is_up else "the ledger is down: calls are refused")
            was_up = is_up
            self._health.tell_ledger(is_up=is_up)
            await asyncio.sleep(LEDGER_LOOK_SECONDS)

    async def stop(self, drain_seconds: float) -> int:
        """Shut down in order; return how many calls were cut.

        Readiness goes off and new calls are refused; calls under way get `drain_seconds`, then they are cut, and
        every outcome is settled before the connections close. gRPC's own stop would not wait for handlers whose
        callers are gone (grpc/grpc#37239). Call it again with 0 to hurry.
        """
        self._health.stop_serving()
        if self._following is not None:
            self._following.cancel()
        cut = await self._engine.drain(drain_seconds)
        self._health.close()
        await self._server.stop(FLUSH_SECONDS)
        return cut


def add_services(
    server: grpc.aio.Server,
    models: ModelService,
    ledger: LedgerService,
    health: HealthService,
    *,
    reflection: bool = True,
) -> None:
    """Register the services on a gRPC server. Raises TypeError for a handler that is not a coroutine function."""
    check_handlers(models, model_service_pb2.DESCRIPTOR.services_by_name["ModelService"])
    check_handlers(ledger, ledger_service_pb2.DESCRIPTOR.services_by_name["LedgerService"])
    check_handlers(health, health_pb2.DESCRIPTOR.services_by_name["Health"])
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(models, server)
    ledger_service_pb2_grpc.add_LedgerServiceServicer_to_server(ledger, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflection:
        server.add_generic_rpc_handlers(reflection_handlers((SERVICE, LEDGER, HEALTH)))


def check_handlers(servicer: object, service: Any) -> None:
    """Raise TypeError unless every handler of the service is a coroutine function.

    A plain generator in an asyncio server runs in a thread and can freeze the loop (grpc/grpc#25327); an asynchronous
    generator hears of a leaving caller in two shapes, and one of them at the next garbage collection.
    """
    for method in service.methods:
        if not inspect.iscoroutinefunction(getattr(servicer, method.name, None)):
            message = f"{type(servicer).__name__}.{method.name} is not a coroutine function"
            raise TypeError(message)
