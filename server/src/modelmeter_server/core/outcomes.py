"""The vocabulary of how a call ended: kinds, causes, stages, dispositions, certainties.

These enums are the single spelling of each word; the proto enums, metrics and logs repeat them.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique

import msgspec


@unique
class Certainty(Enum):
    """How far the reported usage can be trusted."""

    NONE = "NONE"
    """Nothing was or will be billed, and that is known."""
    EXACT = "EXACT"
    """Told together with or after the provider's stop reason."""
    AT_LEAST = "AT_LEAST"
    """A lower bound: told before the end."""
    UNKNOWN = "UNKNOWN"
    """It may have generated and nobody said; usage is absent."""


@unique
class Kind(Enum):
    """What kind of failure a call ended with. The rows that go with each stand in `core.errors`."""

    UNREACHABLE = "UNREACHABLE"
    REFUSED = "REFUSED"
    RATE_LIMITED = "RATE_LIMITED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERRUPTED = "INTERRUPTED"
    UNACCOUNTED = "UNACCOUNTED"
    UNUSABLE = "UNUSABLE"
    CEILING = "CEILING"
    OVERLOADED = "OVERLOADED"
    DRAINING = "DRAINING"
    LEDGER_DOWN = "LEDGER_DOWN"
    HALTED = "HALTED"
    DIVERGED = "DIVERGED"
    OUTCOME_GONE = "OUTCOME_GONE"
    REPLAY_MISS = "REPLAY_MISS"
    CALL_ID_CONFLICT = "CALL_ID_CONFLICT"
    BUG = "BUG"


@unique
class Cause(Enum):
    """Who or what ended the call."""

    PROVIDER = "PROVIDER"
    NETWORK = "NETWORK"
    IDLE_TIMEOUT = "IDLE_TIMEOUT"
    TOTAL_TIMEOUT = "TOTAL_TIMEOUT"
    DEADLINE = "DEADLINE"
    CALLER = "CALLER"
    DRAIN = "DRAIN"
    LIMIT = "LIMIT"
    BUG = "BUG"


@unique
class Stage(IntEnum):
    """How far a call got; ordered, so that `stage >= Stage.WRITTEN` reads as it should."""

    NOT_WRITTEN = 1
    """Not one byte of the request left: pool wait, DNS, connect, TLS."""
    WRITING = 2
    """Part of the request left; the provider cannot have had the whole document."""
    WRITTEN = 3
    """The whole request was handed to the network."""
    HEADERS = 4
    """The provider answered with a status and headers."""
    BODY = 5
    """At least one body byte arrived."""
    OUTPUT = 6
    """Generation is proven."""


@unique
class Disposition(Enum):
    """Whether the call reached the provider and generated."""

    DID_NOT_HAPPEN = "DID_NOT_HAPPEN"
    LANDED = "LANDED"
    IN_DOUBT = "IN_DOUBT"
    """Used by the ledger alone, for a dispatched call found after a crash."""


@unique
class Code(IntEnum):
    """The canonical gRPC status codes this service answers with, by their wire numbers.

    Spelled here because the core may not import gRPC.
    """

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


@unique
class End(Enum):
    """How the bytes of a provider's answer stopped, as the accumulator needs to know it."""

    CLEAN = "CLEAN"
    """The body ended as HTTP says it should, or the accumulator had asked to stop reading."""
    RESET = "RESET"
    """The connection broke, or the body was cut short of its announced end."""
    CUT = "CUT"
    """We stopped reading: a timeout, a deadline, the caller, a drain, a limit."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the reading of a provider's answer ended: all that an accumulator needs to judge what it holds."""

    end: End
    cause: Cause = Cause.NETWORK
    stage: Stage = Stage.BODY
    """How far the exchange got by its bytes; OUTPUT is the accumulator's to say."""
    detail: str = ""
    """What broke, for the message; names at most a host."""
    retryable: bool | None = None
    """Overrides the table where the fault decides, such as a certificate that no repetition will mend."""
