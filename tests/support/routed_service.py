"""The whole service with one model, `routed`, whose targets are scripted providers of their own; `a` comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

import modelmeter
from modelmeter_server.config.secret import Secret
from modelmeter_server.core.call_limits import AdmissionLimits
from modelmeter_server.core.models import ModelSpec, Strategy
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.core.routed_models import routed_model
from modelmeter_server.drivers.driver import Driver
from modelmeter_server.drivers.http import Endpoint, Timeouts
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.admission import Admission
from modelmeter_server.engine.breaker import BreakerRules
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.engine.holding import Desk
from modelmeter_server.engine.targets import Targets
from modelmeter_server.ledger.ledger import Ledger
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.observation import Telemetry

from . import anthropic_events
from .fault_server import Reply
from .provider_service import API_KEY, SHORT
from .running_server import Memory

ROUTED = "routed"

ANSWER = Reply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hello."))])
FAILING = Reply(status=503, chunks=[b'{"type":"error","error":{"type":"api_error","message":"down"}}'])
LIMITED = Reply(status=429, chunks=[b'{"type":"error","error":{"type":"rate_limit_error","message":"wait"}}'])
WAIT = Reply(
    status=429,
    headers={"retry-after": "60"},
    chunks=[b'{"type":"error","error":{"type":"rate_limit_error","message":"wait"}}'],
)
BAD_KEY = Reply(
    status=401, chunks=[b'{"type":"error","error":{"type":"authentication_error","message":"no"}}']
)
NO_MODEL = Reply(
    status=404, chunks=[b'{"type":"error","error":{"type":"not_found_error","message":"no model"}}']
)
NO_MONEY = Reply(status=400, chunks=[b'{"type":"error","error":{"type":"billing_error","message":"pay"}}'])
BAD_INPUT = Reply(
    status=400, chunks=[b'{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}']
)
SILENT = Reply(silent=True, end="stall")
CUT = Reply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hello."))[:600]], end="reset")


def price(output: int) -> PriceTable:
    """Return a price with this rate for output, in nano units per million tokens."""
    return PriceTable(currency="USD", tiers=(Tier(input=1_000_000_000, output=output),))


@dataclass
class RoutedService:
    """The service under test and what stands around it."""

    client: modelmeter.AsyncClient
    engine: Engine
    memory: Memory
    model: ModelSpec
    address: str
    drivers: dict[str, Driver]

    @property
    def targets(self) -> Targets:
        """Return how the targets fare."""
        return self.engine.targets

    async def ask(self, **options: Any) -> modelmeter.Completion:
        """Ask the model that has targets."""
        return await self.client.complete(ROUTED, "Hi", timeout=20, **options)


@asynccontextmanager
async def routed_service(
    urls: Mapping[str, str],
    *,
    strategy: Strategy = Strategy.ORDERED,
    weights: Mapping[str, int] | None = None,
    retry: RetryPolicy | None = None,
    rules: BreakerRules | None = None,
    clock: Callable[[], float] | None = None,
    changes: Mapping[str, dict[str, Any]] | None = None,
    kinds: Mapping[str, str] | None = None,
    models: Sequence[ModelSpec] = (),
    ledger: Ledger | None = None,
    timeouts: Timeouts = SHORT,
    sticky_runs: bool = False,
    identity: str = "",
    telemetry: Telemetry | None = None,
    limits: AdmissionLimits | None = None,
) -> AsyncIterator[RoutedService]:
    """Serve one model from providers at these addresses; `changes` are fields of single targets that differ."""
    kinds = kinds or {}
    drivers: dict[str, Driver] = {
        name: HttpDriver(
            name,
            WIRE_FORMATS[kinds.get(name, "anthropic")],
            Endpoint.parse(url),
            Secret(API_KEY),
            timeouts=timeouts,
        )
        for name, url in urls.items()
    }
    specs = [
        ModelSpec(
            name=name,
            provider=name,
            provider_kind=driver.kind,
            provider_model="m",
            capabilities=driver.capabilities,
            max_sensitivity=Sensitivity.SECRET,
        )
        for name, driver in drivers.items()
    ]
    specs = [msgspec.structs.replace(each, **(changes or {}).get(each.name, {})) for each in specs]
    model = routed_model(
        ROUTED,
        [(each, (weights or {}).get(each.name, 1)) for each in specs],
        strategy=strategy,
        sticky_runs=sticky_runs,
        retry=retry or RetryPolicy(max_attempts=len(specs)),
        identity=identity,
    )
    memory = Memory()
    admission = None if limits is None else Admission(limits)
    engine = Engine(Catalog([model, *models]), drivers, memory, telemetry=telemetry, admission=admission)
    if clock is not None:
        engine.targets = Targets(clock=clock, telemetry=telemetry)
    assert model.route is not None
    engine.targets.reconfigure({each.name: rules or BreakerRules() for each in model.route.targets})
    if ledger is not None:
        engine.use_ledger(Desk(ledger))
    server = RpcServer(engine)
    (address,) = await server.start(["127.0.0.1:0"])
    try:
        async with modelmeter.AsyncClient(address) as client:
            yield RoutedService(client, engine, memory, model, address, drivers)
    finally:
        await server.stop(0)
        for driver in drivers.values():
            await driver.aclose()
