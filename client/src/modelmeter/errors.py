"""How calls fail. Every exception carries the bill, and whether the provider generated.

    ModelmeterError
    ├── it did not happen
    │   ├── UnreachableError       the provider cannot have had the whole request
    │   ├── RefusedError           judged wrong before generating, by the provider or the server
    │   ├── RateLimitedError       throttled before generating
    │   ├── UnavailableError       the provider was reached; no evidence that it generated
    │   ├── CeilingError           a ceiling has no room
    │   ├── OverloadedError        the server has no room
    │   ├── DrainingError          the server is shutting down
    │   ├── LedgerDownError        the server cannot write its ledger, so it sent nothing
    │   ├── HaltedError            an operator stopped the tenant, run or model
    │   ├── DivergedError          the journal holds another request under this effect key
    │   ├── OutcomeGoneError       the recorded outcome was erased or has expired
    │   ├── ReplayMissError        only replay was asked for, and there is nothing to replay
    │   ├── CallIdConflictError    the call id belongs to another request
    │   └── NotConnectedError      no connection; nothing was sent
    ├── it happened, and is billed
    │   ├── CallInterruptedError   it generated, then died; the cost is told in part or whole
    │   ├── UnaccountedError       it generated, then died; the cost was never told
    │   └── UnusableError          it answered, and the answer cannot be used
    └── see `disposition` and `certainty`
        ├── BugError               a fault of the server
        └── LostContactError       no outcome was told: deadline, cancel, broken connection

The groups are for reading: every class stands directly below the root, and what the server says of a call
(`disposition`, `usage`, `certainty`, `retryable`) wins over what its kind suggests. The root itself is raised
for a kind that is newer than this client. `grpc.RpcError` never leaves a call; it is the `__cause__`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import grpc

from .enums import Cause, Certainty, Disposition, EffectOutcome, ErrorKind, Stage
from .records import LedgerCall
from .results import AdditionalUsage, Attempt, Cost, PassedOver, Standing, Usage
from .v1 import error_pb2


@dataclass(frozen=True)
class FieldViolation:
    """One mistake in a request."""

    field: str
    """Path of the field in the request, such as `messages[2].parts[0].image.media_type`."""
    description: str
    """What is wrong and what would be right."""


@dataclass(eq=False, repr=False)
class ModelmeterError(Exception):
    """A call that gave no answer, with everything known about its bill."""

    message: str
    """One sentence for a person."""
    _: KW_ONLY
    kind: ErrorKind = ErrorKind.UNSPECIFIED
    """What kind of failure it is; UNSPECIFIED when nobody told, or in a word this client does not know."""
    cause: Cause = Cause.UNSPECIFIED
    """Who ended the call."""
    stage: Stage = Stage.UNSPECIFIED
    """How far the call got."""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    """The gRPC code as it arrived."""
    model_asked: str = ""
    """The model as the caller asked for it."""
    model_served: str = ""
    """The model that the provider says served the call; empty when it did not say."""
    service_tier: str = ""
    """The tier the provider says it served the call in; empty when it did not say."""
    target: str = ""
    """The provider instance that was asked; empty when none was."""
    usage: Usage = field(default_factory=Usage)
    """What the call consumed; every counter is None when nobody told."""
    additional_usage: tuple[AdditionalUsage, ...] = ()
    """What was billed beside `usage`."""
    certainty: Certainty = Certainty.UNKNOWN
    """How far `usage` can be trusted."""
    estimated_output_tokens: int | None = None
    """Output tokens counted from the text that arrived; never part of `usage`."""
    cost: Cost | None = None
    """What the known usage costs; None when the model has no price or nothing was told."""
    disposition: Disposition = Disposition.UNSPECIFIED
    """Whether the call reached the provider and generated."""
    effect_outcome: EffectOutcome = EffectOutcome.INTERRUPTED
    """What an effect runtime books: METERED when spend was told, else by whether it happened."""
    retryable: bool = False
    """Whether repeating the same call can help and cannot buy the answer twice."""
    may_have_generated: bool = True
    """Whether the provider may bill for this call."""
    retry_after: float | None = None
    """Seconds the provider or the server asked to wait; None when nobody said."""
    http_status: int | None = None
    """HTTP status the provider answered with; None when none came."""
    provider_code: str = ""
    """The provider's own error code or type, untouched; empty when none was told."""
    provider_request_id: str = ""
    """The provider's id of the request; empty when none was told."""
    provider_response_id: str = ""
    """The provider's id of the answer; empty when none was told."""
    attempts: tuple[Attempt, ...] = ()
    """The last provider requests of the call, at most 8."""
    attempts_total: int = 0
    """How many provider requests the call made; 0 when it was refused before dispatch or nobody told."""
    passed_over: tuple[PassedOver, ...] = ()
    """The targets that were passed over, at most 8."""
    call_id: str = ""
    """The call's id. Empty for an RPC that calls no model."""
    violations: tuple[FieldViolation, ...] = ()
    """Every mistake in the request, for a bad one."""
    reason: str = ""
    """A word for programs, the kind's name or a narrower one, such as NOT_RECONCILABLE; see `google.rpc.ErrorInfo`."""
    standings: tuple[Standing, ...] = ()
    """For CEILING: where the subjects of the ceilings without room stand."""
    differing_field: str = ""
    """For DIVERGED and CALL_ID_CONFLICT: the first field of the request that differs from the recorded one."""
    recorded: LedgerCall | None = None
    """What the ledger said of the call, when contact was lost and it could be asked."""
    raw_status: bytes = b""
    """The `google.rpc.Status` as it came in `grpc-status-details-bin`; empty when none came."""
    proto: error_pb2.ModelError | None = None
    """The error's own message as it came; None when none came."""

    def __str__(self) -> str:
        return self.message


class UnreachableError(ModelmeterError):
    """The provider cannot have had the whole request. Repeating is safe."""


class RefusedError(ModelmeterError):
    """Judged wrong before generating. Repeating the same request is pointless; see `violations`."""


class RateLimitedError(ModelmeterError):
    """Throttled or overloaded before generating. Repeat after `retry_after` seconds."""


class UnavailableError(ModelmeterError):
    """The provider was reached and gave no evidence that it generated; it may bill all the same."""


class CallInterruptedError(ModelmeterError):
    """It generated, then died; the cost is told in part or whole. Repeating is a second bill."""


class UnaccountedError(ModelmeterError):
    """It generated, then died; the cost was never told. Repeating is a second bill."""


class UnusableError(ModelmeterError):
    """It answered, and the answer cannot be used. Repeating is a second bill."""


class CeilingError(ModelmeterError):
    """A ceiling has no room for the call."""


class OverloadedError(ModelmeterError):
    """The server has no room for the call. Repeat after `retry_after` seconds."""


class DrainingError(ModelmeterError):
    """The server is shutting down. Repeat, on another server if there is one."""


class LedgerDownError(ModelmeterError):
    """The server cannot write its ledger, so it sent nothing."""


class HaltedError(ModelmeterError):
    """An operator has stopped this tenant, run or model."""


class DivergedError(ModelmeterError):
    """The journal holds another request under this effect key."""


class OutcomeGoneError(ModelmeterError):
    """The recorded outcome's content was erased or has expired; the bill remains."""


class ReplayMissError(ModelmeterError):
    """Only replay was asked for, and the journal holds no such call."""


class CallIdConflictError(ModelmeterError):
    """The call id belongs to another request."""


class BugError(ModelmeterError):
    """A fault of the server."""


class NotConnectedError(ModelmeterError):
    """No connection to the server could be made, or the session was over. Nothing was sent; repeating is safe."""


class LostContactError(ModelmeterError):
    """No outcome was told: the deadline passed, the call was cancelled, the connection or a proxy failed.

    The call may have generated and been billed, so it is never `retryable`, unless `certainty` is NONE. `usage` is
    the last figure that a stream had told. A server with a ledger has been asked once what became of the call, and
    `recorded` is its word, if it had one. Ask again with `ledger.get_call(error.call_id)`.
    """
