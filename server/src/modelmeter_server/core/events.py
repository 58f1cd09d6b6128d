"""What happens to calls, as a stream of small facts: one versioned envelope, one kind for each sort of fact.

The vocabulary only grows: a kind or a field is added, never renamed, and a reader ignores what it does not know. Events
never hold prompts or answers. What a provider's own tools were asked and gave is content too; it stands in an event
only where the deployment asks for it, redacted and cut (`core.redaction`).
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique
from typing import Final

import msgspec

from .answers import Finish
from .outcomes import Cause, Certainty, Disposition, Kind, Stage
from .pricing import Cost
from .usage import Usage

SCHEMA_VERSION: Final = 1
"""Of the envelope and the kinds together; additions do not raise it."""


@unique
class Severity(IntEnum):
    """How much an operator should care; ordered."""

    DEBUG = 1
    INFO = 2
    WARNING = 3
    """A call failed, or room is running out."""
    ERROR = 4
    """Spend that nobody can account for, or a fault of this service."""


@unique
class Family(Enum):
    """Kinds that are sampled together, so that the two ends of one thing are kept or dropped together."""

    PROMPT = "prompt"
    TOOL = "tool"
    RESPONSE = "response"
    EMBEDDING = "embedding"
    ATTEMPT = "attempt"
    LEDGER = "ledger"
    """Ceilings, soft limits, reconciliations and halts; never sampled."""
    TARGET = "target"
    """Breakers; never sampled."""


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Text from a call, redacted and cut."""

    text: str
    truncated: bool = False
    original_bytes: int = 0
    """UTF-8 bytes before it was cut, after it was redacted; 0 beside `truncated` when it was too long to be kept."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind"):
    """The envelope: when, where, and to which call, conversation, run and trace the fact belongs."""

    version: int
    occurred_at: int
    """Microseconds since the epoch, UTC."""
    tick: int
    """Counts the events of one server process from 1; a reader of one process sees by it what is missing."""
    tenant: str
    """Whose it is; empty for what concerns the deployment alone."""
    call_id: str = ""
    conversation_id: str = ""
    """The call's label `conversation_id`, or the session's own."""
    run_id: str = ""
    trace_id: str = ""
    """The caller's or this server's W3C trace, 32 hexadecimal digits; empty for none."""
    span_id: str = ""
    severity: Severity = Severity.INFO


class PromptStarted(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="prompt.started"):
    """A completion was asked for; nothing has been checked or sent yet."""

    model_asked: str
    messages: int = 0
    """Turns of the prompt; 0 when they were given in the provider's own form."""
    tools: int = 0
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    streamed: bool = False


class PromptCompleted(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="prompt.completed"):
    """A completion was answered."""

    model_asked: str
    model_served: str = ""
    target: str = ""
    usage: Usage | None = None
    certainty: Certainty
    cost: Cost | None = None
    finish: Finish
    stop_reason: str = ""
    truncated: bool = False
    provider_response_id: str = ""
    attempts_total: int = 0
    queue_time: float = 0.0
    first_token_time: float | None = None
    total_time: float = 0.0
    replayed: bool = False
    settled: bool = False


class PromptFailed(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="prompt.failed"):
    """A completion or embedding failed; what it cost stands beside why."""

    model_asked: str
    model_served: str = ""
    target: str = ""
    error_kind: Kind
    cause: Cause
    stage: Stage
    disposition: Disposition
    message: str = ""
    """What happened, without the words of a provider or a caller: those echo prompts."""
    retryable: bool = False
    provider_code: str = ""
    provider_response_id: str = ""
    http_status: int | None = None
    usage: Usage | None = None
    certainty: Certainty
    cost: Cost | None = None
    estimated_output_tokens: int | None = None
    attempts_total: int = 0
    queue_time: float = 0.0
    first_token_time: float | None = None
    total_time: float = 0.0
    replayed: bool = False
    settled: bool = False


class HostedToolInvoked(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="tool.hosted_invoked"
):
    """The model used one of the provider's own tools."""

    tool: str
    tool_call_id: str
    """The provider's id, or the tool and its position when it gave none."""
    provider_response_id: str = ""
    arguments: Payload | None = None
    """Only where the deployment turns payloads on."""


class HostedToolCompleted(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="tool.hosted_completed"
):
    """What became of that use."""

    tool: str
    tool_call_id: str
    provider_response_id: str = ""
    status: str = ""
    failed: bool = False
    """The provider named an error."""
    result: Payload | None = None
    """Only where the deployment turns payloads on."""


class SessionStarted(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="response.session_started"
):
    """A session with a provider began with its first turn."""

    model_asked: str
    session_id: str
    emulated: bool = False
    """Turns are ordinary calls with all that was said, for want of a WebSocket."""


class TurnStarted(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="response.turn_started"
):
    """A turn was sent."""

    session_id: str
    turn: int = 0
    """From 1."""
    previous_response_id: str = ""
    connection: int = 0
    """The session's socket that was open then, from 1; 0 for none."""


class TurnCompleted(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="response.turn_completed"
):
    """A turn ended, well or not: exactly one for each that started."""

    session_id: str
    turn: int = 0
    provider_response_id: str = ""
    previous_response_id: str = ""
    connection: int = 0
    status: str
    """The provider's terminal status, or `error` or `send_error` (R-W4)."""
    reason: str = ""
    """Why there is no terminal status."""
    usage: Usage | None = None
    certainty: Certainty
    cost: Cost | None = None
    hosted_tool_calls: int = 0
    total_time: float = 0.0
    replayed: bool = False
    """Nothing was bought for it, and no sum has its figures."""


class SessionEnded(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="response.session_ended"
):
    """A session ended: the last event of it, once."""

    session_id: str
    reason: str
    turns: int = 0
    turns_completed: int = 0
    usage: Usage | None = None
    certainty: Certainty = Certainty.NONE
    cost_nano_units: dict[str, int] = {}
    """By currency."""
    cost_certainty: Certainty = Certainty.NONE
    hosted_tool_calls: int = 0


class EmbeddingCompleted(
    Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="embedding.completed"
):
    """Texts were turned into vectors."""

    model_asked: str
    model_served: str = ""
    target: str = ""
    inputs: int = 0
    usage: Usage | None = None
    certainty: Certainty
    cost: Cost | None = None
    total_time: float = 0.0
    replayed: bool = False
    settled: bool = False


class AttemptEnded(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="attempt"):
    """One provider request of a call ended."""

    number: int
    target: str
    stage: Stage
    certainty: Certainty
    elapsed: float
    error_kind: Kind | None = None
    """`None` when it answered."""
    cause: Cause | None = None
    http_status: int | None = None
    provider_code: str = ""
    usage: Usage | None = None


class Retried(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="retry"):
    """A call goes to the provider once more."""

    number: int
    """Of the attempt that begins."""
    target: str


class CeilingReached(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="ceiling"):
    """A call was refused because a ceiling has no room. Amounts are tokens, or nano units where there is a currency."""

    model_asked: str
    ceiling_id: str = ""
    """Empty for the call's own ceiling."""
    scope: str
    name: str = ""
    window: str = ""
    currency: str = ""
    allowed: int = 0
    booked: int = 0
    """What is settled."""
    held: int = 0
    unsettled: int = 0
    asked: int = 0


class SoftLimitPassed(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="soft_limit"):
    """A share of a ceiling was passed, for the first time in its window. Amounts as in `ceiling`."""

    ceiling_id: str
    scope: str
    name: str = ""
    window: str = ""
    percent: int
    currency: str = ""
    allowed: int = 0
    booked: int = 0
    held: int = 0
    unsettled: int = 0


class Replayed(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="replay"):
    """A call was answered from the journal, or by one that ran already; nothing was bought for it."""

    model_asked: str
    error_kind: Kind | None = None
    """`None` when an answer was replayed."""
    certainty: Certainty


class Reconciled(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="reconcile"):
    """A truer figure was offered for a call whose bill was not wholly known."""

    generation: int = 0
    by: str
    """`provider` or `operator`."""
    raised: bool
    """Whether the ledger took it."""
    certainty: Certainty


class HaltChanged(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="halt"):
    """An operator stopped a tenant, run or model, or let it go on."""

    scope: str
    name: str = ""
    mode: str = ""
    """`ADMISSION` or `CUT`; empty when the halt was cleared."""
    cleared: bool = False
    calls_cut: int = 0
    """Calls of this server that were cut at once."""


class BreakerChanged(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="breaker"):
    """The breaker of a target came into another state."""

    target: str
    before: str
    state: str
    """`CLOSED`, `HALF_OPEN` or `OPEN`."""


AnyEvent = (
    PromptStarted
    | PromptCompleted
    | PromptFailed
    | HostedToolInvoked
    | HostedToolCompleted
    | SessionStarted
    | TurnStarted
    | TurnCompleted
    | SessionEnded
    | EmbeddingCompleted
    | AttemptEnded
    | Retried
    | CeilingReached
    | SoftLimitPassed
    | Replayed
    | Reconciled
    | HaltChanged
    | BreakerChanged
)

_FAMILIES: Final[dict[type[Event], Family]] = {
    PromptStarted: Family.PROMPT,
    PromptCompleted: Family.PROMPT,
    PromptFailed: Family.PROMPT,
    HostedToolInvoked: Family.TOOL,
    HostedToolCompleted: Family.TOOL,
    SessionStarted: Family.RESPONSE,
    TurnStarted: Family.RESPONSE,
    TurnCompleted: Family.RESPONSE,
    SessionEnded: Family.RESPONSE,
    EmbeddingCompleted: Family.EMBEDDING,
    AttemptEnded: Family.ATTEMPT,
    Retried: Family.ATTEMPT,
    Replayed: Family.PROMPT,
    CeilingReached: Family.LEDGER,
    SoftLimitPassed: Family.LEDGER,
    Reconciled: Family.LEDGER,
    HaltChanged: Family.LEDGER,
    BreakerChanged: Family.TARGET,
}

UNSAMPLED: Final = frozenset((Family.LEDGER, Family.TARGET))
"""Families of which every event is shown."""

GOOD_STATUSES: Final = ("completed", "incomplete")
"""Of turns that answered."""

ILL_ENDS: Final = ("transport_error", "response_failed")
"""Reasons of sessions that a failure ended."""

KINDS: Final[dict[type[Event], str]] = {each: str(each.__struct_config__.tag) for each in _FAMILIES}
"""The spelling of each kind."""


def kind_of(event: Event) -> str:
    """Return the kind as it is spelled, such as `prompt.completed`."""
    return KINDS[type(event)]


def family_of(kind: type[Event]) -> Family:
    """Return what the kind is sampled with."""
    return _FAMILIES[kind]


def is_failure(event: Event) -> bool:
    """Say whether something went wrong: such events are never sampled away."""
    match event:
        case PromptFailed() | Retried():
            return True
        case AttemptEnded(error_kind=kind) | Replayed(error_kind=kind):
            return kind is not None
        case TurnCompleted(status=status):
            return status not in GOOD_STATUSES
        case SessionEnded(reason=reason):
            return reason in ILL_ENDS
        case HostedToolCompleted(failed=failed):
            return failed
    return False


def correlator_of(event: Event) -> str:
    """Return what the two ends of one thing share: the session for sessions, the call for everything else."""
    match event:
        case SessionStarted() | TurnStarted() | TurnCompleted() | SessionEnded():
            return event.session_id
    return event.call_id


_encode = msgspec.json.Encoder(enc_hook=str).encode
_decoder = msgspec.json.Decoder(AnyEvent)


def to_json(event: Event) -> bytes:
    """Return the event as one flat JSON object; what is absent or a default is left out."""
    return _encode(event)


def from_json(text: bytes) -> AnyEvent:
    """Return the event of a JSON object; unknown members are ignored. Raises msgspec.MsgspecError."""
    return _decoder.decode(text)
