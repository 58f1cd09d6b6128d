"""Which exporters run. Their packages are extras, and are imported only when they are wanted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.redaction import Redaction

    from .observation import Telemetry

# gRPC would go by way of the environment's proxies, which nobody of this deployment has allowed.
_CHANNEL_OPTIONS: Final[Any] = (("grpc.enable_http_proxy", 0),)

_log = get_logger(__name__)


class Exports(msgspec.Struct, frozen=True, kw_only=True):
    """What is exported, and where to."""

    otlp_endpoint: str = ""
    """URL of a collector's gRPC receiver; empty for none."""
    otlp_insecure: bool = False
    otlp_interval: float = 60.0
    """Seconds between two exports of metrics."""
    traces: bool = True
    metrics: bool = True
    service_name: str = "modelmeter"
    version: str = ""
    prometheus_host: str = ""
    """Empty for none."""
    prometheus_port: int = 0


class Exporters:
    """The exporters that run. Make them in the process that serves, and `close` them last."""

    def __init__(
        self, telemetry: Telemetry, exports: Exports, redaction: Redaction, *, old_names: bool = False
    ) -> None:
        """Begin to export. Raises OSError when Prometheus' address cannot be listened on."""
        self._closing: list[Callable[[], object]] = []
        self.prometheus_port = 0
        """Where Prometheus is answered; 0 for nowhere."""
        if exports.prometheus_host:
            self._listen(telemetry, exports)
        if exports.otlp_endpoint:
            self._push(telemetry, exports, redaction, old_names=old_names)

    def close(self) -> None:
        """Send what waits and end; takes some seconds at most. Call it beside the event loop."""
        for close in reversed(self._closing):
            try:
                close()
            except Exception:  # noqa: BLE001 - the others must end as well
                _log.exception("an exporter did not end well")

    def _listen(self, telemetry: Telemetry, exports: Exports) -> None:
        from .prometheus import PrometheusListener

        listener = PrometheusListener(telemetry.meters, exports.prometheus_host, exports.prometheus_port)
        self.prometheus_port = listener.port
        self._closing.append(listener.close)

    def _push(self, telemetry: Telemetry, exports: Exports, redaction: Redaction, *, old_names: bool) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        from .otlp import MetricPusher, resource, tracer_provider
        from .spans import Spans

        source = resource(exports.service_name, exports.version, f"{os.uname().nodename}:{os.getpid()}")
        url, insecure = exports.otlp_endpoint, exports.otlp_insecure
        if exports.traces:
            provider = tracer_provider(
                OTLPSpanExporter(url, insecure, channel_options=_CHANNEL_OPTIONS), source
            )
            telemetry.spans = Spans(provider, redaction, old_names=old_names, version=exports.version)
            self._closing.append(provider.shutdown)
        if exports.metrics:
            pusher = MetricPusher(
                telemetry.meters,
                OTLPMetricExporter(url, insecure, channel_options=_CHANNEL_OPTIONS),
                source,
                exports.otlp_interval,
            )
            pusher.start()
            self._closing.append(pusher.stop)
