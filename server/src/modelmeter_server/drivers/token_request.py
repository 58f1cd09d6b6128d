"""How google-auth reaches token endpoints: the standard library's client, for a thread.

Not google-auth's own transports: they bring an HTTP client more, follow redirects with the signed assertion, and go by
the environment's proxies, which no instance does.
"""

from __future__ import annotations

import functools
import ssl
import urllib.error
import urllib.request
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from modelmeter_server.core.egress import DEFAULT_PORTS

from .http import OPEN_GATE, EgressGate

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT: Final = 10.0
"""Seconds for one step of a request, unless google-auth asks for fewer."""

_BODY_BYTES: Final = 1024 * 1024


class TokenResponse(NamedTuple):
    """An answer, as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _check_peer(gate: EgressGate, scheme: str, connection: HTTPConnection) -> None:
    """Raise ConnectError, and close what is open, where a host that is allowed stands for an address that is not."""
    address, port = connection.sock.getpeername()[:2]
    try:
        gate.check_address(scheme, connection.host, str(address), port)
    except BaseException:
        connection.close()
        raise


class _CheckedConnection(HTTPConnection):
    def __init__(self, *arguments: Any, gate: EgressGate, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._gate = gate

    def connect(self) -> None:
        super().connect()
        _check_peer(self._gate, "http", self)


class _CheckedTlsConnection(HTTPSConnection):
    def __init__(self, *arguments: Any, gate: EgressGate, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._gate = gate

    def connect(self) -> None:
        super().connect()
        _check_peer(self._gate, "https", self)


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, gate: EgressGate) -> None:
        super().__init__()
        self._gate = gate

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        made: Any = functools.partial(_CheckedConnection, gate=self._gate)
        return self.do_open(made, req)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, gate: EgressGate, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._gate, self._own_context = gate, context

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        made: Any = functools.partial(_CheckedTlsConnection, gate=self._gate)
        return self.do_open(made, req, context=self._own_context)


class TokenRequest:
    """A `google.auth.transport.Request`; that class is an interface only, and cannot be named without the extra."""

    def __init__(
        self, *, proxy: str | None = None, ca_file: str | None = None, gate: EgressGate = OPEN_GATE
    ) -> None:
        """`proxy` opens tunnels for `https`; the machine's metadata server, which is `http`, is never behind it.

        `gate` is asked before each request.
        """
        self._gate = gate
        self._proxy = proxy
        proxies = {} if proxy is None else {"https": proxy}
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies),
            _Plain(gate),
            _Tls(gate, ssl.create_default_context(cafile=ca_file)),
            _NoRedirect(),
        )

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> TokenResponse:
        """Return the answer whatever its status.

        Raises `google.auth.exceptions.TransportError` if there is none, and ConnectError where the gate is shut.
        """
        from google.auth.exceptions import TransportError

        if not url.lower().startswith(("https:", "http:")):
            msg = "a token endpoint is no http address"
            raise ValueError(msg)
        self._pass(url)
        data = body.encode() if isinstance(body, str) else body
        asked = urllib.request.Request(url, data, dict(headers or {}), method=method)  # noqa: S310 - judged above
        try:
            with self._opener.open(asked, timeout=min(timeout or TIMEOUT, TIMEOUT)) as answer:
                return TokenResponse(answer.status, dict(answer.headers), answer.read(_BODY_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return TokenResponse(error.code, dict(error.headers), _rest(error))
        except (OSError, HTTPException) as error:
            # Without the text, which may hold a proxy's address with its password.
            unreached: Exception = TransportError(type(error).__name__)  # type: ignore[no-untyped-call]
            raise unreached from error

    def _pass(self, url: str) -> None:
        for address in (url, self._proxy if self._proxy and url.lower().startswith("https:") else None):
            if address is not None:
                parts = urlsplit(address)
                self._gate.check(
                    parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
                )


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_BODY_BYTES)
    except (OSError, HTTPException):
        return b""
