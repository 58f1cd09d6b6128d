"""Where to connect: origin, base path, optional proxy, TLS settings."""

from __future__ import annotations

import ipaddress
import re
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from modelmeter_server.core.egress import DEFAULT_PORTS

from .egress import OPEN_GATE, EgressGate

_PATH = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that opens tunnels by CONNECT. Its credentials never show in `repr`."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)
    """Value of Proxy-Authorization, or `None`."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `http://[user:password@]host:port`.

        Raises:
            ValueError: not such a URL; the message says what to change and never shows the URL.
        """
        parts = _split(url, "proxy URL")
        if parts.scheme != "http":
            msg = "proxy URL must start with http:// (TLS to the provider runs inside the tunnel)"
            raise ValueError(msg)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            msg = "proxy URL must end after host and port"
            raise ValueError(msg)
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + b64encode(pair.encode()).decode()
        return cls(_host(parts, "proxy URL"), _port(parts, "proxy URL"), authorization)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider origin. Nothing here is ever taken from the environment."""

    scheme: str
    """`http` or `https`."""
    host: str
    """Name in ASCII (IDNA) or an address; an IPv6 address without brackets."""
    port: int
    base_path: str = ""
    """What stands before every path: empty, or `/...` without a slash at the end."""
    proxy: Proxy | None = None
    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    """Makes the context for `https`; by default the system's trust store with verification on."""
    server_hostname: str | None = None
    """Name to verify the certificate against, when it is not `host`."""
    gate: EgressGate = field(default=OPEN_GATE, repr=False, compare=False)
    """Asked before each connection, to the proxy too."""

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        proxy: str | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        ca_file: str | None = None,
        server_hostname: str | None = None,
        gate: EgressGate = OPEN_GATE,
    ) -> Self:
        """Read a base URL such as `https://api.example.com/v1`.

        `ca_file` is a PEM file that replaces the system's trust store; it is ignored when `tls` is given.

        Raises:
            ValueError: not a usable base URL; the message says what to change and never shows the URL.
        """
        parts = _split(url, "base URL")
        if parts.scheme not in DEFAULT_PORTS:
            msg = "base URL must start with https:// or http://"
            raise ValueError(msg)
        if parts.username is not None:
            msg = "base URL must not hold a user name or password: configure the key by api_key_env or api_key_file"
            raise ValueError(msg)
        if parts.query or parts.fragment:
            msg = "base URL must end with its path: remove everything from ? or # on"
            raise ValueError(msg)
        if not _PATH.fullmatch(parts.path):
            msg = "the path of the base URL must be percent-encoded ASCII"
            raise ValueError(msg)
        if tls is None and ca_file is not None:
            tls = TrustFile(ca_file)
        return cls(
            parts.scheme,
            _host(parts, "base URL"),
            _port(parts, "base URL"),
            parts.path.rstrip("/"),
            Proxy.parse(proxy) if proxy is not None else None,
            tls,
            server_hostname,
            gate,
        )

    @property
    def authority(self) -> str:
        """Host and port as the Host header wants them: IPv6 in brackets, the default port left out."""
        return self._bracketed if self.port == DEFAULT_PORTS[self.scheme] else self.tunnel_authority

    @property
    def tunnel_authority(self) -> str:
        """Host and port as CONNECT wants them: the port always named."""
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def target(self, path: str) -> str:
        """Return the request target for `path`, which begins with a slash, below the base path."""
        return self.base_path + path

    def ssl_context(self) -> ssl.SSLContext | None:
        """Make the TLS context of this endpoint; `None` for plain `http`.

        Raises:
            OSError: a trust file cannot be read.
            ssl.SSLError: a trust file is not PEM.
        """
        if self.scheme == "http":
            return None
        return (self.tls or system_trust)()


def check_web_address(url: str, what: str = "it") -> None:
    """Raise ValueError, which never shows the address, unless it is a whole `https://` or `http://` one."""
    parts = _split(url, what)
    if parts.scheme not in DEFAULT_PORTS:
        msg = f"{what} must start with https:// or http://"
        raise ValueError(msg)
    _host(parts, what)
    _port(parts, what)


def system_trust() -> ssl.SSLContext:
    """Make a verifying client context over the system's trust store, for HTTP/1.1 alone."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class TrustFile:
    """Make verifying client contexts that trust the certificates of one PEM file and nothing else."""

    path: str

    def __call__(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.path)
        context.set_alpn_protocols(["http/1.1"])
        return context


def _split(url: str, what: str) -> SplitResult:
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        msg = f"{what} must not contain spaces or control characters"
        raise ValueError(msg)
    if "://" not in url:
        msg = f"{what} must be absolute: write http:// or https:// in front of the host"
        raise ValueError(msg)
    try:
        return urlsplit(url)
    except ValueError:
        msg = f"{what} has brackets that hold no IPv6 address"
        raise ValueError(msg) from None


def _host(parts: SplitResult, what: str) -> str:
    host = parts.hostname
    if not host:
        msg = f"{what} must name a host"
        raise ValueError(msg)
    if ":" in host:
        return host
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        ascii_host = host.encode("idna").decode("ascii")
    except UnicodeError:
        ascii_host = ""
    if not re.fullmatch(r"[a-z0-9._-]+", ascii_host):
        msg = f"{what} has a host that is neither a name nor an address"
        raise ValueError(msg)
    return ascii_host


def _port(parts: SplitResult, what: str) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port is None:
        return DEFAULT_PORTS[parts.scheme]
    if not 1 <= port <= 65535:
        msg = f"{what} must have a port from 1 to 65535"
        raise ValueError(msg)
    return port
