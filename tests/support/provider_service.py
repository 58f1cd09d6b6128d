"""The whole service in front of a scripted provider: real socket, real driver, real gRPC server, real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

import modelmeter
from modelmeter_server.config.secret import Secret
from modelmeter_server.core.dialects import OPENAI
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.drivers.http import Endpoint, Limits, Timeouts
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS, chat_completions_format
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.engine.holding import Desk
from modelmeter_server.ledger.ledger import Ledger
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.observation import Telemetry

from .fault_server import FaultServer
from .running_server import Memory
from .socket_server import SocketServer

DIALECT_FLAGS = ("hidden_output", "no_finish_reason")
WIRES = WIRE_FORMATS | {
    f"chat_completions-{flag}": chat_completions_format(msgspec.structs.replace(OPENAI, **{flag: True}))
    for flag in DIALECT_FLAGS
}
"""Every wire format by its kind, and Chat Completions once more for each flag of a dialect."""

API_KEY = "sk-configured-key-0123456789"

SHORT = Timeouts(pool=2, connect=2, write=5, first_byte=0.5, idle=0.3, tail=0.3, total=20)
"""Timers for tests that wait for one of them; everything else ends by itself, long before."""


@dataclass
class ProviderService:
    """The service under test and the two ends around it."""

    provider: Any
    """The scripted provider: a `FaultServer`, or a `SocketServer`."""
    client: modelmeter.AsyncClient
    drivers: dict[str, HttpDriver]
    memory: Memory
    address: str
    server: RpcServer
    engine: Engine


@asynccontextmanager
async def provider_service(
    provider: FaultServer | SocketServer,
    *,
    timeouts: Timeouts = SHORT,
    limits: Limits | None = None,
    client_options: dict[str, Any] | None = None,
    models: Sequence[ModelSpec] = (),
    path: str = "",
    ledger: Ledger | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[ProviderService]:
    """Serve every wire format, streamed as `<kind>` and buffered as `<kind>-buffered`, from one scripted provider."""
    drivers = {
        kind: HttpDriver(
            kind,
            wire,
            Endpoint.parse(provider.url + path),
            Secret(API_KEY),
            timeouts=timeouts,
            limits=limits,
        )
        for kind, wire in WIRES.items()
    }
    memory = Memory()
    engine = Engine(Catalog([*_models(), *models]), drivers, memory, telemetry=telemetry)
    if ledger is not None:
        engine.use_ledger(Desk(ledger))
    server = RpcServer(engine)
    (address,) = await server.start(["127.0.0.1:0"])
    try:
        async with modelmeter.AsyncClient(address, **(client_options or {})) as client:
            yield ProviderService(provider, client, drivers, memory, address, server, engine)
    finally:
        await server.stop(0)
        for driver in drivers.values():
            await driver.aclose()


def _models() -> list[ModelSpec]:
    streamed = [
        ModelSpec(
            name=kind,
            provider=kind,
            provider_kind=wire.kind,
            provider_model="m-test",
            capabilities=wire.capabilities,
        )
        for kind, wire in WIRES.items()
    ]
    buffered = [
        msgspec.structs.replace(model, name=f"{model.name}-buffered", buffered=True) for model in streamed
    ]
    return [*streamed, *buffered]
