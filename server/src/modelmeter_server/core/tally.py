"""What several attempts of one call come to: one bill, and one verdict. Pure.

The bill is the sum. Its certainty is that of the least certain part: what was told in full and what nobody told make a
lower bound together. The verdict of a call that failed is its last attempt's, unless an earlier one weighs more: one
that landed outweighs one that may have, and that one outweighs all that cost nothing. So no failure hides a bill.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from .answers import Answer
from .counters import saturating_add
from .errors import Failure, with_cause
from .outcomes import Cause, Certainty, Disposition, Kind
from .pricing import Cost, CostSource
from .usage import Usage

_Result = TypeVar("_Result", bound=Answer | Failure)


def together(past: Failure, newest: Answer | Failure) -> Answer | Failure:
    """Return the outcome of a call of which `past` is what the attempts before the newest one came to."""
    if isinstance(newest, Answer):
        return _with_sum(newest, past, newest)
    verdict = newest if _weight(newest) >= _weight(past) else _outweighing(past, newest)
    if past.may_have_generated and not past.retryable:
        verdict = msgspec.structs.replace(verdict, retryable=False)
    verdict = _with_sum(verdict, past, newest)
    if verdict.usage is not None and verdict.kind is Kind.UNACCOUNTED:
        verdict = msgspec.structs.replace(verdict, kind=Kind.INTERRUPTED)
    return verdict


def ended_between(past: Failure, word: Failure) -> Failure:
    """Return the outcome of a call that was ended between two attempts; `word` is what ended it."""
    if word.kind is Kind.HALTED and not _weight(past):
        return word
    ended = with_cause(past, word.cause)
    retryable = past.retryable and word.cause is not Cause.CALLER and word.kind is not Kind.HALTED
    message = f"{past.message}; {word.message}"
    return msgspec.structs.replace(ended, message=message, retryable=retryable)


def _weight(failed: Failure) -> int:
    if failed.disposition is Disposition.LANDED:
        return 3
    if failed.usage is not None:
        return 2
    return 1 if failed.may_have_generated else 0


def _outweighing(past: Failure, newest: Failure) -> Failure:
    """Return the earlier verdict with what the last attempt adds to it."""
    message = f"{past.message}; the last attempt: {newest.kind.name}: {newest.message}"
    ended = with_cause(past, newest.cause) if newest.cause in (Cause.CALLER, Cause.DEADLINE) else past
    return msgspec.structs.replace(
        ended,
        message=message,
        retryable=past.retryable and newest.retryable,
        retry_after=newest.retry_after if past.retry_after is None else past.retry_after,
    )


def _with_sum(verdict: _Result, past: Failure, newest: Answer | Failure) -> _Result:
    usage = add_usage(past.usage, newest.usage)
    more: dict[str, object] = {}
    if isinstance(verdict, Failure):
        more["may_have_generated"] = past.may_have_generated or (
            isinstance(newest, Answer) or newest.may_have_generated
        )
    certainty = add_certainty(past.certainty, newest.certainty)
    if usage is None and certainty is Certainty.AT_LEAST:
        certainty = Certainty.UNKNOWN
    return msgspec.structs.replace(
        verdict,
        usage=usage,
        additional_usage=past.additional_usage + newest.additional_usage,
        certainty=certainty,
        cost=_add_cost(past, newest),
        estimated_output_tokens=add_counters(past.estimated_output_tokens, newest.estimated_output_tokens),
        **more,
    )


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return both together. A figure that one of them never told is what the other told."""
    if one is None or other is None:
        return other if one is None else one
    names = [name for name in Usage.__struct_fields__ if name != "hosted_tool_requests"]
    requests = dict(one.hosted_tool_requests)
    for tool, count in other.hosted_tool_requests.items():
        requests[tool] = saturating_add(requests.get(tool, 0), count)
    sums = {name: add_counters(getattr(one, name), getattr(other, name)) for name in names}
    return Usage(hosted_tool_requests=requests, **sums)


def add_certainty(one: Certainty, other: Certainty) -> Certainty:
    """Return how far the sum of two bills can be trusted."""
    if Certainty.NONE in (one, other):
        return other if one is Certainty.NONE else one
    return one if one is other else Certainty.AT_LEAST


def add_counters(one: int | None, other: int | None) -> int | None:
    """Return both together; one that was not told adds nothing."""
    if one is None or other is None:
        return other if one is None else one
    return saturating_add(one, other)


def _add_cost(past: Failure, newest: Answer | Failure) -> Cost | None:
    return add_costs(
        past.cost,
        newest.cost,
        is_whole=Certainty.NONE in (past.certainty, newest.certainty),
    )


def add_costs(one: Cost | None, other: Cost | None, *, is_whole: bool = False) -> Cost | None:
    """Return what both cost. There is one currency in a bill: where they differ, it is the last one's lower bound.

    One that is absent is unknown, unless `is_whole` says that it is known to be nothing.
    """
    if one is None or other is None:
        told = one or other
        if told is None or is_whole:
            return told
        return msgspec.structs.replace(told, certainty=Certainty.AT_LEAST)
    if one.currency != other.currency:
        return msgspec.structs.replace(other, certainty=Certainty.AT_LEAST)
    is_told = one.source is other.source is CostSource.PROVIDER
    return msgspec.structs.replace(
        other,
        nano_units=saturating_add(one.nano_units, other.nano_units),
        source=CostSource.PROVIDER if is_told else CostSource.PRICE_TABLE,
        certainty=add_certainty(one.certainty, other.certainty),
    )
