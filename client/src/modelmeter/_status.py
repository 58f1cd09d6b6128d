"""From a failed RPC to one of our exceptions: the tolerant reader of status details.

Where the server told an outcome (a `ModelError` in the trailers, or in the last event of a stream), the
exception says what it says, whatever the gRPC code is; `_lost` has the other case. Malformed bytes never raise:
they count as not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from . import _wire
from ._error_table import ERROR_ROWS
from ._lost import CallRecord, error_without_outcome
from ._results import (
    additional_usage_from,
    attempts_from,
    cost_from,
    has_outcome,
    passed_over_from,
    standings_from,
    usage_from,
)
from .enums import Disposition, EffectOutcome, ErrorKind
from .errors import FieldViolation, ModelmeterError
from .v1 import error_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.any_pb2 import Any

DETAILS_KEY = "grpc-status-details-bin"
"""The trailer that holds a `google.rpc.Status`."""
FENCE_KEY = "modelmeter-call-id"
"""The initial metadata that the server sends the moment the provider's request is written."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_Detail = TypeVar("_Detail", bound=Message)

_BY_DISPOSITION = {
    Disposition.DID_NOT_HAPPEN: EffectOutcome.REJECTED,
    Disposition.LANDED: EffectOutcome.PERFORMED,
}


class _Failed(Protocol):
    """What every `grpc.RpcError` that leaves a call can be asked, sync and aio alike."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def error_from_rpc(error: grpc.RpcError, record: CallRecord) -> ModelmeterError:
    """Return the exception for a failed RPC. Raise it `from error`."""
    return _from_rpc(error, record, is_of_call=True)


def error_of_turn(error: grpc.RpcError, record: CallRecord) -> ModelmeterError:
    """Return the exception for a turn whose session's RPC failed: what the status says of others is no word of it."""
    return _from_rpc(error, record, is_of_call=False)


def _from_rpc(error: grpc.RpcError, record: CallRecord, *, is_of_call: bool) -> ModelmeterError:
    failed = cast(_Failed, error)
    raw_status = _raw_status(failed.trailing_metadata() or ())
    details = _details(raw_status)
    told = _detail(details, error_pb2.ModelError) or record.failed
    if told is not None and has_outcome(told) and (is_of_call or told.call_id == record.call_id):
        return _told(told, record, failed.code(), failed.details() or "", details, raw_status)
    if any(key == FENCE_KEY for key, _ in failed.initial_metadata() or ()):
        record.started = True
    return error_without_outcome(record, failed.code(), failed.details() or "", raw_status=raw_status)


def error_from_status(status: status_pb2.Status, record: CallRecord) -> ModelmeterError:
    """Return the exception for a turn whose status came as a message; its `failed` stands in the record."""
    details = list(status.details)
    told = record.failed or _detail(details, error_pb2.ModelError)
    if told is None or not has_outcome(told):
        return error_without_outcome(record, grpc.StatusCode.OK)
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return _told(told, record, code, status.message, details, status.SerializeToString())


def error_at_end(record: CallRecord) -> ModelmeterError:
    """Return the exception for a call that ended with OK and without an answer."""
    if record.failed is not None and has_outcome(record.failed):
        return _told(record.failed, record, grpc.StatusCode.OK)
    return error_without_outcome(record, grpc.StatusCode.OK)


def _raw_status(trailers: Iterable[tuple[str, str | bytes]]) -> bytes:
    return next((value for key, value in trailers if key == DETAILS_KEY and isinstance(value, bytes)), b"")


def _details(raw_status: bytes) -> list[Any]:
    try:
        return list(status_pb2.Status.FromString(raw_status).details)
    except DecodeError:
        return []


def _detail(details: Iterable[Any], wanted: type[_Detail]) -> _Detail | None:
    for packed in details:
        if packed.TypeName() == wanted.DESCRIPTOR.full_name:
            try:
                return wanted.FromString(packed.value)
            except DecodeError:
                return None
    return None


def _told(
    proto: error_pb2.ModelError,
    record: CallRecord,
    code: grpc.StatusCode,
    text: str = "",
    details: Iterable[Any] = (),
    raw_status: bytes = b"",
) -> ModelmeterError:
    kind = _wire.ERROR_KIND.member(proto.kind)
    error = ERROR_ROWS[kind].error if kind in ERROR_ROWS else ModelmeterError
    return error(
        proto.message or text or f"the call failed ({kind})",
        kind=kind,
        cause=_wire.CAUSE.member(proto.cause),
        stage=_wire.STAGE.member(proto.stage),
        code=code,
        model_asked=proto.model_asked or record.model,
        model_served=proto.model_served,
        service_tier=proto.service_tier,
        target=proto.target,
        usage=usage_from(proto.usage),
        additional_usage=additional_usage_from(proto.additional_usage),
        certainty=_wire.CERTAINTY.member(proto.certainty),
        estimated_output_tokens=(
            proto.estimated_output_tokens if proto.HasField("estimated_output_tokens") else None
        ),
        cost=cost_from(proto.cost) if proto.HasField("cost") else None,
        disposition=_wire.DISPOSITION.member(proto.disposition),
        effect_outcome=_effect_outcome(kind, proto),
        retryable=proto.retryable,
        may_have_generated=proto.may_have_generated,
        retry_after=_retry_after(proto, details),
        http_status=proto.http_status if proto.HasField("http_status") else None,
        provider_code=proto.provider_code,
        provider_request_id=proto.provider_request_id,
        provider_response_id=proto.provider_response_id,
        attempts=attempts_from(proto.attempts),
        attempts_total=proto.attempts_total,
        passed_over=passed_over_from(proto.passed_over),
        call_id=proto.call_id or record.call_id,
        violations=_violations(details),
        reason=_reason(details),
        standings=standings_from(proto.standings),
        differing_field=proto.differing_field,
        raw_status=raw_status,
        proto=proto,
    )


def _effect_outcome(kind: ErrorKind, proto: error_pb2.ModelError) -> EffectOutcome:
    if any(
        usage_from(usage).seen for usage in (proto.usage, *(each.usage for each in proto.additional_usage))
    ):
        return EffectOutcome.METERED
    row = ERROR_ROWS.get(kind)
    if row is not None and row.disposition is not Disposition.UNSPECIFIED:
        return row.effect_outcome
    disposition = _wire.DISPOSITION.member(proto.disposition)
    return _BY_DISPOSITION.get(disposition, EffectOutcome.INTERRUPTED)


def _retry_after(proto: error_pb2.ModelError, details: Iterable[Any]) -> float | None:
    if proto.HasField("retry_after"):
        return _wire.seconds(proto.retry_after)
    info = _detail(details, error_details_pb2.RetryInfo)
    return None if info is None or not info.HasField("retry_delay") else _wire.seconds(info.retry_delay)


def _reason(details: Iterable[Any]) -> str:
    info = _detail(details, error_details_pb2.ErrorInfo)
    return "" if info is None else info.reason


def _violations(details: Iterable[Any]) -> tuple[FieldViolation, ...]:
    found = _detail(details, error_details_pb2.BadRequest)
    return (
        tuple(FieldViolation(each.field, each.description) for each in found.field_violations)
        if found
        else ()
    )
