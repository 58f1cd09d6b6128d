"""Calls that others may join: those that this server runs under a key, until their outcome is booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelmeter_server.core.journal import CallKey

    from .call import Call

POLL_LEAST = 0.025
POLL_MOST = 0.25
"""Seconds between two looks at a call that another server runs: from what a person does not notice up to what costs a
database nothing."""


class Leaders:
    """Find the call that runs under a key here."""

    def __init__(self) -> None:
        self._calls: dict[CallKey, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, key: CallKey, call: Call) -> None:
        """Let others join a call that the ledger has admitted."""
        self._calls[key] = call

    def remove(self, key: CallKey, call: Call) -> None:
        """Forget a call whose outcome is told; harmless for one that was never added."""
        if self._calls.get(key) is call:
            del self._calls[key]

    def find(self, key: CallKey) -> Call | None:
        """Return the call to join; `None` when it runs elsewhere, or ends already by a leaving caller's wish."""
        call = self._calls.get(key)
        return call if call is not None and call.takes_joiners else None
