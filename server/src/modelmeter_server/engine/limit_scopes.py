"""One tenant's or model's limits at work: who is under way, what is left of its minute, and what keeps a call out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.rate import Bucket

if TYPE_CHECKING:
    from modelmeter_server.core.call_limits import CallLimits


Taken = dict[Bucket, int]
"""The buckets that a call took from, each with its rate at that moment."""


class Obstacle(msgspec.Struct, frozen=True):
    """Why there is no room for a call."""

    scope: str
    """`server`, `tenant`, `model` or `target`."""
    name: str
    """Whose limit it is; empty for the server's own."""
    limit: str
    """The limit, as the configuration spells it."""
    allowed: int
    wait: int | None = None
    """Nanoseconds until room returns; `None` when that depends on other calls."""
    bucket: Bucket | None = None
    """The rate that has too little left."""

    @property
    def subject(self) -> str:
        """Return whose limit it is in one word."""
        return f"{self.scope}:{self.name}" if self.name else self.scope


class Scope:
    """What one tenant or model has under way, and has left."""

    def __init__(self, kind: str, name: str, limits: CallLimits, at: int) -> None:
        """Begin with nothing under way and a full minute's worth."""
        self.kind = kind
        self.name = name
        self.limits = limits
        self.in_flight = 0
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.reconfigure(limits, at)

    def reconfigure(self, limits: CallLimits, at: int) -> None:
        """Take other limits; what is under way and what was taken goes on counting."""
        self.limits = limits
        self.requests = _bucket(self.requests, limits.requests_per_minute, at)
        self.tokens = _bucket(self.tokens, limits.tokens_per_minute, at)

    def is_full(self) -> Obstacle | None:
        """Return the limit on calls at once, if it is reached."""
        limit = self.limits.concurrent
        if limit is None or self.in_flight < limit:
            return None
        return Obstacle(self.kind, self.name, "limits.concurrent", limit)

    def is_spent(self, tokens: int, at: int) -> Obstacle | None:
        """Return the rate of which too little is left for a call of so many tokens, the one that takes longest."""
        found = [
            Obstacle(self.kind, self.name, f"limits.{name}", bucket.per_minute, wait, bucket)
            for name, bucket, amount in (
                ("requests_per_minute", self.requests, 1),
                ("tokens_per_minute", self.tokens, tokens),
            )
            if bucket is not None and (wait := bucket.wait(amount, at))
        ]
        return max(found, key=lambda each: each.wait or 0, default=None)

    def take(self, tokens: int, at: int) -> Taken:
        """Take from the minute what a call asks for; return what each bucket was when it was taken from."""
        taken: Taken = {}
        for bucket, amount in ((self.requests, 1), (self.tokens, tokens)):
            if bucket is not None:
                bucket.take(amount, at)
                taken[bucket] = bucket.per_minute
        return taken

    def correct(self, requests: int, tokens: int, at: int, taken: Taken) -> None:
        """Give back what was `taken` and not used; a negative number takes more.

        A bucket that gave nothing, for it is younger than the call, gets nothing. What was taken is the same part of a
        bucket whose rate was changed since, as what was left is.
        """
        for bucket, unused in ((self.requests, requests), (self.tokens, tokens)):
            if bucket is None or bucket not in taken:
                continue
            if unused > 0:
                bucket.give(unused * bucket.per_minute // taken[bucket], at)
            elif unused < 0:
                bucket.take(-unused, at)


def _bucket(old: Bucket | None, per_minute: int | None, at: int) -> Bucket | None:
    if per_minute is None:
        return None
    if old is None:
        return Bucket(per_minute, at)
    old.change(per_minute, at)
    return old
