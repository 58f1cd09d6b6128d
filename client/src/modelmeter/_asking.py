"""What the ledger knows of a call whose outcome nobody told: when to ask, and what its record means.

The trailers of a failed call can be dropped on the way, a connection breaks, a deadline passes: the ledger has the
outcome all the same, because it is booked before it is sent.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc

from ._error_table import ERROR_ROWS
from .enums import Cause, Disposition, EffectOutcome
from .errors import LostContactError, ModelmeterError

if TYPE_CHECKING:
    from .records import LedgerCall

ASK_SECONDS = 2.0
"""How long a client waits for the ledger's word once contact to a call is lost."""

_CODES = (
    grpc.StatusCode.OK,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)


def is_worth_asking(error: ModelmeterError) -> bool:
    """Say whether the ledger may know more: contact was lost, and not because this client cancelled."""
    return (
        isinstance(error, LostContactError)
        and bool(error.call_id)
        and error.cause is not Cause.CALLER
        and error.code in _CODES
    )


def verdict(lost: ModelmeterError, call: LedgerCall) -> ModelmeterError:
    """Return what to raise, now that the ledger has spoken of a call that did not answer.

    A call that still runs stays lost; the record stands beside it.
    """
    if call.state.is_open or call.answered:
        return _with_record(lost, call)
    row = ERROR_ROWS.get(call.kind)
    error = ModelmeterError if row is None else row.error
    return error(
        call.message or lost.message,
        kind=call.kind,
        cause=call.cause,
        stage=call.stage,
        code=lost.code,
        model_asked=call.model_asked,
        model_served=call.model_served,
        target=call.target,
        usage=call.usage,
        additional_usage=call.additional_usage,
        certainty=call.certainty,
        estimated_output_tokens=call.estimated_output_tokens,
        cost=call.cost,
        disposition=call.disposition,
        effect_outcome=_effect_outcome(call),
        retryable=False,
        may_have_generated=call.disposition is not Disposition.DID_NOT_HAPPEN,
        http_status=call.http_status,
        provider_code=call.provider_code,
        provider_request_id=call.provider_request_id,
        provider_response_id=call.provider_response_id,
        attempts=call.attempts[-8:],
        attempts_total=call.attempts_total,
        call_id=call.call_id,
        recorded=call,
        raw_status=lost.raw_status,
    )


def _with_record(lost: ModelmeterError, call: LedgerCall) -> ModelmeterError:
    # What had arrived on the stream may be newer than the last checkpoint.
    if not lost.usage.told:
        lost = dataclasses.replace(
            lost, usage=call.usage, additional_usage=call.additional_usage, certainty=call.certainty
        )
    lost.recorded = call
    return lost


def _effect_outcome(call: LedgerCall) -> EffectOutcome:
    if call.usage.seen or any(each.usage.seen for each in call.additional_usage):
        return EffectOutcome.METERED
    row = ERROR_ROWS.get(call.kind)
    if row is not None and row.disposition is call.disposition:
        return row.effect_outcome
    return EffectOutcome.INTERRUPTED
