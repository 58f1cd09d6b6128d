"""Posting an event to somebody's web address."""

from __future__ import annotations

from typing import Final

import httpx
import msgspec

from .http import OPEN_GATE, EgressGate, HttpxTransport

TIMEOUT: Final = 5.0
"""Seconds for each step of a delivery."""


class NotDelivered(Exception):
    """The receiver did not take the event; the message names no part of its address, which may hold a secret."""


class Webhook:
    """One address that takes events as JSON by POST."""

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport | None = None, *, gate: EgressGate = OPEN_GATE
    ) -> None:
        """Connect with the first event. `transport` stands in for the network in tests."""
        self._url = url
        self._client = httpx.AsyncClient(
            transport=transport or HttpxTransport(gate=gate),
            timeout=TIMEOUT,
            trust_env=False,
            follow_redirects=False,
        )

    async def post(self, event: dict[str, object]) -> None:
        """Deliver an event: any 2xx takes it. Raises NotDelivered."""
        headers = {"content-type": "application/json"}
        try:
            response = await self._client.post(self._url, content=msgspec.json.encode(event), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDelivered(type(error).__name__) from None
        if not response.is_success:
            message = f"HTTP {response.status_code}"
            raise NotDelivered(message)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.aclose()
