"""An OpenTelemetry collector on 127.0.0.1 that keeps what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector:
    """Keep every request, and tell when spans and metrics have come."""

    def __init__(self) -> None:
        self.address = ""
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.arrived = asyncio.Event()

    async def export(self, kept: list[Any], request: Any, response: Any) -> Any:
        kept.append(request)
        self.arrived.set()
        return response

    def spans(self) -> list[Any]:
        """Return all spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metric_names(self) -> set[str]:
        """Return the names of all metrics."""
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def text(self) -> str:
        """Return all of it as text."""
        return "\n".join(map(str, [*self.traces, *self.metrics]))


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Yield a collector that listens."""
    collector = Collector()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        async def Export(self, request, context):
            response = trace_service_pb2.ExportTraceServiceResponse()
            return await collector.export(collector.traces, request, response)

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        async def Export(self, request, context):
            response = metrics_service_pb2.ExportMetricsServiceResponse()
            return await collector.export(collector.metrics, request, response)

    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(0)
