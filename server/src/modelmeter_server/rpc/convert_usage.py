"""Usage, cost, attempts and times as protos. Pure; fills messages in place, so that nothing is copied."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.routing import MAX_REPORTED_PASSED_OVER
from modelmeter_server.core.text import well_formed

from .words import CAUSES, CERTAINTIES, COST_SOURCES, KINDS, PASS_REASONS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from modelmeter.v1 import error_pb2, usage_pb2
    from modelmeter_server.core.calls import Attempt
    from modelmeter_server.core.pricing import Cost
    from modelmeter_server.core.routing import PassedOver
    from modelmeter_server.core.usage import AdditionalUsage, Usage

MAX_SECONDS = 315_576_000_000
"""What google.protobuf.Duration can hold: ten thousand years. Providers name stranger delays."""

COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_read_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "input_image_tokens",
    "output_image_tokens",
    "tool_prompt_tokens",
)
"""The counters of `Usage`, which have one name in both worlds."""


def fill_usage(message: usage_pb2.Usage, usage: Usage) -> None:
    """Write the counters that were told."""
    message.SetInParent()
    for name in COUNTERS:
        value = getattr(usage, name)
        if value is not None:
            setattr(message, name, value)
    for tool, requests in usage.hosted_tool_requests.items():
        message.hosted_tool_requests[well_formed(tool)] = requests


def add_additional_usage(
    messages: RepeatedCompositeFieldContainer[usage_pb2.AdditionalUsage],
    additional: Iterable[AdditionalUsage],
) -> None:
    """Append what was billed beside the usage."""
    for extra in additional:
        message = messages.add(kind=well_formed(extra.kind), model=well_formed(extra.model or ""))
        fill_usage(message.usage, extra.usage)


def fill_cost(message: usage_pb2.Cost, cost: Cost) -> None:
    """Write a cost; what is above int64 saturates."""
    message.nano_units = min(cost.nano_units, INT64_MAX)
    message.currency = well_formed(cost.currency)
    message.source = COST_SOURCES[cost.source]
    message.certainty = CERTAINTIES[cost.certainty]
    message.minor_units = min(cost.minor_units, INT64_MAX)


def add_attempts(
    messages: RepeatedCompositeFieldContainer[error_pb2.Attempt], attempts: Iterable[Attempt]
) -> None:
    """Append provider requests."""
    for attempt in attempts:
        message = messages.add(
            number=attempt.number,
            target=well_formed(attempt.target),
            kind=KINDS[attempt.kind] if attempt.kind is not None else None,
            cause=CAUSES[attempt.cause] if attempt.cause is not None else None,
            stage=STAGES[attempt.stage],
            certainty=CERTAINTIES[attempt.certainty],
            http_status=attempt.http_status,
            provider_code=well_formed(attempt.provider_code or ""),
            provider_request_id=well_formed(attempt.provider_request_id or ""),
        )
        fill_duration(message.elapsed, attempt.elapsed)
        if attempt.wait:
            fill_duration(message.wait, attempt.wait)
        if attempt.cost is not None:
            fill_cost(message.cost, attempt.cost)
        if attempt.usage is not None:
            fill_usage(message.usage, attempt.usage)


def add_passed_over(
    messages: RepeatedCompositeFieldContainer[error_pb2.PassedOver], targets: Iterable[PassedOver]
) -> None:
    """Append targets that a call was not sent to."""
    for each in islice(targets, MAX_REPORTED_PASSED_OVER):
        messages.add(
            target=well_formed(each.target),
            reason=PASS_REASONS[each.reason],
            detail=well_formed(each.detail),
        )


def fill_duration(message: Duration, seconds: float) -> None:
    """Write a time from 0 to `MAX_SECONDS`; what lies outside is cut to that, and NaN to 0."""
    bounded = 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), MAX_SECONDS)
    whole = int(bounded)
    carry, nanos = divmod(round((bounded - whole) * 1e9), 1_000_000_000)
    message.seconds = whole + carry
    message.nanos = nanos
    message.SetInParent()
