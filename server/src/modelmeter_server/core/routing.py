"""Where a call may be sent, when it may go elsewhere, and what its end says about the place. Pure.

The order of the targets is worked out anew for each call. Shares and stickiness are one and the same: rendezvous
hashing, by the call's id where every call counts for itself, by the affinity key where calls belong together. So a
target that is lost moves only the conversations that it had, and every server and every restart choose alike.
"""

from __future__ import annotations

import math
from enum import Enum, unique
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from .errors import Failure
from .models import Strategy
from .outcomes import Cause, Code, Disposition, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .models import RouteSpec, TargetSpec

MAX_REPORTED_PASSED_OVER = 8
"""Targets passed over that travel with an outcome."""

_RANGE = 1 << 52
"""With half a step added, what is below it stays a double between 0 and 1, both excluded."""

_NOT_THE_TARGETS = frozenset((Cause.CALLER, Cause.DEADLINE, Cause.DRAIN, Cause.LIMIT, Cause.BUG))
"""What ends a call and says nothing about whom it was sent to: the caller's own, and what is ours."""

_PERHAPS_THE_PROMPTS = frozenset((403, 409, 451))
"""Statuses that some providers answer with for what a prompt says, such as OpenRouter's 403 of its moderation: another
target may help, but one tenant's prompts must not take the target from all others."""


@unique
class PassReason(Enum):
    """Why a call was not sent to a target."""

    OPEN = "OPEN"
    """Its breaker is open: it has failed too often."""
    RESTING = "RESTING"
    """It has asked to be left alone for a while."""
    CANNOT = "CANNOT"
    """It cannot take the request."""
    CONTINUATION = "CONTINUATION"
    """It cannot read the continuation, which another provider instance issued."""
    FULL = "FULL"
    """Its provider instance has as many calls at once as it may have."""


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A target that a call was not sent to."""

    target: str
    reason: PassReason
    detail: str = ""
    """One clause for people: what the request asks that the target cannot do, or when it is asked again."""


@unique
class Verdict(Enum):
    """What the end of a call says about whom it was sent to."""

    GOOD = "GOOD"
    """It works."""
    BAD = "BAD"
    """It fails."""
    NEUTRAL = "NEUTRAL"
    """Nothing: the caller, this server or the request itself ended the call."""


# The order of the targets


def score(key: str, name: str, weight: int) -> float:
    """Return how much a key is drawn to a target; the highest wins, for each target by its share of the weights.

    Weighted rendezvous hashing (Schindelhauer and Schomaker 2005): `weight / -ln(u)` with `u` from a hash of both.
    """
    drawn = int.from_bytes(blake2b(b"\0".join((name.encode(), _bytes(key))), digest_size=8).digest()) >> 12
    return weight / -math.log((drawn + 0.5) / _RANGE)


def ranked(key: str, weights: Mapping[str, int]) -> list[str]:
    """Return the names in the order in which a key is drawn to them, the first choice first."""
    return sorted(weights, key=lambda name: (-score(key, name, weights[name]), name))


def preferred(route: RouteSpec, call_id: str, affinity: str, load: Callable[[str], int]) -> list[TargetSpec]:
    """Return all targets in the order in which a call would have them.

    `affinity` is empty for a call that belongs to no conversation. `load` tells the calls under way at a target.
    """
    if route.strategy is Strategy.ORDERED:
        return list(route.targets)
    by_name = {each.name: each for each in route.targets}
    weights = {name: each.weight for name, each in by_name.items()}
    names = ranked(affinity or call_id, weights)
    if route.strategy is Strategy.LEAST_LOADED and not affinity:
        # One call more decides, so that an idle target of weight 3 comes before one of weight 1. Stable: equals
        # stay in the order of their shares.
        names.sort(key=lambda name: (load(name) + 1) / weights[name])
    return [by_name[name] for name in names]


# What a failure means for the other targets, and for its own


def may_fall_back(failed: Failure, *, ambiguous: bool = False) -> bool:
    """Say whether a call that failed at one target may be sent to another one.

    Only where nothing can have been generated and another target can do what this one could not. Silence after a
    written request is no proof of that; `ambiguous` says that the deployment and the caller accept two bills.
    """
    if failed.disposition is not Disposition.DID_NOT_HAPPEN or failed.usage is not None:
        return False
    if failed.kind is Kind.OVERLOADED:
        return failed.cause is Cause.LIMIT  # no connection became free in our own pool
    if failed.cause in _NOT_THE_TARGETS:
        return False
    if failed.kind is Kind.UNAVAILABLE:
        return failed.retryable or ambiguous
    if failed.kind is Kind.REFUSED:
        return _is_about_the_target(failed)
    return failed.kind in (Kind.UNREACHABLE, Kind.RATE_LIMITED)


def _is_about_the_target(refused: Failure) -> bool:
    """Say whether a provider's refusal is about our key, our account or the model, and not about the request."""
    return refused.cause is Cause.PROVIDER and refused.code in (Code.FAILED_PRECONDITION, Code.NOT_FOUND)


def judged(result: object) -> Verdict:
    """Return what the end of a call says about its target; `result` is an answer or a failure.

    A named wait is no failure: whoever names one works, and is left alone until then (`rest_of`).
    """
    if not isinstance(result, Failure):
        return Verdict.GOOD
    if result.cause in _NOT_THE_TARGETS:
        return Verdict.NEUTRAL
    if result.kind is Kind.UNUSABLE:
        return Verdict.GOOD
    if result.kind is Kind.REFUSED:
        is_bad = _is_about_the_target(result) and result.http_status not in _PERHAPS_THE_PROMPTS
        return Verdict.BAD if is_bad else Verdict.NEUTRAL
    if result.kind is Kind.RATE_LIMITED:
        return Verdict.BAD if result.retry_after is None else Verdict.NEUTRAL
    if result.disposition is Disposition.LANDED and result.cause is Cause.TOTAL_TIMEOUT:
        return (
            Verdict.NEUTRAL
        )  # it generated all the time; the answer was too long for the deployment's timer
    return Verdict.BAD


def rest_of(result: object) -> float:
    """Return for how many seconds the target asked to be left alone; 0 for not at all."""
    if isinstance(result, Failure) and result.kind is Kind.RATE_LIMITED:
        return result.retry_after or 0.0
    return 0.0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
