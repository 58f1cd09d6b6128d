"""The record of one call: its attempts, its timings and its outcome."""

from __future__ import annotations

import msgspec

from .answers import Answer
from .errors import Failure
from .models import ModelSpec
from .outcomes import Cause, Certainty, Kind, Stage
from .pricing import Cost
from .requests import Sensitivity
from .routing import PassedOver
from .usage import Usage

MAX_REPORTED_ATTEMPTS = 8
"""Attempts that travel with an outcome; the total is counted besides."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One provider request of a call. `kind` and `cause` are `None` when it answered."""

    number: int
    target: str
    """The provider instance that was asked."""
    stage: Stage
    certainty: Certainty
    elapsed: float
    """Seconds from the attempt's start to its end."""
    kind: Kind | None = None
    cause: Cause | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    """What it cost, where a price is known and usage was told."""
    wait: float = 0.0
    """Seconds between the end of the attempt before and its own start."""
    http_status: int | None = None
    provider_code: str | None = None
    provider_request_id: str | None = None


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a call went, in seconds."""

    queue: float = 0.0
    first_token: float | None = None
    """From the request leaving to the first output; `None` when none came."""
    total: float = 0.0


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended: an answer or a failure, and how it came about."""

    call_id: str
    model_asked: str
    result: Answer | Failure
    model: ModelSpec | None = None
    """`None` when the model was not found."""
    attempts: tuple[Attempt, ...] = ()
    """The last `MAX_REPORTED_ATTEMPTS` attempts."""
    attempts_total: int = 0
    passed_over: tuple[PassedOver, ...] = ()
    """The targets that it was not sent to although they came before the one that was asked."""
    timings: Timings = Timings()
    labels: dict[str, str] = {}
    sensitivity: Sensitivity | None = None
    """How confidential the answer is; `None` when that was not worked out or kept."""
    settled: bool = False
    """Whether the bill is durably booked."""
    replayed: bool = False
    """Whether it came from the journal or was shared with another caller; nothing was bought for this one."""
