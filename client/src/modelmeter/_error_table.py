"""Generated from the server's table of errors by tools/generate_error_table.py (`make proto`)."""

from __future__ import annotations

from typing import NamedTuple

import grpc

from . import errors
from .enums import Certainty, Disposition, EffectOutcome, ErrorKind


class ErrorRow(NamedTuple):
    """Everything that follows from a kind, unless the server says otherwise of a single call."""

    error: type[errors.ModelmeterError]
    """The exception that the client raises."""
    code: grpc.StatusCode
    """The gRPC code, unless the cause is the deadline or the caller; of a refusal, one of several."""
    disposition: Disposition
    """Whether it happened; UNSPECIFIED when the single call decides."""
    certainties: tuple[Certainty, ...]
    """The certainties that the kind may carry."""
    retryable: bool
    """Whether repeating can help and cannot buy the answer twice."""
    effect_outcome: EffectOutcome
    """What an effect runtime books when no spend was told."""


ERROR_ROWS: dict[ErrorKind, ErrorRow] = {
    ErrorKind.UNREACHABLE: ErrorRow(
        error=errors.UnreachableError,
        code=grpc.StatusCode.UNAVAILABLE,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.REFUSED: ErrorRow(
        error=errors.RefusedError,
        code=grpc.StatusCode.INVALID_ARGUMENT,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE, Certainty.EXACT, Certainty.AT_LEAST),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.RATE_LIMITED: ErrorRow(
        error=errors.RateLimitedError,
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.UNAVAILABLE: ErrorRow(
        error=errors.UnavailableError,
        code=grpc.StatusCode.UNAVAILABLE,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.UNKNOWN, Certainty.NONE),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.INTERRUPTED: ErrorRow(
        error=errors.CallInterruptedError,
        code=grpc.StatusCode.ABORTED,
        disposition=Disposition.LANDED,
        certainties=(Certainty.AT_LEAST, Certainty.EXACT),
        retryable=False,
        effect_outcome=EffectOutcome.INTERRUPTED,
    ),
    ErrorKind.UNACCOUNTED: ErrorRow(
        error=errors.UnaccountedError,
        code=grpc.StatusCode.ABORTED,
        disposition=Disposition.LANDED,
        certainties=(Certainty.UNKNOWN,),
        retryable=False,
        effect_outcome=EffectOutcome.PERFORMED,
    ),
    ErrorKind.UNUSABLE: ErrorRow(
        error=errors.UnusableError,
        code=grpc.StatusCode.ABORTED,
        disposition=Disposition.LANDED,
        certainties=(Certainty.EXACT, Certainty.AT_LEAST, Certainty.UNKNOWN),
        retryable=False,
        effect_outcome=EffectOutcome.PERFORMED,
    ),
    ErrorKind.CEILING: ErrorRow(
        error=errors.CeilingError,
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.OVERLOADED: ErrorRow(
        error=errors.OverloadedError,
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.DRAINING: ErrorRow(
        error=errors.DrainingError,
        code=grpc.StatusCode.UNAVAILABLE,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.LEDGER_DOWN: ErrorRow(
        error=errors.LedgerDownError,
        code=grpc.StatusCode.UNAVAILABLE,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=True,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.HALTED: ErrorRow(
        error=errors.HaltedError,
        code=grpc.StatusCode.FAILED_PRECONDITION,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.DIVERGED: ErrorRow(
        error=errors.DivergedError,
        code=grpc.StatusCode.FAILED_PRECONDITION,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.OUTCOME_GONE: ErrorRow(
        error=errors.OutcomeGoneError,
        code=grpc.StatusCode.FAILED_PRECONDITION,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.REPLAY_MISS: ErrorRow(
        error=errors.ReplayMissError,
        code=grpc.StatusCode.NOT_FOUND,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.CALL_ID_CONFLICT: ErrorRow(
        error=errors.CallIdConflictError,
        code=grpc.StatusCode.ALREADY_EXISTS,
        disposition=Disposition.DID_NOT_HAPPEN,
        certainties=(Certainty.NONE,),
        retryable=False,
        effect_outcome=EffectOutcome.REJECTED,
    ),
    ErrorKind.BUG: ErrorRow(
        error=errors.BugError,
        code=grpc.StatusCode.INTERNAL,
        disposition=Disposition.UNSPECIFIED,
        certainties=(Certainty.UNKNOWN, Certainty.NONE, Certainty.AT_LEAST, Certainty.EXACT),
        retryable=False,
        effect_outcome=EffectOutcome.INTERRUPTED,
    ),
}
