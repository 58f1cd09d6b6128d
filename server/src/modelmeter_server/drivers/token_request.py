"""How google-auth reaches token endpoints: the standard library's client, for a thread.

Not google-auth's own transports: they bring an HTTP client more, follow redirects with the signed assertion, and go by
the environment's proxies, which no instance does.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


class TokenRequest:
    """A `google.auth.transport.Request`; that class is an interface only, and cannot be named without the extra."""

    def __init__(self, *, proxy: str | None = None, ca_file: str | None = None) -> None:
        """`proxy` opens tunnels for `https`; the machine's metadata server, which is `http`, is never behind it."""
        proxies = {} if proxy is None else {"https": proxy}
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)),
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
        """Return the answer whatever its status. Raises `google.auth.exceptions.TransportError` if there is none."""
        from google.auth.exceptions import TransportError

        if not url.lower().startswith(("https:", "http:")):
            msg = "a token endpoint is no http address"
            raise ValueError(msg)
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


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_BODY_BYTES)
    except (OSError, HTTPException):
        return b""
