"""Limits on calls, as values: of a server, its tenants, models and targets."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_CONCURRENT_CALLS: Final = 1_000
"""Calls under way at once unless configured otherwise."""

MAX_QUEUED_CALLS: Final = 100
"""Calls that wait for room unless configured otherwise: what a tenth of a thousand calls under way leaves in a second
or two, so that a short burst is smoothed and a long one is told early."""

QUEUE_SECONDS: Final = 5.0
"""How long a call waits for room at most unless configured otherwise."""


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant or a model may have; `None` is not limited."""

    concurrent: int | None = None
    """Calls under way at once."""
    requests_per_minute: int | None = None
    """Calls that are sent to a provider."""
    tokens_per_minute: int | None = None
    """Input and output of those calls: what is held for them first, what was told in the end."""
    queued: int | None = None
    """Calls that wait for room at once; for tenants only."""

    @property
    def is_open(self) -> bool:
        """Say whether nothing is limited."""
        return self == _OPEN


_OPEN = CallLimits()


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of a server process."""

    concurrent: int = MAX_CONCURRENT_CALLS
    queued: int = MAX_QUEUED_CALLS
    """Calls that wait for room; 0 refuses at once."""
    queue_seconds: float = QUEUE_SECONDS
    """How long each of them waits at most."""
    tenants: dict[str, CallLimits] = {}
    models: dict[str, CallLimits] = {}
    """By the names that callers ask for."""
    targets: dict[str, int] = {}
    """Calls under way at once, by provider instance."""

    def divided(self, share: int, worker: int = 0) -> AdmissionLimits:
        """Return what one of `share` workers may have, so that all of them together have this.

        Each gets an equal part; what is left over goes to the first of them, one each. A limit that is smaller than
        the number of workers becomes 1 for each: a worker that may do nothing would fail the callers it is given.
        `queue_seconds` is nobody's share.
        """
        if share == 1:
            return self
        return AdmissionLimits(
            concurrent=_part(self.concurrent, share, worker),
            queued=_part(self.queued, share, worker) if self.queued else 0,
            queue_seconds=self.queue_seconds,
            tenants={name: _parts(each, share, worker) for name, each in self.tenants.items()},
            models={name: _parts(each, share, worker) for name, each in self.models.items()},
            targets={name: _part(each, share, worker) for name, each in self.targets.items()},
        )


def _parts(limits: CallLimits, share: int, worker: int) -> CallLimits:
    return CallLimits(
        **{
            name: None if (limit := getattr(limits, name)) is None else _part(limit, share, worker)
            for name in limits.__struct_fields__
        }
    )


def _part(limit: int, share: int, worker: int) -> int:
    part, rest = divmod(limit, share)
    return max(1, part + (worker < rest))
