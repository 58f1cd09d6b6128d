"""What to say of a call whose outcome nobody told.

A deadline or cancel of this client's own runtime, a broken connection, a proxy, a server of another make,
trailers dropped on the way: the exception says what is known, which is mostly that the call may have been
billed. No figure is invented: the last usage that a stream had told is the only one there can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from .enums import Cause, Certainty, Disposition, EffectOutcome, ErrorKind, SessionEndReason, Stage
from .errors import (
    DrainingError,
    LostContactError,
    ModelmeterError,
    NotConnectedError,
    OverloadedError,
    RefusedError,
    UnreachableError,
)
from .events import UsageSnapshot
from .results import AdditionalUsage, Usage
from .v1 import error_pb2

# The C core has no code for "never connected", and its Python API no other trace of it. A server could answer
# with the same text only if it relays for another C core, and then it is as true.
_NEVER_CONNECTED = (
    "failed to connect to all addresses",
    # The same by `round_robin`; also where health checks say that no server is ready.
    "connections to all backends failing",
    "errors resolving ",
    "DNS resolution failed",
    "empty address list",
    # A target that is no address, such as an empty one; with code UNKNOWN.
    "Failed to create channel to ",
)
# The core of the client, or of the server that did not take it; no other code runs before a request is read. An
# answer that was too large for this client begins in another way.
_TOO_LARGE = ("CLIENT: Sent message larger than max", "SERVER: Received message larger than max")

# A server that has too many RPCs open to look at another one.
_TOO_MANY = "Concurrent RPC limit exceeded"

_CAUSES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Cause.DEADLINE,
    grpc.StatusCode.UNAVAILABLE: Cause.NETWORK,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Cause.LIMIT,
}
_REASONS = {
    grpc.StatusCode.OK: "the server ended the call without an outcome",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the deadline passed before an outcome was told",
    grpc.StatusCode.CANCELLED: "the call was cancelled before an outcome was told",
    grpc.StatusCode.UNIMPLEMENTED: "what listens there has no such method: an older server, its private listener, or "
    "none of modelmeter's",
    # Receivers drop trailers and messages above their limits, and then report this code of their own.
    grpc.StatusCode.RESOURCE_EXHAUSTED: "no outcome arrived, perhaps because it was too large on the way",
}
_CODES_NEVER_CONNECTED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN)
_MAY_HELP = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass
class CallRecord:
    """What this client knows of a call while it runs."""

    call_id: str = ""
    """Empty for an RPC that calls no model."""
    model: str = ""
    """The model as the caller asked for it."""
    started: bool = False
    """The server said that the provider's request was written."""
    generated: bool = False
    """Some of the answer arrived."""
    cancelled: bool = False
    """This client cancelled the call."""
    snapshot: UsageSnapshot | None = None
    """The last usage that a stream told."""
    failed: error_pb2.ModelError | None = None
    """The failure that a stream told in band."""


def error_without_outcome(
    record: CallRecord, code: grpc.StatusCode, detail: str = "", *, raw_status: bytes = b""
) -> ModelmeterError:
    """Return the exception for a call that ended with `code`; `detail` is the runtime's or a proxy's text."""
    reason = _REASONS.get(code, "lost contact before an outcome was told")
    reason = f"{reason} ({code.name}: {detail[:200]})" if detail else f"{reason} ({code.name})"
    if not (record.started or record.generated or record.snapshot):
        if code in _CODES_NEVER_CONNECTED and detail.startswith(_NEVER_CONNECTED):
            return _not_connected(record, code, detail)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and detail.startswith(_TOO_LARGE):
            return _too_large(record, code, detail, raw_status)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and detail.startswith(_TOO_MANY):
            return _too_many(record, code, raw_status)
        # A lookup calls no model, and neither does a server that has no such method.
        if not record.call_id or code is grpc.StatusCode.UNIMPLEMENTED:
            return _nothing_bought(record, code, reason, raw_status)
    return _perhaps_bought(record, code, reason, raw_status)


def error_of_unsent_turn(record: CallRecord, reason: SessionEndReason) -> ModelmeterError:
    """Return the exception for a turn that its session's server never took, because it had ended the session."""
    is_draining = reason is SessionEndReason.DRAIN
    why = "" if reason is SessionEndReason.UNSPECIFIED else f" ({reason})"
    return _never_sent(
        DrainingError if is_draining else UnreachableError,
        f"the session was over{why} before the turn was taken, and nothing was sent: open another one",
        record,
        grpc.StatusCode.UNAVAILABLE,
        kind=ErrorKind.DRAINING if is_draining else ErrorKind.UNREACHABLE,
        cause=Cause.DRAIN if is_draining else Cause.LIMIT,
        retryable=True,
    )


def _not_connected(record: CallRecord, code: grpc.StatusCode, detail: str) -> ModelmeterError:
    message = f"no connection to the server, nothing was sent: {detail[:300]}"
    return _never_sent(
        NotConnectedError, message, record, code, cause=Cause.NETWORK, retryable=code in _MAY_HELP
    )


def _too_large(record: CallRecord, code: grpc.StatusCode, detail: str, raw_status: bytes) -> ModelmeterError:
    message = (
        f"the request is larger than a server takes, so none read it ({detail[:200]}); nothing was bought"
    )
    return _never_sent(
        RefusedError, message, record, code, kind=ErrorKind.REFUSED, cause=Cause.LIMIT, raw_status=raw_status
    )


def _too_many(record: CallRecord, code: grpc.StatusCode, raw_status: bytes) -> ModelmeterError:
    return _never_sent(
        OverloadedError,
        "the server has too many RPCs open, so none read the request; nothing was bought",
        record,
        code,
        kind=ErrorKind.OVERLOADED,
        cause=Cause.LIMIT,
        retryable=True,
        raw_status=raw_status,
    )


def _never_sent(
    error: type[ModelmeterError],
    message: str,
    record: CallRecord,
    code: grpc.StatusCode,
    *,
    cause: Cause,
    kind: ErrorKind = ErrorKind.UNSPECIFIED,
    retryable: bool = False,
    raw_status: bytes = b"",
) -> ModelmeterError:
    """Return the exception for a call that no server has read."""
    return error(
        message,
        kind=kind,
        code=code,
        cause=cause,
        stage=Stage.NOT_WRITTEN,
        model_asked=record.model,
        certainty=Certainty.NONE,
        disposition=Disposition.DID_NOT_HAPPEN,
        effect_outcome=EffectOutcome.REJECTED,
        retryable=retryable,
        may_have_generated=False,
        call_id=record.call_id,
        raw_status=raw_status,
    )


def _nothing_bought(
    record: CallRecord, code: grpc.StatusCode, reason: str, raw_status: bytes
) -> LostContactError:
    return LostContactError(
        f"{reason}; nothing was bought",
        code=code,
        cause=Cause.CALLER if record.cancelled else _CAUSES.get(code, Cause.UNSPECIFIED),
        model_asked=record.model,
        certainty=Certainty.NONE,
        disposition=Disposition.DID_NOT_HAPPEN,
        effect_outcome=EffectOutcome.REJECTED,
        retryable=code in _MAY_HELP,
        may_have_generated=False,
        call_id=record.call_id,
        raw_status=raw_status,
    )


def _perhaps_bought(
    record: CallRecord, code: grpc.StatusCode, reason: str, raw_status: bytes
) -> LostContactError:
    usage, additional_usage, certainty = _last_told(record)
    generated = record.generated or usage.seen
    return LostContactError(
        f"{reason}; call {record.call_id} may have generated and been billed. A server with a ledger can tell",
        code=code,
        cause=Cause.CALLER if record.cancelled else _CAUSES.get(code, Cause.UNSPECIFIED),
        stage=_stage(record, generated=generated),
        model_asked=record.model,
        usage=usage,
        additional_usage=additional_usage,
        certainty=certainty,
        disposition=Disposition.LANDED if generated else Disposition.UNSPECIFIED,
        effect_outcome=_effect_outcome(usage, generated=generated),
        call_id=record.call_id,
        raw_status=raw_status,
    )


def _last_told(record: CallRecord) -> tuple[Usage, tuple[AdditionalUsage, ...], Certainty]:
    if record.snapshot is None or not record.snapshot.usage.told:
        return Usage(), (), Certainty.UNKNOWN
    return record.snapshot.usage, record.snapshot.additional_usage, record.snapshot.certainty


def _stage(record: CallRecord, *, generated: bool) -> Stage:
    if generated:
        return Stage.OUTPUT
    return Stage.WRITTEN if record.started else Stage.UNSPECIFIED


def _effect_outcome(usage: Usage, *, generated: bool) -> EffectOutcome:
    if usage.seen:
        return EffectOutcome.METERED
    return EffectOutcome.PERFORMED if generated else EffectOutcome.INTERRUPTED
