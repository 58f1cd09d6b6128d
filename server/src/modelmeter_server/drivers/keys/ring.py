"""Several keys of one provider instance: which of them the next request goes with.

The key with the fewest requests under way goes first; among equals they take turns. A key that the provider refuses
rests, ever longer as long as it is refused, and the others go in its place. When all rest, the one whose rest ends
first is tried: what a key is worth is the provider's to judge. Nothing is sent again here: a key that is refused
costs the call that found out, unless another attempt is allowed, which goes with another key.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Code, Kind

from .source import FixedKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.core.answers import Answer

    from .source import Complain, Key, KeySource

REST_SECONDS: Final = 60.0
LONGEST_REST: Final = 3_600.0
"""How long a refused key rests the first time, and at most: the rest doubles each time."""

THROTTLED_SECONDS: Final = 1.0
LONGEST_THROTTLED: Final = 60.0
"""How long a key rests that is rate limited: as long as the provider says, within these."""

# Refusals of the call and not of the key: a proxy's credentials, a conflict, the law, and what redirects elsewhere.
_NOT_OF_KEYS: Final = frozenset((407, 409, 451))


class _Place:
    """A key and how it fares."""

    def __init__(self, source: KeySource, number: int) -> None:
        self.source = source
        self.number = number
        self.under_way = 0
        self.last_given = 0
        self._rests_until = float("-inf")
        self._refused = ""
        self._refusals = 0

    def rest_left(self, now: float) -> float:
        """Return the seconds that it still rests; none once its source has another key than the refused one."""
        left = self._rests_until - now
        if left > 0 and self._refused and self.source.is_ready and self.source.current() != self._refused:
            self.recover()
            return 0.0
        return max(0.0, left)

    def rest(self, now: float, key: str) -> float:
        """Rest after a refusal of this key, for the seconds that are returned; 0 when it rests already."""
        if key == self._refused and now < self._rests_until:
            return 0.0  # calls that left together are refused together: that is one refusal
        self._refusals += 1
        self._refused = key
        seconds = min(REST_SECONDS * 2.0 ** min(self._refusals - 1, 16), LONGEST_REST)
        self._rests_until = now + seconds
        return seconds

    def pause(self, now: float, seconds: float) -> None:
        """Rest after too many requests."""
        self._rests_until = max(self._rests_until, now + seconds)

    def recover(self) -> None:
        """Rest no more: it was taken."""
        self._refusals, self._refused, self._rests_until = 0, "", float("-inf")


class KeyRing:
    """The keys of one instance. Belongs to one event loop."""

    def __init__(
        self,
        sources: Sequence[KeySource],
        header: Callable[[str], tuple[str, str]],
        clock: Callable[[], float] = time.monotonic,
        complain: Complain | None = None,
    ) -> None:
        """`header` turns a key into the header that carries it. Without sources no authentication is sent."""
        self._places = [_Place(source, number) for number, source in enumerate(sources, 1)]
        self._header = header
        self._clock = clock
        self._complain = complain
        self._given = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def known(self) -> tuple[str, ...]:
        """Return all keys, and those that they were before: what must be cut out of any text."""
        return tuple(key for place in self._places for key in place.source.known)

    @property
    def usable(self) -> int:
        """Return how many keys do not rest: with one left, another attempt may go where this one was refused."""
        now = self._clock()
        return sum(place.rest_left(now) == 0 for place in self._places)

    def lease(self) -> KeyLease | None:
        """Choose a key for one request; `None` where no key is sent."""
        if not self._places:
            return None
        now = self._clock()
        place = min(self._places, key=lambda each: (each.rest_left(now), each.under_way, each.last_given))
        self._given += 1
        place.last_given = self._given
        return KeyLease(place, self._header, self._clock, self._complain)


class KeyLease:
    """One request's key: an `Authenticator` of that request, told how it ended."""

    def __init__(
        self,
        place: _Place,
        header: Callable[[str], tuple[str, str]],
        clock: Callable[[], float],
        complain: Complain | None = None,
    ) -> None:
        self._place = place
        self._make_header = header
        self._clock = clock
        self._complain = complain
        self._sent = ""

    @property
    def number(self) -> int:
        """Return which of the configured keys it is, from 1."""
        return self._place.number

    @property
    def is_ready(self) -> bool:
        """Say whether the key is there."""
        return self._place.source.is_ready

    async def prepare(self) -> None:
        """Wait for the key. May be cancelled. Raises CredentialsError."""
        await self._place.source.prepare()

    def header(self) -> tuple[tuple[str, str], ...]:
        """Return the header that carries the key, as it is now."""
        self._sent = self._place.source.current()
        return (self._make_header(self._sent),)

    def headers(self, _request: object, _url: str) -> tuple[tuple[str, str], ...]:
        """See `Authenticator`."""
        return self.header()

    @property
    def secrets(self) -> Sequence[str]:
        """See `Authenticator`."""
        return self._place.source.known

    def begin(self) -> None:
        """Count the request as under way."""
        self._place.under_way += 1

    def end(self, result: Answer | Failure | None) -> None:
        """Hear how it ended; `None` when that says nothing of the key."""
        self._place.under_way -= 1
        if not self._sent or result is None:
            return
        if not isinstance(result, Failure):
            self._place.recover()
        elif is_refusal_of_key(result):
            seconds = self._place.rest(self._clock(), self._sent)
            if seconds and self._complain is not None:
                status = f" (HTTP {result.http_status})" if result.http_status else ""
                self._complain(f"key {self.number} is refused{status} and rests for {seconds:g} s")
            self._place.source.refused(self._sent)
        elif result.kind is Kind.RATE_LIMITED:
            told = result.retry_after
            seconds = THROTTLED_SECONDS if told is None else min(max(told, 0.0), LONGEST_THROTTLED)
            self._place.pause(self._clock(), seconds)


def is_refusal_of_key(failed: Failure) -> bool:
    """Say whether a provider refused the key and not the request: credentials, permission, quota, billing."""
    status = failed.http_status or 0
    return (
        failed.kind is Kind.REFUSED
        and failed.cause is Cause.PROVIDER
        and failed.code is Code.FAILED_PRECONDITION
        and status not in _NOT_OF_KEYS
        and not 300 <= status < 400
    )


def ring_of(key: Key | KeyRing | None, header: Callable[[str], tuple[str, str]]) -> KeyRing:
    """Return a ring as it is, and one of a single key, or of none, for whatever else."""
    if isinstance(key, KeyRing):
        return key
    return KeyRing([] if key is None else [FixedKey(key)], header)
