"""What a deployment's telemetry told: events, spans in memory, counts by name."""

from __future__ import annotations

from typing import Any, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from modelmeter_server.core.events import kind_of
from modelmeter_server.core.redaction import Redaction
from modelmeter_server.telemetry.bus import EventFilter
from modelmeter_server.telemetry.observation import Telemetry
from modelmeter_server.telemetry.otlp import metrics_data
from modelmeter_server.telemetry.spans import Spans


class Observed:
    """A telemetry whose spans stay here."""

    def __init__(
        self, *, redaction: Redaction | None = None, old_names: bool = False, **options: Any
    ) -> None:
        redaction = redaction or Redaction()
        self.telemetry = Telemetry(redaction=redaction, old_names=old_names, **options)
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create({}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry.spans = Spans(provider, redaction, old_names=old_names)

    def events(self) -> list[Any]:
        """Return all events, the oldest first."""
        return self.telemetry.bus.recent(EventFilter(tenant="default"), before=None, limit=10**6)[::-1]

    def kinds(self) -> list[str]:
        """Return their kinds."""
        return [kind_of(event) for event in self.events()]

    def event(self, kind: str) -> Any:
        """Return the one event of a kind."""
        (found,) = [event for event in self.events() if kind_of(event) == kind]
        return found

    def spans(self, kind: SpanKind) -> list[Any]:
        """Return the spans that ended, of the server or of its requests to providers."""
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]

    @property
    def rpc_spans(self) -> list[Any]:
        """Return those of RPCs."""
        return self.spans(SpanKind.SERVER)

    @property
    def attempt_spans(self) -> list[Any]:
        """Return those of requests to providers."""
        return self.spans(SpanKind.CLIENT)

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Return what an exporter gets, see `counted`."""
        return counted(self.telemetry)

    def everything(self) -> str:
        """Return all of it as text, to look for what must not be there."""
        spans = [
            (span.name, dict(span.attributes or {}), span.status.description, span.events)
            for span in self._exporter.get_finished_spans()
        ]
        return repr([self.events(), spans, self.metrics()])


def counted(telemetry: Telemetry) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Return what an exporter gets: attributes and value (of histograms the count) of each point, by name."""
    data = metrics_data(telemetry.meters, Resource.create({}), 1, 2)
    return {
        metric.name: [
            (
                dict(point.attributes or {}),
                float(getattr(point, "count", getattr(point, "value", 0))),
            )
            for point in cast("list[Any]", metric.data.data_points)
        ]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
