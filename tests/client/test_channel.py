"""The options of the channel, deadlines and metadata, without a channel."""

from __future__ import annotations

import json
import math
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter import AsyncClient, Client
from modelmeter._channel import call_metadata, channel_options, deadline, is_loopback
from modelmeter.v1 import ledger_service_pb2, model_service_pb2
from modelmeter_server.rpc.server import PING_INTERVAL_MS
from tests.support import ROOT
from tests.support.markdown import section, table

LOOPBACK = [
    "127.0.0.1:50051",
    "localhost:50051",
    "LocalHost:50051",
    "127.9.9.9:1",
    "[::1]:50051",
    "dns:///localhost:50051",
    "dns:localhost:50051",
    "ipv4:127.0.0.1:1,127.0.0.1:2",
    "ipv6:[::1]:50051",
    "unix:/run/modelmeter.sock",
    "unix:///run/modelmeter.sock",
    "unix-abstract:modelmeter",
]
REMOTE = [
    "models.example.test:443",
    "dns:///models.example.test:443",
    "dns://10.0.0.1/models.example.test:443",
    "10.0.0.1:50051",
    "[2001:db8::1]:50051",
    "ipv4:127.0.0.1:1,10.0.0.1:2",
    "localhost.example.test:50051",
    "xds:///localhost",
    "",
]


@pytest.mark.parametrize("target", LOOPBACK)
def test_a_proxy_is_never_between_a_client_and_its_own_machine(target):
    assert is_loopback(target)
    assert dict(channel_options(target, None))["grpc.enable_http_proxy"] == 0


@pytest.mark.parametrize("target", REMOTE)
def test_a_remote_target_keeps_the_proxy_of_the_environment(target):
    assert not is_loopback(target)
    assert "grpc.enable_http_proxy" not in dict(channel_options(target, None))


@given(st.text(max_size=30))
def test_any_text_is_loopback_or_not(target):
    assert is_loopback(target) in (True, False)


def test_the_channel_has_the_defaults_of_the_contract():
    options = dict(channel_options("models.example.test:443", None))
    assert options["grpc.http2.bdp_probe"] == 0
    assert (options["grpc.keepalive_time_ms"], options["grpc.keepalive_timeout_ms"]) == (30_000, 10_000)
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.max_receive_message_length"] == 64 * 1024 * 1024


def test_the_page_for_other_languages_says_what_this_client_does():
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    options: dict[str, Any] = dict(channel_options("models.example.test:443", None))
    written = page.partition("```json\n")[2].partition("```")[0]
    assert json.loads(written) == json.loads(str(options["grpc.service_config"]))
    said = {row["C core, Node"]: row["Value"] for row in table(section(page, "The channel"))}
    assert said == {
        "`grpc.max_receive_message_length`": f"{options['grpc.max_receive_message_length'] // 2**20} MiB",
        "`grpc.max_metadata_size`": f"{options['grpc.max_metadata_size'] // 2**10} KiB",
        "`grpc.keepalive_time_ms`, `grpc.keepalive_timeout_ms`": (
            f"every {options['grpc.keepalive_time_ms'] // 1000} s, "
            f"{options['grpc.keepalive_timeout_ms'] // 1000} s for the answer"
        ),
        "`grpc.service_config`": "above",
        "`grpc.http2.bdp_probe`": "off",
    }
    assert PING_INTERVAL_MS == 10_000, "the page says how often a server may be pinged"


def test_only_lookups_have_a_retry_policy():
    options = dict(channel_options("127.0.0.1:1", None))
    methods = json.loads(str(options["grpc.service_config"]))["methodConfig"]
    names = {(name["service"], name["method"]) for entry in methods for name in entry["name"]}
    models = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]
    ledger = ledger_service_pb2.DESCRIPTOR.services_by_name["LedgerService"]
    reads = [
        (service.full_name, method.name)
        for service in (models, ledger)
        for method in service.methods
        if method.name.startswith(("Get", "List"))
    ]
    assert names == set(reads)
    assert [entry["retryPolicy"]["retryableStatusCodes"] for entry in methods] == [["UNAVAILABLE"]]


def test_an_option_of_the_caller_stands_in_for_ours():
    options = channel_options("127.0.0.1:1", {"grpc.keepalive_time_ms": 300_000, "grpc.enable_http_proxy": 1})
    assert len(options) == len(dict(options))
    assert dict(options)["grpc.keepalive_time_ms"] == 300_000
    assert dict(options)["grpc.enable_http_proxy"] == 1


@pytest.mark.parametrize(
    ("timeout", "expected"), [(None, 600), (5, 5), (0, 0), (-3, 0), (math.inf, None), (-math.inf, 0)]
)
def test_a_deadline_is_the_calls_or_the_clients(timeout, expected):
    assert deadline(timeout, 600) == expected


def test_a_client_without_a_deadline_can_be_had_and_nan_cannot():
    assert deadline(None, math.inf) is None
    with pytest.raises(ValueError, match="number of seconds"):
        deadline(math.nan, 600)


def test_metadata_is_a_mapping_or_pairs_and_its_keys_are_lower_case():
    assert call_metadata(None, None) == ()
    assert call_metadata({"X-A": "1"}, None) == (("x-a", "1"),)
    assert call_metadata([("x-a", "1"), ("x-a", "2")], None) == (("x-a", "1"), ("x-a", "2"))
    assert call_metadata({"Authorization": "mine"}, "abc") == (("authorization", "mine"),)
    assert call_metadata(None, "abc") == (("authorization", "Bearer abc"),)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_token_never_crosses_a_network_in_the_clear(client):
    with pytest.raises(ValueError, match="needs TLS"):
        client("models.example.test:443", token="abc")
    client("models.example.test:443", token="abc", credentials=grpc.ssl_channel_credentials())
    client("127.0.0.1:50051", token="abc")


@pytest.mark.parametrize("timeout", [1e9, 1e10, 1e18, 1e300, 10**400])
def test_a_timeout_longer_than_a_clock_holds_is_long_and_not_over(timeout):
    assert deadline(timeout, 600) == deadline(None, timeout) == 1e9


@pytest.mark.parametrize("key", ["a b", "", ":path", "a+b", "é", "a\n"])
def test_a_key_that_no_header_may_have_is_refused_by_name(key):
    with pytest.raises(ValueError, match="no key of metadata"):
        call_metadata({key: "x"}, None)


@pytest.mark.parametrize("value", ["x\n", "é", "\x7f", "\t", "\ud800", b"\xff"])
def test_a_value_that_no_header_may_have_is_refused_and_not_quoted(value):
    with pytest.raises(ValueError, match="metadata 'x-secret' is printable ASCII") as caught:
        call_metadata({"X-Secret": value}, None)
    assert repr(value) not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("a", 1), ("a", None), ("a-bin", "x")])
def test_a_value_of_the_wrong_type_is_named_with_its_type(key, value):
    with pytest.raises(TypeError, match=f"'{key}' is .*, not {type(value).__name__}"):
        call_metadata({key: value}, None)


def test_bytes_pass_under_a_binary_key_and_printable_text_under_any_other():
    pairs = (("a-bin", b"\x00\xff"), ("a_b.c-d0", " ~!"), ("a", b"x"), ("a", ""))
    assert call_metadata(pairs, None) == pairs


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("target", ["127.0.0.1:50051", "models.example.test:443"])
def test_a_token_with_its_line_end_is_refused_at_once_and_not_quoted(client, target):
    with pytest.raises(ValueError, match="line end") as caught:
        client(target, token="secret\n", credentials=grpc.ssl_channel_credentials())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_token_of_bytes_is_refused_and_not_sent_as_what_python_prints(client):
    with pytest.raises(TypeError, match="a token is text, not bytes"):
        client("127.0.0.1:50051", token=b"secret")
