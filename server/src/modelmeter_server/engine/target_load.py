"""How many calls each target has under way here: what admission limits and what routing compares."""

from __future__ import annotations


class TargetLoad:
    """Count calls by target, a provider instance."""

    def __init__(self) -> None:
        """Begin with none."""
        self._in_flight: dict[str, int] = {}

    def in_flight(self, target: str) -> int:
        """Return how many calls the target has now."""
        return self._in_flight.get(target, 0)

    def add(self, target: str) -> None:
        """Count a call that goes there."""
        self._in_flight[target] = self._in_flight.get(target, 0) + 1

    def remove(self, target: str) -> None:
        """Count a call no more that was added."""
        left = self._in_flight.get(target, 0) - 1
        if left > 0:
            self._in_flight[target] = left
        else:
            self._in_flight.pop(target, None)
