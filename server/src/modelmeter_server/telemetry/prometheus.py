"""What was counted, for Prometheus to fetch, on a listener of its own. Imported with the extra `prometheus`."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

    from .meters import Meters, Reading


def spelled(reading: Reading) -> str:
    """Return an instrument's name as Prometheus has it, without the suffixes of its samples."""
    name = reading.described.name.replace(".", "_")
    return f"{name}_seconds" if reading.described.unit == "s" else name


class Readings(Collector):
    """Give Prometheus the instruments as they stand."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        """Yield every instrument."""
        return map(_family, self._meters.read())


def _family(reading: Reading) -> Metric:
    described = reading.described
    labels = [name.replace(".", "_") for name in described.attributes]
    name = spelled(reading)
    if reading.kind == "histogram":
        histogram = HistogramMetricFamily(name, described.description, labels=labels)
        bounds = [*(f"{bound:g}" for bound in reading.bounds), "+Inf"]
        for point in reading.points:
            buckets = list(zip(bounds, map(float, accumulate(point.buckets)), strict=True))
            histogram.add_metric(point.values, buckets, point.value)
        return histogram
    kind = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
    family = kind(name, described.description, labels=labels)
    for point in reading.points:
        family.add_metric(point.values, point.value)
    return family


class PrometheusListener:
    """Answer `GET /metrics` in a thread."""

    def __init__(self, meters: Meters, host: str, port: int) -> None:
        """Listen at once; port 0 takes a free one. Raises OSError."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Readings(meters))
        self._server: WSGIServer
        self._thread: Thread
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
