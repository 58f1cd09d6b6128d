"""Credentials that expire: fetched in a thread, once for all calls that wait, and anew before they end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from .known_secrets import SECRET_CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

BETWEEN_RENEWALS: Final = 60.0
"""Some credentials live shorter than the window in which they are renewed; they are not asked for with every call."""


class Renewal(Generic[T]):
    """The last credentials that a function found. Belongs to one event loop."""

    def __init__(self, fetch: Callable[[], T]) -> None:
        """Fetch nothing yet; `fetch` runs in a thread, never twice at once, and raises CredentialsError."""
        self._fetch = fetch
        self._loading: asyncio.Task[None] | None = None
        self._begun_at = 0.0
        self.value: T | None = None
        """`None` before the first success."""

    async def wait(self) -> None:
        """Wait until they are fetched anew, with all others who wait. May be cancelled. Raises CredentialsError."""
        await asyncio.shield(self._begin())

    def renew(self) -> None:
        """Fetch them anew beside the calls, unless that was begun just now."""
        if time.monotonic() - self._begun_at > BETWEEN_RENEWALS:
            self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._loading is None or self._loading.done():
            self._loading = asyncio.ensure_future(self._run())
            # Nobody waits for a renewal beside the calls, and its failure is told by the next that needs it.
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._loading

    async def _run(self) -> None:
        self._begun_at = time.monotonic()
        self.value = await asyncio.to_thread(self._fetch)
        SECRET_CHANGES.note()
