"""A real server on a loopback port, with scripted providers behind it and raw stubs in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from modelmeter.v1 import error_pb2, model_service_pb2, model_service_pb2_grpc
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.engine.holding import Desk
from modelmeter_server.ledger.ledger import Ledger
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.observation import Telemetry

from .scripted_driver import ScriptedDriver

MODEL = ModelSpec(name="claude", provider="scripted", provider_kind="scripted", provider_model="scripted-1")


@dataclass
class Memory:
    """A recorder that remembers."""

    outcomes: list[CallOutcome] = field(default_factory=list)
    settles: bool = False
    error: Exception | None = None

    @property
    def failures(self) -> list[Failure]:
        """Return how the calls failed; all of them did."""
        failed = [outcome.result for outcome in self.outcomes if isinstance(outcome.result, Failure)]
        assert len(failed) == len(self.outcomes)
        return failed

    async def record(self, outcome: CallOutcome) -> bool:
        self.outcomes.append(outcome)
        if self.error is not None:
            raise self.error
        return self.settles


@dataclass
class Running:
    """A server under test and what stands around it."""

    engine: Engine
    server: RpcServer
    driver: ScriptedDriver
    memory: Memory
    address: str
    channel: grpc.aio.Channel
    stub: model_service_pb2_grpc.ModelServiceAsyncStub

    async def ask(
        self, *, stream: bool = False, timeout: float = 5, **fields: Any
    ) -> model_service_pb2.CompleteResponse:
        """Make a call of either shape and return its completion; raises as gRPC does."""
        if not stream:
            return await self.stub.Complete(asking(**fields), timeout=timeout)
        events, error = await read_all(self.stub.StreamComplete(streaming(**fields), timeout=timeout))
        if error is not None:
            raise error
        return model_service_pb2.CompleteResponse(completion=events[-1].completion)

    async def error(self, **options: Any) -> grpc.aio.AioRpcError:
        """Make a call that must fail, and return how it did."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(**options)
        return caught.value


@asynccontextmanager
async def serving(
    driver: ScriptedDriver,
    *,
    models: Sequence[ModelSpec] = (MODEL,),
    channel_options: Sequence[tuple[str, Any]] = (),
    max_concurrent_calls: int = 1000,
    engine_options: Mapping[str, Any] | None = None,
    ledger: Ledger | None = None,
    rpc: Mapping[str, Any] | None = None,
    telemetry: Telemetry | None = None,
    **desk: Any,
) -> AsyncIterator[Running]:
    """Serve the models through the driver; stops at once on leaving.

    `desk` says how a `ledger` is used, `rpc` holds options of `RpcServer`.
    """
    memory = Memory()
    engine = Engine(
        Catalog(models),
        {driver.name: driver},
        memory,
        max_concurrent_calls=max_concurrent_calls,
        telemetry=telemetry,
        **(engine_options or {}),
    )
    if ledger is not None:
        engine.use_ledger(Desk(ledger, **desk))
    server = RpcServer(engine, **(rpc or {}))
    (address,) = await server.start(["127.0.0.1:0"])
    try:
        async with grpc.aio.insecure_channel(address, options=list(channel_options)) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            yield Running(engine, server, driver, memory, address, channel, stub)
    finally:
        await server.stop(0)


def asking(text: str = "Hi", *, model: str = "claude", **fields: Any) -> model_service_pb2.CompleteRequest:
    """Return a small request."""
    return model_service_pb2.CompleteRequest(model=model, text=text, **fields)


def streaming(text: str = "Hi", **fields: Any) -> model_service_pb2.StreamCompleteRequest:
    """Return a small request for a stream that sends every read at once."""
    request = model_service_pb2.StreamCompleteRequest(request=asking(text, **fields))
    request.flush_interval.seconds = 0
    return request


async def read_all(call: Any) -> tuple[list[Any], grpc.aio.AioRpcError | None]:
    """Read a stream to its end; return the events and the error it ended with."""
    events: list[Any] = []
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            events.append(response)
    except grpc.aio.AioRpcError as error:
        return events, error
    return events, None


class Details:
    """The details of an error as a client reads them."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.metadata = dict(error.trailing_metadata() or ())
        self.status = Status.FromString(self.metadata["grpc-status-details-bin"])
        self.model_error = self._unpack(error_pb2.ModelError)
        self.info = self._unpack(error_details_pb2.ErrorInfo)
        self.retry = self._unpack(error_details_pb2.RetryInfo)
        self.bad_request = self._unpack(error_details_pb2.BadRequest)
        self.resource = self._unpack(error_details_pb2.ResourceInfo)
        self.quota = self._unpack(error_details_pb2.QuotaFailure)

    def _unpack(self, message: type[Any]) -> Any:
        found = [detail for detail in self.status.details if detail.Is(message.DESCRIPTOR)]
        assert len(found) <= 1, "at most one detail of a type"
        if not found:
            return None
        unpacked = message()
        found[0].Unpack(unpacked)
        return unpacked
