"""Register the services on a gRPC server, each handler checked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from grpc_health.v1 import health_pb2, health_pb2_grpc

from modelmeter.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    event_service_pb2,
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)

from .authorization import ADMIN_SERVICE
from .reflection import reflection_handlers

if TYPE_CHECKING:
    import grpc

    from .admin_service import AdminService
    from .event_service import EventService
    from .health import HealthService
    from .ledger_service import LedgerService
    from .model_service import ModelService

SERVICE: Final = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name
LEDGER: Final = ledger_service_pb2.DESCRIPTOR.services_by_name["LedgerService"].full_name
EVENTS: Final = event_service_pb2.DESCRIPTOR.services_by_name["EventService"].full_name
HEALTH: Final = "grpc.health.v1.Health"


def add_services(
    server: grpc.aio.Server,
    models: ModelService,
    ledger: LedgerService,
    health: HealthService,
    events: EventService | None = None,
    *,
    reflection: bool = True,
    admin: bool = True,
) -> None:
    """Register the services on a gRPC server; `admin` lets reflection name the service of operators.

    Raises TypeError for a handler that is not a coroutine function.
    """
    check_handlers(models, model_service_pb2.DESCRIPTOR.services_by_name["ModelService"])
    check_handlers(ledger, ledger_service_pb2.DESCRIPTOR.services_by_name["LedgerService"])
    check_handlers(health, health_pb2.DESCRIPTOR.services_by_name["Health"])
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(models, server)
    ledger_service_pb2_grpc.add_LedgerServiceServicer_to_server(ledger, server)
    if events is not None:
        check_handlers(events, event_service_pb2.DESCRIPTOR.services_by_name["EventService"])
        server.add_generic_rpc_handlers((events.handlers(),))
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflection:
        own = (SERVICE, LEDGER, *((ADMIN_SERVICE,) if admin else ()), *(() if events is None else (EVENTS,)))
        server.add_generic_rpc_handlers(reflection_handlers((*own, HEALTH)))


def add_admin(server: grpc.aio.Server, admin: AdminService) -> None:
    """Register the service of operators. Raises TypeError for a handler that is not a coroutine function."""
    check_handlers(admin, admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"])
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)


def check_handlers(servicer: object, service: Any) -> None:
    """Raise TypeError unless every handler of the service is a coroutine function.

    A plain generator in an asyncio server runs in a thread and can freeze the loop (grpc/grpc#25327); an asynchronous
    generator hears of a leaving caller in two shapes, and one of them at the next garbage collection.
    """
    for method in service.methods:
        if not inspect.iscoroutinefunction(getattr(servicer, method.name, None)):
            message = f"{type(servicer).__name__}.{method.name} is not a coroutine function"
            raise TypeError(message)
