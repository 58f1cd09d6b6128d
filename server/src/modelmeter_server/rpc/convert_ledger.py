"""Calls and sums of the ledger as protos. Pure; every text passes `well_formed`, as in `convert_answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.answers import Finish
from modelmeter_server.core.calls import Attempt
from modelmeter_server.core.journal import CallState, Operation
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind, Stage
from modelmeter_server.core.settlement import told_cost
from modelmeter_server.core.text import well_formed
from modelmeter_server.core.usage import AdditionalUsage, Usage

from .convert_standing import bounded, fill_time
from .convert_usage import add_additional_usage, add_attempts, fill_cost, fill_duration, fill_usage
from .ledger_words import CALL_STATES, CONTENT_STATES, LANDINGS, OPERATIONS, RECONCILERS
from .words import CAUSES, CERTAINTIES, DISPOSITIONS, FINISHES, KINDS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelmeter.v1 import ledger_service_pb2
    from modelmeter_server.ledger.questions import SpendSum
    from modelmeter_server.ledger.rows import AttemptRow, Booking, CallRow, Figures

_usage = msgspec.json.Decoder(Usage).decode
_additional = msgspec.json.Decoder(tuple[AdditionalUsage, ...]).decode

_TIMES = (
    ("reserve_time", "reserved_at"),
    ("dispatch_time", "dispatched_at"),
    ("end_time", "ended_at"),
    ("expire_time", "expires_at"),
    ("content_expire_time", "content_expires_at"),
)
_AMOUNTS = ("settled", "held", "unsettled", "written_off")


def fill_call(message: ledger_service_pb2.CallRecord, row: CallRow) -> None:
    """Write what the view BASIC tells of a call."""
    _fill_names(message, row)
    _fill_verdict(message, row)
    _fill_figures(message, row.told)
    _fill_booking(message.booking, row.booking, row.hold.currency or row.told.currency)
    for field, column in _TIMES:
        if (at := getattr(row, column)) is not None:
            fill_time(getattr(message, field), at)


def _fill_names(message: ledger_service_pb2.CallRecord, row: CallRow) -> None:
    message.call_id = row.call_id
    message.generation = row.generation
    message.dispatch = row.dispatch
    message.state = CALL_STATES[CallState(row.state)]
    message.operation = OPERATIONS[Operation(row.operation)]
    message.run_id = well_formed(row.run_id)
    message.effect_key = well_formed(row.effect_key)
    message.model_asked = well_formed(row.model)
    message.model_served = well_formed(row.model_served)
    message.target = well_formed(row.target)
    for key, value in row.labels.items():
        message.labels[well_formed(key)] = well_formed(value)
    message.reconcile_reason = well_formed(row.reconcile_reason)
    if row.landing:
        message.landing = LANDINGS[row.landing]
    if row.reconciled_by:
        message.reconciled_by = RECONCILERS[row.reconciled_by]
    if row.content_gone or row.content_expires_at is not None:
        message.content = CONTENT_STATES[row.content_gone]


def _fill_verdict(message: ledger_service_pb2.CallRecord, row: CallRow) -> None:
    if row.kind:
        message.kind = KINDS[Kind(row.kind)]
    if row.cause:
        message.cause = CAUSES[Cause(row.cause)]
    if row.stage:
        message.stage = STAGES[Stage[row.stage]]
    if row.disposition:
        message.disposition = DISPOSITIONS[Disposition(row.disposition)]
    if row.finish:
        message.finish = FINISHES[Finish(row.finish)]
    message.code = row.code
    message.message = well_formed(row.message)
    if row.http_status is not None:
        message.http_status = row.http_status
    message.provider_code = well_formed(row.provider_code)
    message.provider_request_id = well_formed(row.provider_request_id)
    message.provider_response_id = well_formed(row.provider_response_id)
    message.attempts_total = min(row.attempts_total, 2**31 - 1)
    fill_duration(message.timings.queue, row.queue_seconds)
    fill_duration(message.timings.total, row.total_seconds)
    if row.first_token_seconds is not None:
        fill_duration(message.timings.first_token, row.first_token_seconds)


def _fill_figures(message: ledger_service_pb2.CallRecord, figures: Figures) -> None:
    message.certainty = CERTAINTIES[Certainty(figures.certainty)]
    if figures.usage_json:
        fill_usage(message.usage, _usage(figures.usage_json))
    if figures.additional_json:
        add_additional_usage(message.additional_usage, _additional(figures.additional_json))
    if figures.estimated_output_tokens is not None:
        message.estimated_output_tokens = figures.estimated_output_tokens
    cost = told_cost(figures)
    if cost is not None:
        fill_cost(message.cost, cost)


def _fill_booking(message: ledger_service_pb2.Booking, booking: Booking, currency: str) -> None:
    message.currency = currency
    message.possibly_billed = bool(booking.possibly_billed)
    _fill_amounts(message, booking)


def _fill_amounts(message: Any, columns: Booking | SpendSum) -> None:
    for name in _AMOUNTS:
        amount = getattr(message, name)
        amount.tokens = bounded(getattr(columns, f"{name}_tokens"))
        amount.nano_units = bounded(getattr(columns, f"{name}_nanos"))
        amount.SetInParent()


def add_attempt_rows(message: ledger_service_pb2.CallRecord, rows: Iterable[AttemptRow]) -> None:
    """Append the provider requests of a call; the time of one that never ended is left out."""
    for row in rows:
        add_attempts(message.attempts, (attempt_of(row),))
        if row.elapsed is None:
            message.attempts[-1].ClearField("elapsed")


def attempt_of(row: AttemptRow) -> Attempt:
    """Return a provider request in the core's terms."""
    return Attempt(
        number=row.number,
        target=row.target,
        stage=Stage[row.stage] if row.stage else Stage.NOT_WRITTEN,
        certainty=Certainty(row.figures.certainty),
        elapsed=row.elapsed or 0.0,
        kind=Kind(row.kind) if row.kind else None,
        cause=Cause(row.cause) if row.cause else None,
        usage=_usage(row.figures.usage_json) if row.figures.usage_json else None,
        cost=told_cost(row.figures),
        wait=row.wait,
        http_status=row.http_status,
        provider_code=row.provider_code or None,
        provider_request_id=row.provider_request_id or None,
    )


def fill_spend(message: ledger_service_pb2.Spend, found: SpendSum, *, is_cut: bool) -> None:
    """Write a sum; `is_cut` says whether it is of a period."""
    message.value = well_formed(found.value)
    message.currency = found.currency
    message.calls = bounded(found.calls)
    message.possibly_billed_calls = bounded(found.possibly_billed_calls)
    message.input_tokens = bounded(found.input_tokens)
    message.output_tokens = bounded(found.output_tokens)
    _fill_amounts(message, found)
    if is_cut:
        fill_time(message.period_start, found.starts_at)
