"""Where an issuer's keys come from: an https address, over this server's own HTTP client, or a file."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

import httpx

from .http.egress import OPEN_GATE, EgressGate
from .http.httpx_transport import HttpxTransport
from .http.limits import Limits, Timeouts

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 1024 * 1024
"""Of a key set; one has a few kilobytes."""

_TIMEOUTS: Final = Timeouts(pool=5, connect=5, write=5, first_byte=5, idle=5, total=10)


class KeySetUnavailable(OSError):
    """A key set cannot be had; the message names no more than a status or a sort of error."""


class KeySetAddress:
    """Fetch from an address; redirects are refused, and no proxy of the environment is used."""

    def __init__(self, url: str, *, ca_file: Path | None = None, gate: EgressGate = OPEN_GATE) -> None:
        """`ca_file` is a PEM file that replaces the system's trust store."""
        self._url = url
        self._ca_file = ca_file
        self._gate = gate

    async def __call__(self) -> bytes:
        """Return the document. Raises KeySetUnavailable."""
        tls = None if self._ca_file is None else self._context
        transport = HttpxTransport(_TIMEOUTS, Limits(answer_bytes=MOST_BYTES), tls=tls, gate=self._gate)
        try:
            async with httpx.AsyncClient(
                transport=transport, follow_redirects=False, trust_env=False
            ) as client:
                answer = await client.get(self._url, headers={"accept": "application/json"})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"{type(error).__name__}"
            raise KeySetUnavailable(message) from None
        if answer.status_code != httpx.codes.OK:
            message = f"HTTP {answer.status_code}"
            raise KeySetUnavailable(message)
        return answer.content

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)


class KeySetFile:
    """Read a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self) -> bytes:
        """Return the document. Raises OSError."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(MOST_BYTES)
