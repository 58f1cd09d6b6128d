"""How often a secret of this process's drivers has become another.

Whoever remembers texts that were cleaned of all secrets asks, and cleans them anew: a text may hold a key that was not
known to be one.
"""

from __future__ import annotations

import threading


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
