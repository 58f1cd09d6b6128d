"""Counts that cost little, and what becomes of them on their way out."""

from __future__ import annotations

import math
import threading
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import Histogram, MetricExporter, MetricExportResult, Sum
from opentelemetry.sdk.resources import Resource

from modelmeter_server.telemetry.meters import OTHER, TOKENS, Meters
from modelmeter_server.telemetry.otlp import MetricPusher, metrics_data
from modelmeter_server.telemetry.prometheus import PrometheusListener

BOUNDS = (1.0, 10.0, 100.0)


@given(st.lists(st.floats(0, 1000)))
def test_every_value_is_in_the_bucket_that_its_bound_closes(values):
    histogram = Meters().histogram("h", "s", "", BOUNDS)
    for value in values:
        histogram.record(value)
    expected = [sum(low < value <= high for value in values) for low, high in bounds_of(BOUNDS)]
    points = histogram.read().points
    assert [each.buckets for each in points] == ([tuple(expected)] if values else [])
    assert math.isclose(sum(point.value for point in points), sum(values), abs_tol=1e-6)


def bounds_of(bounds):
    return zip((-1.0, *bounds), (*bounds, math.inf), strict=True)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100))), st.integers(2, 10))
def test_no_more_combinations_are_kept_than_are_bounded_and_none_is_lost(added, most):
    counter = Meters(most).counter("c", "1", "", "a")
    for name, amount in added:
        counter.add(amount, str(name))
    points = counter.read().points
    assert len(points) <= most
    assert sum(point.value for point in points) == sum(amount for _, amount in added)


def test_what_is_too_much_is_counted_together():
    counter = Meters(2).counter("c", "1", "", "a", "b")
    for name in ("x", "y", "z"):
        counter.add(1, name, name)
    assert {point.values: point.value for point in counter.read().points} == {
        ("x", "x"): 1,
        (OTHER, OTHER): 2,
    }


def test_a_gauge_forgets_what_is_not_named_any_more():
    gauge = Meters().gauge("g", "1", "", "state")
    gauge.replace([(("held",), 5), (("settled",), 7)])
    gauge.replace([(("held",), 6)])
    assert [(point.values, point.value) for point in gauge.read().points] == [(("held",), 6)]


def filled() -> Meters:
    meters = Meters()
    meters.counter("modelmeter.calls", "{call}", "Calls.", "gen_ai.request.model", "error.type").add(
        3, "claude", ""
    )
    meters.histogram("gen_ai.tokens", "{token}", "Tokens.", TOKENS).record(17)
    meters.gauge("modelmeter.calls.in_flight", "{call}", "Now.", ask=lambda: 4)
    return meters


def test_open_telemetry_gets_sums_gauges_and_histograms_under_their_names():
    data = metrics_data(filled(), Resource.create({}), 1, 2)
    ((calls, tokens, level),) = [scope.metrics for scope in data.resource_metrics[0].scope_metrics]
    assert isinstance(calls.data, Sum)
    assert calls.data.is_monotonic
    assert dict(calls.data.data_points[0].attributes or {}) == {"gen_ai.request.model": "claude"}
    assert isinstance(tokens.data, Histogram)
    point = tokens.data.data_points[0]
    assert (point.count, point.sum, sum(point.bucket_counts)) == (1, 17, 1)
    assert (level.name, level.unit) == ("modelmeter.calls.in_flight", "{call}")
    assert encode_metrics(data).resource_metrics


class Kept(MetricExporter):
    """An exporter that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[object] = []
        self.is_shut_down = False
        self.pushed = threading.Event()

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.batches.append(metrics_data)
        self.pushed.set()
        if len(self.batches) == 1:
            raise ConnectionError("the collector is away")
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        self.is_shut_down = True


def test_the_last_figures_are_pushed_at_the_end_also_after_a_push_that_failed():
    kept = Kept()
    pusher = MetricPusher(filled(), kept, Resource.create({}), interval=0.001)
    pusher.start()
    assert kept.pushed.wait(10)
    pusher.stop()
    assert len(kept.batches) >= 2
    assert kept.is_shut_down


@pytest.fixture
def fetched() -> str:
    listener = PrometheusListener(filled(), "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
            return answer.read().decode()
    finally:
        listener.close()


def test_prometheus_fetches_the_same_under_its_own_spelling(fetched):
    assert 'modelmeter_calls_total{error_type="",gen_ai_request_model="claude"} 3.0' in fetched
    assert 'gen_ai_tokens_bucket{le="16"} 0.0' in fetched
    assert 'gen_ai_tokens_bucket{le="64"} 1.0' in fetched
    assert 'gen_ai_tokens_bucket{le="+Inf"} 1.0' in fetched
    assert "gen_ai_tokens_sum 17.0" in fetched
    assert "modelmeter_calls_in_flight 4.0" in fetched
