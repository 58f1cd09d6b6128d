"""A failure and its bill as a `ModelError`, cut to a size. Pure.

Text is cut and attempts are dropped; figures never are. What must be joined to fit, such as hundreds of additional
usages that a hostile provider names, keeps its sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.counters import saturating_add
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.core.usage import AdditionalUsage, Usage

from .convert_standing import fill_standing
from .convert_usage import (
    COUNTERS,
    add_additional_usage,
    add_attempts,
    add_passed_over,
    fill_cost,
    fill_duration,
    fill_usage,
)
from .words import CAUSES, CERTAINTIES, DISPOSITIONS, KINDS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelmeter.v1 import error_pb2
    from modelmeter_server.core.calls import Attempt, CallOutcome
    from modelmeter_server.core.errors import Failure

INT32_MAX = 2**31 - 1

MAX_STANDINGS = 8
"""Ceilings without room that a refusal tells apart: a call's own, and those of tenant, run and model."""

OTHER = "other"
"""Name of what was joined because there was no room to tell it apart."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything but the figures may be told."""

    message: int
    """Bytes of the sentence for people."""
    text: int
    """Bytes of every other text."""
    attempts: int
    """Most attempts, the last ones."""
    bills: int
    """Most additional usages, and most hosted tools in each usage, that are told apart."""


def fill_error(message: error_pb2.ModelError, outcome: CallOutcome, failed: Failure, room: Room) -> None:
    """Write the failure, which is the outcome's result, within the room given."""
    message.kind = KINDS[failed.kind]
    message.cause = CAUSES[failed.cause]
    message.stage = STAGES[failed.stage]
    message.message = cut_utf8(failed.message, room.message)
    message.certainty = CERTAINTIES[failed.certainty]
    message.disposition = DISPOSITIONS[failed.disposition]
    message.retryable = failed.retryable
    message.may_have_generated = failed.may_have_generated
    if failed.retry_after is not None:
        fill_duration(message.retry_after, failed.retry_after)
    _fill_bill(message, failed, room)
    _fill_origin(message, failed, room)
    _fill_call(message, outcome, room)
    message.differing_field = cut_utf8(failed.differing_field, room.text)
    for standing in failed.standings[:MAX_STANDINGS]:
        fill_standing(message.standings.add(), standing, room.text)


def _fill_bill(message: error_pb2.ModelError, failed: Failure, room: Room) -> None:
    if failed.usage is not None:
        fill_usage(message.usage, _fitting_usage(failed.usage, room))
    add_additional_usage(message.additional_usage, _fitting_bills(failed.additional_usage, room))
    if failed.estimated_output_tokens is not None:
        message.estimated_output_tokens = failed.estimated_output_tokens
    if failed.cost is not None:
        fill_cost(message.cost, failed.cost)


def _fill_origin(message: error_pb2.ModelError, failed: Failure, room: Room) -> None:
    message.model_served = cut_utf8(failed.model_served or "", room.text)
    message.service_tier = cut_utf8(failed.service_tier or "", room.text)
    message.provider_code = cut_utf8(failed.provider_code or "", room.text)
    message.provider_request_id = cut_utf8(failed.provider_request_id or "", room.text)
    message.provider_response_id = cut_utf8(failed.provider_response_id or "", room.text)
    if failed.http_status is not None:
        message.http_status = failed.http_status


def _fill_call(message: error_pb2.ModelError, outcome: CallOutcome, room: Room) -> None:
    message.model_asked = cut_utf8(outcome.model_asked, room.text)
    message.call_id = outcome.call_id
    message.attempts_total = min(outcome.attempts_total, INT32_MAX)
    last = outcome.attempts[max(0, len(outcome.attempts) - room.attempts) :]
    add_attempts(message.attempts, (_fitting_attempt(attempt, room) for attempt in last))
    add_passed_over(
        message.passed_over,
        (
            msgspec.structs.replace(
                each, target=cut_utf8(each.target, room.text), detail=cut_utf8(each.detail, room.text)
            )
            for each in outcome.passed_over[: room.attempts]
        ),
    )
    if outcome.model is not None:
        message.target = cut_utf8(outcome.model.target_name, room.text)


def _fitting_attempt(attempt: Attempt, room: Room) -> Attempt:
    return msgspec.structs.replace(
        attempt,
        target=cut_utf8(attempt.target, room.text),
        usage=_fitting_usage(attempt.usage, room) if attempt.usage is not None else None,
        provider_code=cut_utf8(attempt.provider_code or "", room.text),
        provider_request_id=cut_utf8(attempt.provider_request_id or "", room.text),
    )


def _fitting_usage(usage: Usage, room: Room) -> Usage:
    """Tell hosted tools apart as far as there is room, the most used ones first; the sum stays."""
    tools = usage.hosted_tool_requests
    if not tools:
        return usage
    fitting: dict[str, int] = {}
    for rank, (tool, requests) in enumerate(sorted(tools.items(), key=lambda item: (-item[1], item[0]))):
        apart = rank < room.bills or len(tools) <= room.bills
        name = cut_utf8(tool, room.text) if apart else OTHER
        fitting[name] = saturating_add(fitting.get(name, 0), requests)
    return msgspec.structs.replace(usage, hosted_tool_requests=fitting)


def _fitting_bills(additional: tuple[AdditionalUsage, ...], room: Room) -> list[AdditionalUsage]:
    """Join bills of one kind and model, and whatever there is no room for; the sum stays."""
    joined: dict[tuple[str, str], Usage] = {}
    for extra in additional:
        key = cut_utf8(extra.kind, room.text), cut_utf8(extra.model or "", room.text)
        if key not in joined and len(joined) >= room.bills:
            key = (OTHER, "")
        joined[key] = _sum(joined[key], extra.usage) if key in joined else extra.usage
    return [
        AdditionalUsage(kind=kind, model=model or None, usage=_fitting_usage(usage, room))
        for (kind, model), usage in joined.items()
    ]


def _sum(one: Usage, other: Usage) -> Usage:
    """Add two usages; what neither tells stays untold."""
    counters = {name: _told_sum((getattr(one, name), getattr(other, name))) for name in COUNTERS}
    tools = dict(one.hosted_tool_requests)
    for tool, requests in other.hosted_tool_requests.items():
        tools[tool] = saturating_add(tools.get(tool, 0), requests)
    return Usage(**counters, hosted_tool_requests=tools)


def _told_sum(values: Iterable[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return saturating_add(*told) if told else None
