"""Metrics and traces to an OpenTelemetry collector. Imported with the extra `otlp`.

The metrics are this process's own counts (`meters`), handed to the exporter as what they are: cumulative sums, gauges
and histograms. The SDK's own aggregation would cost ten times as much a call.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .log import get_logger

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from .meters import Meters, Point, Reading

SHUTDOWN_SECONDS: Final = 5.0
"""What exporters get at shutdown for what they still hold."""

_log = get_logger(__name__)


def resource(service: str, version: str, instance: str) -> Resource:
    """Return who sends: this service, its version and this process. OTEL_RESOURCE_ATTRIBUTES adds to it."""
    return Resource.create(
        {"service.name": service, "service.version": version, "service.instance.id": instance}
    )


def tracer_provider(exporter: SpanExporter, source: Resource) -> TracerProvider:
    """Return a provider whose spans go to the exporter in batches, from a thread."""
    provider = TracerProvider(resource=source, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def metrics_data(meters: Meters, source: Resource, begun: int, now: int) -> MetricsData:
    """Return everything that was counted; times in nanoseconds since the epoch."""
    scope = InstrumentationScope("modelmeter")
    metrics = [_metric(reading, begun, now) for reading in meters.read() if reading.points]
    return MetricsData(
        [ResourceMetrics(source, [ScopeMetrics(scope, metrics, schema_url="")], schema_url="")]
    )


def _metric(reading: Reading, begun: int, now: int) -> Metric:
    described = reading.described
    data: Any
    if reading.kind == "histogram":
        points = [_histogram_point(reading, point, begun, now) for point in reading.points]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(_attributes(reading, point), begun, now, point.value) for point in reading.points
        ]
        is_sum = reading.kind == "counter"
        data = (
            Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True) if is_sum else Gauge(numbers)
        )
    return Metric(described.name, described.description, described.unit, data)


def _histogram_point(reading: Reading, point: Point, begun: int, now: int) -> HistogramDataPoint:
    count = sum(point.buckets)
    # The extremes are not kept: what is known of them is the sum alone.
    return HistogramDataPoint(
        attributes=_attributes(reading, point),
        start_time_unix_nano=begun,
        time_unix_nano=now,
        count=count,
        sum=point.value,
        bucket_counts=list(point.buckets),
        explicit_bounds=list(reading.bounds),
        min=float("nan"),
        max=float("nan"),
    )


def _attributes(reading: Reading, point: Point) -> dict[str, Any]:
    """Return the attributes that have a value: an absent one, such as the error of a success, is left out."""
    return {
        name: value for name, value in zip(reading.described.attributes, point.values, strict=True) if value
    }


class MetricPusher:
    """Hand the counts to an exporter, again and again, in a thread of its own."""

    def __init__(self, meters: Meters, exporter: MetricExporter, source: Resource, interval: float) -> None:
        """Push every `interval` seconds once started."""
        self._meters = meters
        self._exporter = exporter
        self._source = source
        self._interval = interval
        self._begun = time.time_ns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Push once more and end."""
        self._stopping.set()
        self._thread.join(SHUTDOWN_SECONDS)
        self._exporter.shutdown(SHUTDOWN_SECONDS * 1_000)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            self._push()
        self._push()

    def _push(self) -> None:
        try:
            self._exporter.export(metrics_data(self._meters, self._source, self._begun, time.time_ns()))
        except Exception:  # noqa: BLE001 - the next push may succeed, and it holds everything again
            _log.exception("metrics could not be exported")
