"""From messages of the ledger to the values that callers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from . import _wire, records
from ._results import (
    additional_usage_from,
    attempts_from,
    completion_from,
    cost_from,
    embeddings_from,
    standings_from,
    timings_from,
    usage_from,
)

if TYPE_CHECKING:
    from datetime import datetime

    from .v1 import ledger_service_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def call_from(proto: ledger_service_pb2.CallRecord) -> records.LedgerCall:
    """Return a call."""
    return records.LedgerCall(
        call_id=proto.call_id,
        generation=proto.generation,
        dispatch=proto.dispatch,
        state=_wire.CALL_STATE.member(proto.state),
        operation=_wire.OPERATION.member(proto.operation),
        run_id=proto.run_id,
        effect_key=proto.effect_key,
        model_asked=proto.model_asked,
        model_served=proto.model_served,
        target=proto.target,
        labels=dict(proto.labels),
        reserved_at=_time(proto, "reserve_time"),
        dispatched_at=_time(proto, "dispatch_time"),
        ended_at=_time(proto, "end_time"),
        expires_at=_time(proto, "expire_time"),
        kind=_wire.ERROR_KIND.member(proto.kind),
        cause=_wire.CAUSE.member(proto.cause),
        stage=_wire.STAGE.member(proto.stage),
        disposition=_wire.DISPOSITION.member(proto.disposition),
        code=_CODES.get(proto.code, grpc.StatusCode.UNKNOWN),
        message=proto.message,
        finish=_wire.FINISH.member(proto.finish),
        usage=usage_from(proto.usage),
        additional_usage=additional_usage_from(proto.additional_usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        estimated_output_tokens=_told(proto, "estimated_output_tokens"),
        cost=cost_from(proto.cost) if proto.HasField("cost") else None,
        booking=_booking(proto.booking),
        http_status=_told(proto, "http_status"),
        provider_code=proto.provider_code,
        provider_request_id=proto.provider_request_id,
        provider_response_id=proto.provider_response_id,
        attempts_total=proto.attempts_total,
        timings=timings_from(proto.timings),
        landing=_wire.LANDING.member(proto.landing),
        reconciled_by=_wire.RECONCILER.member(proto.reconciled_by),
        reconcile_reason=proto.reconcile_reason,
        content=_wire.CONTENT_STATE.member(proto.content),
        content_expires_at=_time(proto, "content_expire_time"),
        attempts=attempts_from(proto.attempts),
        completion=completion_from(proto.completion) if proto.HasField("completion") else None,
        embeddings=embeddings_from(proto.embeddings) if proto.HasField("embeddings") else None,
        partial_text=proto.partial_text,
        provider_body=proto.provider_body,
        proto=proto,
    )


def _booking(proto: ledger_service_pb2.Booking) -> records.Booking:
    return records.Booking(
        currency=proto.currency,
        settled=_amount(proto.settled),
        held=_amount(proto.held),
        unsettled=_amount(proto.unsettled),
        written_off=_amount(proto.written_off),
        possibly_billed=proto.possibly_billed,
    )


def _amount(proto: ledger_service_pb2.Amount) -> records.Amount:
    return records.Amount(proto.tokens, proto.nano_units)


def spend_from(proto: ledger_service_pb2.Spend) -> records.Spend:
    """Return a sum."""
    return records.Spend(
        value=proto.value,
        starts_at=_time(proto, "period_start"),
        currency=proto.currency,
        calls=proto.calls,
        possibly_billed_calls=proto.possibly_billed_calls,
        input_tokens=proto.input_tokens,
        output_tokens=proto.output_tokens,
        settled=_amount(proto.settled),
        held=_amount(proto.held),
        unsettled=_amount(proto.unsettled),
        written_off=_amount(proto.written_off),
    )


def ceiling_from(proto: ledger_service_pb2.Ceiling) -> records.Ceiling:
    """Return a ceiling."""
    return records.Ceiling(
        ceiling_id=proto.ceiling_id,
        subject=_subject(proto.subject),
        window=records.Window(
            _wire.WINDOW_KIND.member(proto.window.kind), proto.window.time_zone, proto.window.length.seconds
        ),
        tokens=_told(proto, "tokens"),
        nano_units=_told(proto, "nano_units"),
        currency=proto.currency,
        created_at=_time(proto, "create_time"),
        standings=standings_from(proto.standings),
        by_admin=proto.by_admin,
    )


def _subject(proto: ledger_service_pb2.Subject) -> records.Subject:
    return records.Subject(_wire.SCOPE.member(proto.scope), proto.name)


def halt_from(proto: ledger_service_pb2.Halt) -> records.Halt:
    """Return a halt."""
    return records.Halt(
        subject=_subject(proto.subject),
        mode=_wire.HALT_MODE.member(proto.mode),
        reason=proto.reason,
        created_at=_time(proto, "create_time"),
        by_admin=proto.by_admin,
    )


def _told(proto: Any, field: str) -> int | None:
    return getattr(proto, field) if proto.HasField(field) else None


def _time(proto: Any, field: str) -> datetime | None:
    return _wire.time(getattr(proto, field)) if proto.HasField(field) else None
