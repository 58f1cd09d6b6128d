"""Which secrets the drivers of this process have, and how often one has become another.

Whoever remembers texts that were cleaned of all secrets asks, and cleans them anew: a text may hold a key that was not
known to be one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class SecretChanges:
    """A count that goes up when a driver has learned a secret. Of any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def note(self) -> None:
        """Count a change, once the driver tells the new secret to those who ask for its secrets."""
        with self._lock:
            self._count += 1

    def count(self) -> int:
        """Return how many changes there have been."""
        return self._count


SECRET_CHANGES = SecretChanges()
"""Those of all drivers: one too many only costs whoever asks some work."""


class HasSecret(Protocol):
    """A secret that shows itself when asked."""

    def reveal(self) -> str:
        """Return it."""


class KnownSecrets:
    """The secrets of drivers, gathered anew once one has changed: every call asks. Shows none of them."""

    __slots__ = ("_found", "_found_for")

    def __init__(self) -> None:
        self._found: tuple[str, ...] = ()
        self._found_for: object = None

    def of(self, drivers: Sequence[object], former: Sequence[HasSecret]) -> Sequence[str]:
        """Return those of these drivers, as far as they have any, and the former ones."""
        found_for = SECRET_CHANGES.count(), drivers, former
        if found_for != self._found_for:
            now = [each for driver in drivers for each in getattr(driver, "secrets", ())]
            self._found = (*now, *(each.reveal() for each in former))
            self._found_for = found_for
        return self._found
