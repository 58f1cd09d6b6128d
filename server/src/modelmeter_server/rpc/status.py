"""A failed call as a gRPC status that reaches every receiver. Pure.

Receivers drop trailers above 8 KiB at random and then report RESOURCE_EXHAUSTED, so that the bill would be lost
(grpc/grpc#37852). The sizes here are of what travels: a percent-encoded message, base64 details.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import msgspec
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from modelmeter.v1 import error_pb2
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import TABLE, Failure, FieldViolation
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.text import cut_utf8

from .convert_error import MAX_STANDINGS, Room, fill_error
from .convert_usage import fill_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message

    from modelmeter_server.core.ceilings import Standing

DOMAIN: Final = "modelmeter"
"""`google.rpc.ErrorInfo.domain` of every error."""

MESSAGE_BYTES: Final = 512
"""UTF-8 bytes of the message; percent-encoding makes up to three of each."""

STATUS_BYTES: Final = 3 * 1024
"""Serialised bytes of `google.rpc.Status`; base64 makes four of three."""

DETAILS_KEY: Final = "grpc-status-details-bin"
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"

NEVER: Final = "-1"
"""Pushback that stops every retry policy of every gRPC client (gRFC A6)."""

DEFAULT_WAIT: Final = 1.0
"""Seconds that a shed caller waits if nobody named a time."""

_MOST_PUSHBACK: Final = 3600.0
_MODEL_BYTES: Final = 96
_FACT_BYTES: Final = 128
_MISTAKES_BYTES: Final = 1024  # kept for them where there are any; ordinarily they have far more
_MORE_BYTES: Final = 64  # for "123 more mistakes are not listed here"
_SHED: Final = (Kind.OVERLOADED, Kind.DRAINING)
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

# From the ordinary to the last resort; whatever is told at all is told with its figures.
_ROOMS: Final = (
    Room(message=512, text=256, attempts=8, bills=16),
    Room(message=384, text=96, attempts=8, bills=8),
    Room(message=256, text=64, attempts=4, bills=4),
    Room(message=160, text=48, attempts=2, bills=3),
    Room(message=96, text=32, attempts=1, bills=2),
    Room(message=64, text=24, attempts=0, bills=1),
)


class Trailer(msgspec.Struct, frozen=True):
    """What `context.abort` takes."""

    code: grpc.StatusCode
    message: str
    metadata: tuple[tuple[str, str | bytes], ...]


def trailer(outcome: CallOutcome, failed: Failure) -> Trailer:
    """Return the status of a failed call; `failed` is the outcome's result."""
    status = status_of(outcome, failed)
    message = status.message
    metadata: list[tuple[str, str | bytes]] = [(DETAILS_KEY, status.SerializeToString())]
    pushback = _pushback(failed)
    if pushback is not None:
        metadata.append((PUSHBACK_KEY, pushback))
    return Trailer(_CODES[int(failed.code)], message, tuple(metadata))


def status_of(outcome: CallOutcome, failed: Failure) -> Status:
    """Return the status of a failed call with its details, small enough for a trailer."""
    status = Status(code=int(failed.code), message=sentence(outcome.model_asked, failed))
    _fill_details(status, outcome, failed)
    return status


def lookup_trailer(failed: Failure) -> Trailer:
    """Return the status of a failed RPC that calls no model: its message tells no bill."""
    message = cut_utf8(failed.message, MESSAGE_BYTES)
    status = Status(code=int(failed.code), message=message)
    _fill_details(status, CallOutcome(call_id="", model_asked="", result=failed), failed)
    return Trailer(_CODES[int(failed.code)], message, ((DETAILS_KEY, status.SerializeToString()),))


def fill_in_band(message: error_pb2.ModelError, outcome: CallOutcome, failed: Failure) -> None:
    """Write the failure into the last event of a stream, where there is always room."""
    fill_error(message, outcome, failed, _ROOMS[0])


# The sentence


def sentence(model: str, failed: Failure) -> str:
    """Return one sentence of at most 512 bytes that ends with model, tokens and certainty, whatever else is cut."""
    bill = f" (model {cut_utf8(model, _MODEL_BYTES) or '-'}: {_tokens(failed)}, {failed.certainty.name})"
    return cut_utf8(failed.message, MESSAGE_BYTES - len(bill.encode())) + bill


def _tokens(failed: Failure) -> str:
    if failed.usage is not None:
        counts = (failed.usage.input_tokens, failed.usage.output_tokens)
        told = ["?" if count is None else str(count) for count in counts]
        return f"{told[0]} input + {told[1]} output tokens"
    if failed.certainty is Certainty.NONE:
        return "no tokens"
    if failed.estimated_output_tokens is not None:
        return f"tokens unknown, about {failed.estimated_output_tokens} arrived"
    return "tokens unknown"


# The details


def _fill_details(status: Status, outcome: CallOutcome, failed: Failure) -> None:
    limit = STATUS_BYTES - (_MISTAKES_BYTES if failed.violations else 0)
    for room in _ROOMS:
        del status.details[:]
        _add(status, _error_info(outcome, failed, min(room.text, _FACT_BYTES)))
        _add(status, _model_error(outcome, failed, room))
        for detail in _standard_details(failed, room.text):
            _add(status, detail)
        if status.ByteSize() <= limit:
            break
    if failed.violations:
        _add_violations(status, failed.violations)


def _add(status: Status, detail: Message) -> None:
    status.details.add().Pack(detail)


def _model_error(outcome: CallOutcome, failed: Failure, room: Room) -> error_pb2.ModelError:
    message = error_pb2.ModelError()
    fill_error(message, outcome, failed, room)
    return message


def _error_info(outcome: CallOutcome, failed: Failure, limit: int) -> error_details_pb2.ErrorInfo:
    facts = {
        name: cut_utf8(str(value), limit) for name, value in _facts(outcome, failed) if value is not None
    }
    return error_details_pb2.ErrorInfo(
        reason=failed.reason or failed.kind.name, domain=DOMAIN, metadata=facts
    )


def _facts(outcome: CallOutcome, failed: Failure) -> Iterable[tuple[str, object]]:
    """Yield what the message says with figures and names, so that nobody has to parse it (AIP-193)."""
    usage = failed.usage
    yield "call_id", outcome.call_id
    yield "model", outcome.model_asked or None
    yield "certainty", failed.certainty.name
    yield "input_tokens", usage.input_tokens if usage is not None else None
    yield "output_tokens", usage.output_tokens if usage is not None else None
    yield "estimated_output_tokens", failed.estimated_output_tokens
    yield "cause", failed.cause.name
    yield "http_status", failed.http_status
    yield "provider_code", failed.provider_code


def _standard_details(failed: Failure, limit: int) -> Iterable[Message]:
    wait = _wait(failed)
    if wait is not None:
        retry = error_details_pb2.RetryInfo()
        fill_duration(retry.retry_delay, wait)
        yield retry
    if failed.kind is Kind.CEILING:
        yield _quota_failure(failed, limit)
    elif failed.quotas:
        quota = error_details_pb2.QuotaFailure()
        for each in failed.quotas:
            quota.violations.add(
                subject=cut_utf8(each.subject, limit), description=cut_utf8(each.description, limit)
            )
        yield quota
    elif failed.resource is not None:
        name = cut_utf8(failed.resource, limit)
        yield error_details_pb2.ResourceInfo(resource_type=failed.resource_type, resource_name=name)


def _quota_failure(failed: Failure, limit: int) -> error_details_pb2.QuotaFailure:
    quota = error_details_pb2.QuotaFailure()
    for standing in failed.standings[:MAX_STANDINGS]:
        subject = f"{standing.subject.scope}:{standing.subject.name}".rstrip(":")
        quota.violations.add(
            subject=cut_utf8(subject, limit), description=cut_utf8(_account(standing), limit)
        )
    if not failed.standings:
        subject = cut_utf8(failed.resource or "", limit)
        quota.violations.add(subject=subject, description=cut_utf8(failed.message, limit))
    return quota


def _account(standing: Standing) -> str:
    unit = f"nano {standing.currency}" if standing.currency else "tokens"
    return (
        f"{standing.allowed} {unit} allowed: {standing.settled} settled, {standing.held} held, "
        f"{standing.unsettled} unsettled, {standing.asked} asked"
    )


def _add_violations(status: Status, violations: Sequence[FieldViolation]) -> None:
    """Tell as many mistakes as there is room for, in order, and how many there are more."""
    bad = error_details_pb2.BadRequest()
    detail = status.details.add()
    # Bytes of the wrapping: the Any with its type name, and lengths that grow as it fills.
    left = STATUS_BYTES - status.ByteSize() - len(bad.DESCRIPTOR.full_name) - 40
    for index, violation in enumerate(violations):
        entry = _violation(violation)
        size = entry.ByteSize() + 4
        rest = len(violations) - index
        if size > left - (_MORE_BYTES if rest > 1 else 0):
            more = "1 more mistake is" if rest == 1 else f"{rest} more mistakes are"
            bad.field_violations.add(field="", description=f"{more} not listed here")
            break
        bad.field_violations.append(entry)
        left -= size
    detail.Pack(bad)


def _violation(violation: FieldViolation) -> error_details_pb2.BadRequest.FieldViolation:
    field, description = (
        cut_utf8(violation.field, _FACT_BYTES),
        cut_utf8(violation.description, 2 * _FACT_BYTES),
    )
    return error_details_pb2.BadRequest.FieldViolation(field=field, description=description)


# Waits


def _wait(failed: Failure) -> float | None:
    """Return the seconds that RetryInfo names. A shed caller is always told one."""
    if failed.retry_after is not None:
        return failed.retry_after
    return DEFAULT_WAIT if failed.kind in _SHED else None


def _pushback(failed: Failure) -> str | None:
    """Return `grpc-retry-pushback-ms`, which stands only where nothing was dispatched."""
    if failed.stage is not Stage.NOT_WRITTEN or failed.cause in (Cause.DEADLINE, Cause.CALLER):
        return None
    if TABLE[failed.kind].pushback:
        return NEVER
    if failed.kind in _SHED:
        return str(int(min(_wait(failed) or 0, _MOST_PUSHBACK) * 1000))
    return None
