"""Which failed attempts are followed by another one, how often a call may be tried, and how waits are spread. Pure.

    kind                               another attempt
    ---------------------------------  -------------------------------------------------------------------
    RATE_LIMITED                       after the wait that the provider named
    UNREACHABLE                        unless a repetition cannot help: a certificate, a proxy's credentials
    UNAVAILABLE, the provider spoke    yes
    UNAVAILABLE, silence               only with `ambiguous`: it may have generated
    INTERRUPTED UNACCOUNTED UNUSABLE   only with `landed`: it did generate, and both are billed
    everything else                    no

Whatever a caller, a deadline, a drain, a limit or a fault of ours ended is not tried again.
"""

from __future__ import annotations

import hashlib

import msgspec

from .errors import Failure, FieldViolation
from .outcomes import Cause, Kind

MAX_ATTEMPTS = 20
"""The most that can be configured: with waits of a minute between them that is a third of an hour."""

INITIAL_WAIT = 0.5
"""Seconds before the second attempt, as the SDKs of OpenAI and Anthropic wait."""

MAX_WAIT = 30.0
"""Seconds between two attempts at most: what a provider names beyond is cut to this."""

_ENDED_OUTSIDE = frozenset((Cause.PROVIDER, Cause.NETWORK, Cause.IDLE_TIMEOUT))
_LANDED = frozenset((Kind.INTERRUPTED, Kind.UNACCOUNTED, Kind.UNUSABLE))

_JITTER_KEY = b"modelmeter retry"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call asks its provider, and after which failures."""

    max_attempts: int = 1
    """Provider requests of one call; re-sends after a stale connection are not counted."""
    initial_wait: float = INITIAL_WAIT
    """Seconds before the second attempt where the provider names none; doubled for each one after."""
    max_wait: float = MAX_WAIT
    """Seconds of any one wait at most."""
    total: float | None = None
    """Seconds that all attempts and waits take together at most; `None` for no limit but the deadline."""
    ambiguous: bool = False
    """Also after silence that followed a written request."""
    landed: bool = False
    """Also after a failure that landed."""


ONCE = RetryPolicy()


class RetryAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks for in place of its model's policy."""

    max_attempts: int = 0
    """0: as many as the model's policy says."""
    ambiguous: bool = False
    landed: bool = False


def retry_violations(ask: RetryAsk | None, policy: RetryPolicy, *, path: str) -> list[FieldViolation]:
    """Return what a call asks for beyond its model's policy; `path` is where it stands in the request."""
    if ask is None:
        return []
    found = []
    if ask.max_attempts < 0:
        found.append(FieldViolation(f"{path}.max_attempts", "must be 0 or more"))
    if ask.max_attempts > policy.max_attempts:
        fix = f"the model allows {policy.max_attempts} at most"
        found.append(FieldViolation(f"{path}.max_attempts", fix))
    for name in ("ambiguous", "landed"):
        if getattr(ask, name) and not getattr(policy, name):
            fix = f"the model does not allow it: its configuration says so with retry.{name}"
            found.append(FieldViolation(f"{path}.{name}", fix))
    return found


def policy_for(ask: RetryAsk | None, policy: RetryPolicy) -> RetryPolicy:
    """Return the policy of one call. What it asks for takes the place of the model's word, and never exceeds it."""
    if ask is None:
        return policy
    most = policy.max_attempts
    return msgspec.structs.replace(
        policy,
        max_attempts=min(ask.max_attempts, most) if ask.max_attempts > 0 else most,
        ambiguous=ask.ambiguous and policy.ambiguous,
        landed=ask.landed and policy.landed,
    )


def is_worth_another(failed: Failure, policy: RetryPolicy) -> bool:
    """Say whether an attempt that ended so may be followed by another one; see the table above."""
    if failed.cause not in _ENDED_OUTSIDE:
        return False
    if failed.kind in _LANDED:
        return policy.landed
    if failed.kind is Kind.UNAVAILABLE:
        return failed.retryable or policy.ambiguous
    return failed.kind in (Kind.RATE_LIMITED, Kind.UNREACHABLE) and failed.retryable


def spread(call_id: str, attempt: int) -> float:
    """Return a number from 0 to 1 that is the same for the same attempt of the same call, here and everywhere.

    Calls that failed together must not come back together; a keyed hash spreads them, and a test or a post-mortem can
    work out when each one came.
    """
    told = hashlib.blake2b(f"{call_id}/{attempt}".encode(), key=_JITTER_KEY, digest_size=8).digest()
    return int.from_bytes(told, "big") / 2**64
