"""What happens to calls, as `events` of a client tells it. Immutable values; times are aware datetimes in UTC.

`proto` is the message as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .enums import EventSeverity
from .v1 import event_pb2, event_service_pb2


@dataclass(frozen=True)
class Event:
    """One fact. The vocabulary only grows: ignore kinds and facts that you do not know."""

    kind: str
    """What happened, such as `prompt.completed`."""
    version: int
    """Version of the vocabulary; additions do not raise it."""
    occurred_at: datetime
    tick: int
    """Counts the events of one server process from 1; sampling, filters and gaps leave numbers out."""
    severity: EventSeverity
    call_id: str = ""
    conversation_id: str = ""
    run_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    tenant: str = ""
    """Whose it is; empty from a server that is too old to say."""
    fact: Mapping[str, Any] = field(default_factory=dict)
    """What the kind tells: words as members of the client's enums, durations in seconds, usage and cost as values.

    What is absent is left out; empty for a kind that this client does not know.
    """
    proto: event_pb2.Event = field(default_factory=event_pb2.Event, repr=False, compare=False)


@dataclass(frozen=True)
class EventBatch:
    """Events that came together, in their order."""

    events: tuple[Event, ...]
    lost: int = 0
    """Events before these that this watcher did not see because it was slow."""
    process: str = ""
    """The server process whose events these are: where several serve, no other is watched."""


@dataclass(frozen=True)
class Distribution:
    """Times in microseconds; quantiles are nearest-rank: each is a time that was measured."""

    count: int = 0
    least: int = 0
    most: int = 0
    mean: int = 0
    p50: int = 0
    p90: int = 0
    p95: int = 0
    p99: int = 0


@dataclass(frozen=True)
class InsightsSpend:
    """What the calls under one name consumed, as far as it was told."""

    name: str
    """The model, conversation or run; empty for all together."""
    currency: str
    """ISO 4217 code; empty for calls without a price."""
    calls: int
    input_tokens: int
    output_tokens: int
    nano_units: int
    """Billionths of a unit of the currency."""
    at_least: int = 0
    """Those of them whose consumption was told, or has a price, in part: with one, the sums here are lower bounds."""
    untold: int = 0
    """Those of them that may have consumed something that nobody told: with one, the sums here are lower bounds.

    Such a call mostly has no price, and stands under its name without a currency.
    """


@dataclass(frozen=True)
class Insights:
    """What the latest calls of one server process looked like."""

    calls: int
    answered: int
    failed: int
    replayed: int
    untold: int
    """Calls that may have consumed something that nobody told."""
    at_least: int
    """Calls whose consumption was told, or has a price, in part: the sums that they are in are lower bounds."""
    latency: Distribution
    """Of answers, from arrival to the end."""
    first_token: Distribution
    """Of answers, from the request leaving to the first output."""
    errors: Mapping[str, int]
    """Calls by the kind of their failure."""
    total: tuple[InsightsSpend, ...]
    by_model: tuple[InsightsSpend, ...]
    by_conversation: tuple[InsightsSpend, ...]
    by_run: tuple[InsightsSpend, ...]
    since: datetime | None
    """When the oldest of these calls ended; `None` without calls."""
    most_calls: int
    """Calls that the process remembers, those of all tenants, models, conversations and runs together."""
    process: str
    """The server process that answered: where several serve, each remembers its own calls alone."""
    older_calls_evicted: bool = False
    """Whether calls of the window were evicted, because the process remembers no more than `most_calls`.

    Calls that were asked for may be missing; with a filter or a tenant, those that are gone may be others.
    """
    proto: event_service_pb2.Insights = field(
        default_factory=event_service_pb2.Insights, repr=False, compare=False
    )
