"""Requests and response heads as values, and the bytes of a request head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(r"/[!-~]*")
# RFC 9110 5.5: visible characters, obs-text, space and tab; anything else could start a header of its own.
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

OWNED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Header names that the transport decides alone: how a message is framed and whether its connection is kept."""


class Headers:
    """Response headers, looked up without regard to case. Their values never show in `repr`."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._items = tuple((name.lower(), value) for name, value in items)

    def get(self, name: str) -> str | None:
        """Return the first value of this header, or `None` when it is absent."""
        name = name.lower()
        return next((value for key, value in self._items if key == name), None)

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return every value of this header in the order of arrival."""
        name = name.lower()
        return tuple(value for key, value in self._items if key == name)

    def items(self) -> tuple[tuple[str, str], ...]:
        """Return all (lower-case name, value) pairs in the order of arrival."""
        return self._items

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, Headers) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of a final (not 1xx) answer."""

    status: int
    headers: Headers

    @property
    def is_success(self) -> bool:
        """Say whether the status is 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `target` is path and query, beginning with a slash; Host, Content-Length, Accept-Encoding
    and Connection are set by the transport.

    Raises:
        ValueError: the method, the target or a header could not be written as one line of HTTP/1.1, or the
        header is
            the transport's own. The message names the header, never its value.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.method) or self.method.upper() == "CONNECT":
            msg = "method must be an HTTP token such as POST, and not CONNECT"
            raise ValueError(msg)
        if not _TARGET.fullmatch(self.target):
            msg = "target must be a path with an optional query, percent-encoded, beginning with /"
            raise ValueError(msg)
        for name, value in self.headers:
            _check_header(name, value)


def _check_header(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name):
        msg = "a header name must be an HTTP token: letters, digits and hyphens"
        raise ValueError(msg)
    if name.lower() in OWNED_HEADERS:
        msg = f"header {name} is set by the transport: leave it out"
        raise ValueError(msg)
    if not _VALUE.fullmatch(value):
        msg = (
            f"the value of header {name} has a line break, another control character or text outside Latin-1"
        )
        raise ValueError(msg)


def request_head(request: HttpRequest, host: str) -> bytes:
    """Return request line and headers up to and with the blank line. `host` is the value of the Host header."""
    lines = [
        f"{request.method} {request.target} HTTP/1.1\r\nhost: {host}\r\naccept-encoding: gzip, deflate\r\n"
    ]
    lines += [f"{name}: {value}\r\n" for name, value in request.headers]
    # A GET without a body announces none; some front ends answer 411 to a POST that leaves the length out.
    if request.body or request.method not in ("GET", "HEAD", "DELETE", "OPTIONS"):
        lines.append(f"content-length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")
