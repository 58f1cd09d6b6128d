"""How much of a thing may pass in a minute: a bucket that fills evenly, in whole numbers, by a clock that is handed in.

A bucket holds one minute's worth. Who finds it full may take all of it at once; from then on it passes what flows in.
It may be overdrawn: what a call turns out to have taken is taken, and later ones wait until it is paid back.
"""

from __future__ import annotations

from typing import Final

MINUTE: Final = 60_000_000_000
"""Nanoseconds. One unit for each of them flows in per minute of rate, so that nothing is ever rounded."""


class Bucket:
    """What is left of a rate. Times are nanoseconds of one clock that never goes back."""

    __slots__ = ("_at", "_level", "per_minute")

    def __init__(self, per_minute: int, at: int) -> None:
        """Begin full. `per_minute` is 1 at least."""
        self.per_minute = per_minute
        """What flows in each minute, and what the bucket holds."""
        self._level = per_minute * MINUTE
        self._at = at

    def left(self, at: int) -> int:
        """Return how much can be taken now, rounded down; below zero while it is overdrawn."""
        self._fill(at)
        return self._level // MINUTE

    def wait(self, amount: int, at: int) -> int:
        """Return how many nanoseconds it takes until `amount` is there, 0 if it is.

        More than a minute's worth is there when the bucket is full: it would never pass otherwise.
        """
        self._fill(at)
        missing = min(amount, self.per_minute) * MINUTE - self._level
        return -(-missing // self.per_minute) if missing > 0 else 0

    def take(self, amount: int, at: int) -> None:
        """Take this much, whether it is there or not."""
        self._fill(at)
        self._level -= amount * MINUTE

    def give(self, amount: int, at: int) -> None:
        """Put back what was taken and not used; a full bucket takes no more."""
        self._fill(at)
        self._level = min(self._level + amount * MINUTE, self.per_minute * MINUTE)

    def change(self, per_minute: int, at: int) -> None:
        """Let another amount flow in from now on; the bucket stays as full, in proportion, as it is."""
        self._fill(at)
        self._level = self._level * per_minute // self.per_minute
        self.per_minute = per_minute

    def _fill(self, at: int) -> None:
        if at > self._at:
            self._level = min(self._level + (at - self._at) * self.per_minute, self.per_minute * MINUTE)
            self._at = at
