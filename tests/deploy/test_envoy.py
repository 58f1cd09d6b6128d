"""Envoy's configuration: what Envoy itself says of it, and the laws that its checks do not know."""

from __future__ import annotations

import re

import pytest
import trustme

from modelmeter_server.config.settings import ServerSettings
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.rpc import model_service
from modelmeter_server.rpc.health import READINESS
from modelmeter_server.rpc.server import METADATA_BYTES, PING_INTERVAL_MS
from tests.support import ROOT
from tests.support.deploy_tools import CHART, loaded, rendered, run
from tests.support.envoy_proxy import written

CONFIGURATION = loaded("envoy/envoy.yaml")
(LISTENER,) = CONFIGURATION["static_resources"]["listeners"]
(CLUSTER,) = CONFIGURATION["static_resources"]["clusters"]
MANAGER = LISTENER["filter_chains"][0]["filters"][0]["typed_config"]
ROUTES = MANAGER["route_config"]["virtual_hosts"][0]["routes"]
CALLS = [route["route"] for route in ROUTES if "route" in route]
UPSTREAM = CLUSTER["typed_extension_protocol_options"][
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
]
HTTP2 = UPSTREAM["explicit_http_config"]["http2_protocol_options"]


def seconds(text):
    return float(text.removesuffix("s"))


def test_envoy_takes_it_without_a_warning(tmp_path):
    file = written(tmp_path, "127.0.0.1:1", trustme.CA())
    result = run("envoy", "--mode", "validate", "--log-level", "warning", "--config-path", file)
    assert result.returncode == 0, result.stderr
    assert "[warning]" not in result.stdout + result.stderr


def test_envoy_refuses_a_field_that_is_not_there(tmp_path):
    file = written(tmp_path, "127.0.0.1:1", trustme.CA())
    file.write_text(file.read_text().replace("lb_policy:", "lb_polic:"))
    assert run("envoy", "--mode", "validate", "--config-path", file).returncode != 0


def test_no_timeout_of_a_route_ends_a_stream():
    assert CALLS
    for route in CALLS:
        assert route["timeout"] == "0s"
        assert route["max_stream_duration"] == {"max_stream_duration": "0s", "grpc_timeout_header_max": "0s"}


@pytest.mark.parametrize(
    "bound", [MANAGER["stream_idle_timeout"], *(route["idle_timeout"] for route in CALLS)]
)
def test_silence_may_last_as_long_as_the_server_lets_it(bound):
    assert seconds(bound) > Timeouts().total
    assert seconds(bound) > ServerSettings().session_idle_seconds


def test_nothing_is_ever_sent_twice():
    assert "retry" not in re.sub(r"#.*", "", (ROOT / "deploy/envoy/envoy.yaml").read_text())
    (threshold,) = CLUSTER["circuit_breakers"]["thresholds"]
    assert threshold["max_retries"] == 0
    assert MANAGER["use_remote_address"] is True
    assert MANAGER["internal_address_config"] == {}


def test_pings_are_no_more_frequent_than_the_server_allows():
    assert seconds(HTTP2["connection_keepalive"]["interval"]) * 1000 > PING_INTERVAL_MS


def test_health_is_asked_where_the_server_tells_it():
    (check,) = CLUSTER["health_checks"]
    assert check["grpc_health_check"] == {"service_name": READINESS}
    assert seconds(check["no_traffic_interval"]) <= 10
    assert CLUSTER["ignore_health_on_host_removal"] is True
    assert CLUSTER["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}


def test_no_answer_ejects_a_server():
    detection = CLUSTER["outlier_detection"]
    assert detection["split_external_local_origin_errors"] is True
    enforced = {name for name, share in detection.items() if name.startswith("enforcing_") and share}
    assert enforced == {"enforcing_consecutive_local_origin_failure"}
    # Those that Envoy enforces unless told otherwise.
    assert {"enforcing_consecutive_5xx", "enforcing_success_rate"} <= detection.keys()


def test_the_breakers_stand_above_what_a_server_takes():
    (threshold,) = CLUSTER["circuit_breakers"]["thresholds"]
    most = ServerSettings().max_concurrent_calls
    assert threshold["max_requests"] >= 10 * most
    assert threshold["max_pending_requests"] >= 10 * most
    assert MANAGER["http2_protocol_options"]["max_concurrent_streams"] >= most


def test_headers_are_bounded_as_at_the_server():
    assert MANAGER["max_request_headers_kb"] * 1024 == METADATA_BYTES


def test_the_access_log_names_the_call_and_its_status():
    (log,) = MANAGER["access_log"]
    fields = log["typed_config"]["log_format"]["json_format"]
    assert fields["grpc_status"] == "%GRPC_STATUS%"
    assert fields["call_id"] == f"%RESP({model_service.CALL_ID_KEY.upper()})%"
    assert fields["request_id"] == "%REQ(X-REQUEST-ID)%"


def test_it_looks_for_the_pods_of_the_chart():
    (place,) = CLUSTER["load_assignment"]["endpoints"]
    (endpoint,) = place["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    named = rendered(None, f"fullnameOverride={CHART.name}")
    (service,) = [each for each in named if each["metadata"]["name"] == address["address"]]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"][0]["port"] == address["port_value"]
