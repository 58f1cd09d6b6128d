"""From what a call ended with to its outcome: priced, with its attempts and timings, whatever broke on the way."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.calls import MAX_REPORTED_ATTEMPTS, CallOutcome, Timings
from modelmeter_server.core.errors import OWN_FAULT, Failure, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.tally import ended_between
from modelmeter_server.telemetry.log import get_logger

from .bill import broken, lost

if TYPE_CHECKING:
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.requests import Sensitivity

    from .call import Call

_log = get_logger(__name__)


def outcome_of(call: Call, result: Answer | Failure) -> CallOutcome:
    """Return the outcome of a call that ended with this result, or that its caller leaves now."""
    attempts = call.provider.attempts
    return CallOutcome(
        call_id=call.call_id,
        model_asked=call.model_asked,
        result=result,
        model=call.model,
        attempts=attempts[-MAX_REPORTED_ATTEMPTS:],
        attempts_total=len(attempts),
        passed_over=call.passed_over,
        timings=_timings(call),
        labels=call.request.labels,
        sensitivity=_sensitivity(call),
    )


def heard(call: Call, outcome: CallOutcome) -> CallOutcome:
    """Return another call's outcome as this one's caller gets it: no less confidential than its own prompt."""
    known = [each for each in (outcome.sensitivity, _sensitivity(call)) if each is not None]
    return msgspec.structs.replace(outcome, sensitivity=max(known, default=None))


def is_finished(result: Answer | Failure) -> bool:
    """Say whether the provider ended its answer by itself."""
    return not isinstance(result, Failure) or result.cause is Cause.PROVIDER


def known_so_far(call: Call, cause: Cause, message: str) -> Answer | Failure:
    """Return what a caller hears who leaves a call that goes on: the bill by what its provider has told."""
    provider = call.source.provider
    if provider.so_far is not None:
        word = failure(Kind.UNREACHABLE, message, cause=cause)
        return ended_between(provider.so_far, word)
    return provider.judged(broken(provider.accumulator, cause, written=provider.is_written, message=message))


def broken_outcome(call: Call, error: BaseException) -> CallOutcome:
    """Return the outcome of a call that our own fault ended, or that of the loop that goes down with it."""
    cause = Cause.DRAIN if isinstance(error, asyncio.CancelledError) and is_cancelled() else Cause.BUG
    if cause is Cause.BUG:
        _log.error("call failed", call_id=call.call_id, model=call.model_asked, exc_info=error)
    return outcome_of(call, _verdict_on(call, cause))


def is_cancelled() -> bool:
    """Say whether the call's own task is cancelled, which only a loop that goes down does."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _verdict_on(call: Call, cause: Cause) -> Answer | Failure:
    message = OWN_FAULT if cause is Cause.BUG else "this server stopped while the call was under way"
    try:
        if call.provider.call is not None:
            call.provider.call.cut(cause, message)
        verdict = broken(call.provider.accumulator, cause, written=call.provider.is_written, message=message)
    except Exception:  # noqa: BLE001 - the second fault in one call; the ladder's last rung is left
        _log.exception("the state of a failed call cannot be read", call_id=call.call_id)
        verdict = lost(cause, written=call.provider.is_written, message=message)
    return call.provider.settle_for(verdict)


def _sensitivity(call: Call) -> Sensitivity | None:
    return None if call.model is None else call.model.answer_sensitivity(call.request.sensitivity)


def _timings(call: Call) -> Timings:
    moment = time.monotonic()
    left, written = call.provider.first_written_at, call.provider.written_at
    first = call.provider.first_output_at
    return Timings(
        queue=(left if left is not None else moment) - call.arrived,
        first_token=first - written if first is not None and written is not None else None,
        total=moment - call.arrived,
    )
