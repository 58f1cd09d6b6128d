"""Endpoints, requests, headers, limits and ends as values: what they refuse, and what they never show."""

from __future__ import annotations

import math
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.outcomes import Cause
from modelmeter_server.drivers.http import (
    Endpoint,
    Fault,
    Headers,
    HttpRequest,
    Limits,
    Proxy,
    Timeouts,
    TrustFile,
    cause_of,
)
from modelmeter_server.drivers.http.message import OWNED_HEADERS, request_head


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "base_path", "authority"),
    [
        ("https://api.anthropic.com", "https", "api.anthropic.com", 443, "", "api.anthropic.com"),
        ("https://API.example.com:8443/v1/", "https", "api.example.com", 8443, "/v1", "api.example.com:8443"),
        ("http://127.0.0.1:80", "http", "127.0.0.1", 80, "", "127.0.0.1"),
        ("http://[::1]:8080/x", "http", "::1", 8080, "/x", "[::1]:8080"),
        ("https://bücher.example/", "https", "xn--bcher-kva.example", 443, "", "xn--bcher-kva.example"),
    ],
)
def test_a_base_url_is_read(
    url: str, scheme: str, host: str, port: int, base_path: str, authority: str
) -> None:
    endpoint = Endpoint.parse(url)
    assert (endpoint.scheme, endpoint.host, endpoint.port, endpoint.base_path) == (
        scheme,
        host,
        port,
        base_path,
    )
    assert endpoint.authority == authority
    assert endpoint.target("/messages?beta=1") == base_path + "/messages?beta=1"


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("api.anthropic.com", "write http"),
        ("ftp://host", "https:// or http://"),
        ("https://", "name a host"),
        ("https:///v1", "name a host"),
        ("https://user:secret@host", "api_key_env"),
        ("https://host/v1?key=secret", r"remove everything from \?"),
        ("https://host/v1#secret", r"remove everything from \?"),
        ("https://host:0", "1 to 65535"),
        ("https://host:99999", "1 to 65535"),
        ("https://host:secret", "1 to 65535"),
        ("https://ho st", "spaces"),
        ("https://host/\r\nx: y", "spaces or control"),
        ("https://[::1", "brackets"),
        ("https://" + "x" * 70 + ".example", "neither a name nor an address"),
        ("https://host/ä", "percent-encoded"),
    ],
)
def test_a_base_url_that_cannot_be_used_is_refused_with_its_fix(url: str, fix: str) -> None:
    with pytest.raises(ValueError, match=fix) as caught:
        Endpoint.parse(url)
    assert "secret" not in str(caught.value)


def test_a_proxy_is_read_with_its_credentials_and_never_shows_them() -> None:
    proxy = Proxy.parse("http://user:p%40ss@proxy.example:3128")
    assert (proxy.host, proxy.port) == ("proxy.example", 3128)
    assert proxy.authorization == "Basic dXNlcjpwQHNz"
    endpoint = Endpoint.parse("https://host", proxy="http://user:p%40ss@proxy.example:3128")
    assert endpoint.proxy == proxy
    assert "dXNlcjpwQHNz" not in repr(endpoint)


@pytest.mark.parametrize("url", ["https://proxy:3128", "proxy:3128", "http://proxy/path", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="proxy URL"):
        Endpoint.parse("https://host", proxy=url)


def test_tls_verifies_by_default_and_a_trust_file_must_exist() -> None:
    context = Endpoint.parse("https://host").ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert Endpoint.parse("http://host").ssl_context() is None
    endpoint = Endpoint.parse("https://host", ca_file="/nonexistent/ca.pem")
    assert endpoint.tls == TrustFile("/nonexistent/ca.pem")
    with pytest.raises(FileNotFoundError):
        endpoint.ssl_context()


@given(st.text(max_size=20))
def test_a_request_head_never_gets_a_line_more_from_a_header(value: str) -> None:
    try:
        request = HttpRequest("POST", "/", (("x-key", value),), b"")
    except ValueError:
        return
    assert request_head(request, "host").count(b"\r\n") == 6
    assert request_head(request, "host").count(b"\n") == 6


@pytest.mark.parametrize("name", ["", "x y", "x\r\nz", "x:", "ü", *sorted(OWNED_HEADERS), "Host"])
def test_a_header_name_that_is_none_or_the_transports_own_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="header"):
        HttpRequest("GET", "/", ((name, "v"),))


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\x00b", "\u20ac"])
def test_a_header_value_with_a_break_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="header x-api-key") as caught:
        HttpRequest("GET", "/", (("x-api-key", "secret" + value),))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "target"), [("GE T", "/"), ("CONNECT", "/"), ("GET", "x"), ("GET", "/a b"), ("GET", "/\r\n")]
)
def test_a_method_or_target_that_breaks_the_line_is_refused(method: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"method|target"):
        HttpRequest(method, target)


def test_a_post_without_a_body_says_so_and_a_get_says_nothing() -> None:
    assert b"content-length: 0\r\n" in request_head(HttpRequest("POST", "/"), "h")
    assert b"content-length" not in request_head(HttpRequest("GET", "/"), "h")


def test_headers_are_found_in_any_case_and_never_shown() -> None:
    headers = Headers([("X-Request-Id", "secret"), ("Set-Cookie", "a"), ("set-cookie", "b")])
    assert headers.get("x-request-ID") == "secret"
    assert headers.get("absent") is None
    assert headers.get_all("SET-COOKIE") == ("a", "b")
    assert headers.items() == (("x-request-id", "secret"), ("set-cookie", "a"), ("set-cookie", "b"))
    assert "SET-COOKIE" in headers
    assert "secret" not in repr(headers)


@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_timeout_must_be_above_zero(value: float) -> None:
    with pytest.raises(ValueError, match="timeout idle"):
        Timeouts(idle=value)


def test_a_limit_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="limit connections"):
        Limits(connections=0)


def test_every_fault_but_none_has_a_cause() -> None:
    assert cause_of(Fault.NONE) is None
    assert all(isinstance(cause_of(fault), Cause) for fault in Fault if fault is not Fault.NONE)
