"""Whether a failed attempt is followed by another one, and after which wait: tenacity's terms, decided by our table.

This is the only place that knows the library. It decides, and the call waits: a wait ends at once when the call is cut,
which no sleep of a library's would hear.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tenacity import AsyncRetrying, Future, RetryCallState
from tenacity.retry import retry_if_result
from tenacity.stop import stop_after_attempt, stop_base
from tenacity.wait import wait_base, wait_exponential

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.retry_policy import RetryPolicy, is_worth_another, spread

if TYPE_CHECKING:
    from collections.abc import Callable


class Retries:
    """The attempts of one call. Every failed one is shown to it, whichever target it asked."""

    policy: RetryPolicy
    """Of this call."""

    def __init__(
        self, policy: RetryPolicy, call_id: str, time_left: Callable[[], float | None] = lambda: None
    ) -> None:
        """Go by `policy`. `time_left` returns how many seconds the call still has; `None` for any time."""
        self.policy = policy
        self._call_id = call_id
        self._time_left = time_left
        self._number = 0

    @functools.cached_property
    def _terms(self) -> AsyncRetrying:
        """Made for the first failure: most calls have none."""
        policy = self.policy
        return AsyncRetrying(
            retry=retry_if_result(lambda result: is_worth_another(result, policy)),
            wait=_Named(policy, self._call_id),
            stop=stop_after_attempt(policy.max_attempts) | _OutOfTime(self._time_left),
        )

    @property
    def has_room(self) -> bool:
        """Say whether one more request fits, of those that failed so far and of the time."""
        left = self._time_left()
        return self._number < self.policy.max_attempts and (left is None or left > 0)

    @property
    def ambiguous(self) -> bool:
        """Say whether silence after a written request may be asked again."""
        return self.policy.ambiguous

    def wait_after(self, failure: Failure) -> float | None:
        """Return how many seconds to wait before the same target is asked again; `None`: it is not.

        To be called once for each attempt that failed, for it counts them.
        """
        self._number += 1
        if self._number >= self.policy.max_attempts:
            return None
        state = self._state(failure)
        if not self._terms.retry(state):
            return None
        wait = self._terms.wait(state)
        state.upcoming_sleep = float(wait)
        return None if self._terms.stop(state) else state.upcoming_sleep

    def _state(self, failure: Failure) -> RetryCallState:
        state = RetryCallState(self._terms, None, (), {})
        state.attempt_number = self._number
        state.outcome = Future.construct(self._number, failure, has_exception=False)
        return state


class _Named(wait_base):
    """What the provider named, cut to the policy's maximum; else exponential, between half and all of it."""

    def __init__(self, policy: RetryPolicy, call_id: str) -> None:
        self._most = policy.max_wait
        self._call_id = call_id
        self._doubling = wait_exponential(multiplier=policy.initial_wait, max=policy.max_wait)

    def __call__(self, retry_state: RetryCallState) -> float:
        """Return the seconds."""
        named = _failure(retry_state).retry_after
        if named is not None:
            return min(named, self._most)
        share = spread(self._call_id, retry_state.attempt_number)
        return self._doubling(retry_state) * (0.5 + share / 2)


class _OutOfTime(stop_base):
    """No time is left for the wait: the provider's error now is worth more than the same one at the deadline."""

    def __init__(self, time_left: Callable[[], float | None]) -> None:
        self._time_left = time_left

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Say so."""
        left = self._time_left()
        return left is not None and retry_state.upcoming_sleep >= left


def _failure(state: RetryCallState) -> Failure:
    assert state.outcome is not None
    result: Any = state.outcome.result()
    assert isinstance(result, Failure)
    return result
