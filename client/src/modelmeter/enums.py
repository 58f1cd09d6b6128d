"""The words of the contract. Each enum mirrors the proto enum of its name, without the prefix.

Except for `Stage`, which has an order, members are strings: `answer.certainty == "EXACT"` holds, and wherever
a word is asked for, its text in any case will do. A word that a newer server sends and this client does not
know reads as UNSPECIFIED; the proto beside the value still has its number.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum, unique


class _Word(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> _Word | None:
        wanted = value.casefold() if isinstance(value, str) else None
        return next((member for member in cls if member.value.casefold() == wanted), None)


@unique
class Certainty(_Word):
    """How far a usage or a cost can be trusted."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not said."""
    NONE = "NONE"
    """Nothing was or will be billed, and that is known."""
    EXACT = "EXACT"
    """Told by the provider together with or after its stop reason."""
    AT_LEAST = "AT_LEAST"
    """A lower bound, told before the end."""
    UNKNOWN = "UNKNOWN"
    """It may have generated, and nobody said what it cost."""


@unique
class ErrorKind(_Word):
    """What kind of failure a call ended with; `modelmeter.errors` has one class for each."""

    UNSPECIFIED = "UNSPECIFIED"
    """No outcome was told, or it was told in a word this client does not know."""
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
class Cause(_Word):
    """Who or what ended a call."""

    UNSPECIFIED = "UNSPECIFIED"
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
    """How far a call got. Ordered: `error.stage >= Stage.WRITTEN` reads as it should."""

    UNSPECIFIED = 0
    NOT_WRITTEN = 1
    """Not one byte of the request left for the provider."""
    WRITING = 2
    """Part of the request left; the provider cannot have had the whole document."""
    WRITTEN = 3
    """The whole request was handed to the network."""
    HEADERS = 4
    """The provider answered with a status and headers."""
    BODY = 5
    """At least one byte of the answer's body arrived."""
    OUTPUT = 6
    """Generation is proven."""

    def __str__(self) -> str:
        return self.name


@unique
class Disposition(_Word):
    """Whether a call reached the provider and generated."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not said."""
    DID_NOT_HAPPEN = "DID_NOT_HAPPEN"
    """It did not generate as far as anyone can tell."""
    LANDED = "LANDED"
    """It generated, and the provider bills it; repeating is a second purchase."""
    IN_DOUBT = "IN_DOUBT"
    """It was dispatched and the server died."""


@unique
class EffectOutcome(_Word):
    """What an effect runtime books for a failed call."""

    REJECTED = "rejected"
    """It did not happen."""
    INTERRUPTED = "interrupted"
    """It may have happened."""
    PERFORMED = "performed"
    """It happened; what it cost was not told."""
    METERED = "metered"
    """It happened, and spend was told."""


@unique
class Finish(_Word):
    """Why the model stopped, in one vocabulary for all providers."""

    UNSPECIFIED = "UNSPECIFIED"
    STOP = "STOP"
    """The answer is finished."""
    TOOL_CALLS = "TOOL_CALLS"
    """The model wants its tool calls answered."""
    LENGTH = "LENGTH"
    """Cut by a length limit."""
    CONTINUE = "CONTINUE"
    """The provider paused and expects to be asked to go on."""
    UNRECOGNIZED = "UNRECOGNIZED"
    """A word the server does not know; `Completion.stop_reason` has it untouched."""


@unique
class CostSource(_Word):
    """Who worked a cost out."""

    UNSPECIFIED = "UNSPECIFIED"
    PROVIDER = "PROVIDER"
    PRICE_TABLE = "PRICE_TABLE"


@unique
class Role(_Word):
    """Who speaks in a message."""

    UNSPECIFIED = "UNSPECIFIED"
    USER = "USER"
    ASSISTANT = "ASSISTANT"


@unique
class Sensitivity(_Word):
    """How confidential a prompt or an answer is; each level includes those before it."""

    UNSPECIFIED = "UNSPECIFIED"
    """The tenant's default, else PUBLIC."""
    PUBLIC = "PUBLIC"
    INTERNAL = "INTERNAL"
    CONFIDENTIAL = "CONFIDENTIAL"
    SECRET = "SECRET"  # noqa: S105  # a level, not a password


@unique
class Trust(_Word):
    """Whether text may be taken as instructions."""

    UNSPECIFIED = "UNSPECIFIED"
    TRUSTED = "TRUSTED"
    UNTRUSTED = "UNTRUSTED"


@unique
class SchemaMode(_Word):
    """How an answer is held to a schema."""

    UNSPECIFIED = "UNSPECIFIED"
    """The mode configured for the model."""
    NATIVE = "NATIVE"
    """The provider constrains the generation itself."""
    FORCED_TOOL = "FORCED_TOOL"
    """The model must call a tool whose arguments are the answer."""


@unique
class ReasoningEffort(_Word):
    """How hard the model should think. A value that the provider does not name is refused, never rounded."""

    UNSPECIFIED = "UNSPECIFIED"
    """The provider's default."""
    NONE = "NONE"
    MINIMAL = "MINIMAL"
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    XHIGH = "XHIGH"
    MAX = "MAX"


@unique
class ModelTask(_Word):
    """What a model is for."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not declared: it is asked for whatever the call asks."""
    COMPLETION = "COMPLETION"
    """Completions, and counts of their input."""
    EMBEDDING = "EMBEDDING"
    """Vectors."""


@unique
class TargetStrategy(_Word):
    """How a target is chosen for a call."""

    UNSPECIFIED = "UNSPECIFIED"
    """The model has no targets."""
    ORDERED = "ORDERED"
    """The first one that is well."""
    WEIGHTED = "WEIGHTED"
    """Each one for its share of the calls."""
    LEAST_LOADED = "LEAST_LOADED"
    """The one with the fewest calls under way, by its weight."""


@unique
class PassReason(_Word):
    """Why a call was not sent to one of its model's targets."""

    UNSPECIFIED = "UNSPECIFIED"
    OPEN = "OPEN"
    """It has failed too often of late."""
    RESTING = "RESTING"
    """It has asked to be left alone for a while, as with a rate limit."""
    CANNOT = "CANNOT"
    """It cannot take the request."""
    CONTINUATION = "CONTINUATION"
    """It cannot read the continuation, which another provider instance issued."""
    FULL = "FULL"
    """Its provider instance has as many calls at once as it may have."""


@unique
class EmbeddingInputType(_Word):
    """What vectors are for. A provider that does not name it refuses it."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not said; refused where the provider must be told."""
    QUERY = "QUERY"
    """A question that documents will be searched with."""
    DOCUMENT = "DOCUMENT"
    """A text that will be searched."""
    CLASSIFICATION = "CLASSIFICATION"
    """Texts that a classifier will read."""
    CLUSTERING = "CLUSTERING"
    """Texts that will be clustered."""
    SIMILARITY = "SIMILARITY"
    """Texts that will be compared with each other."""


@unique
class ToolMode(_Word):
    """Whether a tool must be called."""

    UNSPECIFIED = "UNSPECIFIED"
    """The same as AUTO."""
    AUTO = "AUTO"
    """The model decides."""
    NONE = "NONE"
    """No tool may be called."""
    REQUIRED = "REQUIRED"
    """At least one tool must be called."""
    NAMED = "NAMED"
    """The named tool must be called."""


@unique
class BusyPolicy(_Word):
    """What becomes of a turn that is sent while another one is under way."""

    UNSPECIFIED = "UNSPECIFIED"
    """The same as REFUSE."""
    REFUSE = "REFUSE"
    """It is refused, and nothing is sent."""
    QUEUE = "QUEUE"
    """It waits for its turn."""


@unique
class SessionTransport(_Word):
    """How the turns of a session reach the provider."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not told."""
    WEBSOCKET = "WEBSOCKET"
    """Over one WebSocket at a time; the provider remembers the conversation as long as the socket lives."""
    EMULATED = "EMULATED"
    """By ordinary calls, each with all that was said."""


@unique
class SessionEndReason(_Word):
    """Why a session ended."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not told."""
    CLIENT_CLOSE = "CLIENT_CLOSE"
    """The caller closed it, or left."""
    TRANSPORT_ERROR = "TRANSPORT_ERROR"
    """A turn failed on the way to the provider, and the session was to end with that."""
    RESPONSE_FAILED = "RESPONSE_FAILED"
    """A turn failed at the provider, and the session was to end with that."""
    IDLE = "IDLE"
    """No turn came for as long as the server waits."""
    AGE = "AGE"
    """It became as old as the server lets sessions become."""
    DRAIN = "DRAIN"
    """The server is shutting down."""
    DEADLINE = "DEADLINE"
    """The deadline of the session was near."""
    CREDENTIAL_ENDED = "CREDENTIAL_ENDED"
    """What let the caller in is good no longer: its token was revoked or has expired."""


@unique
class CallState(_Word):
    """How far a call has come in the ledger."""

    UNSPECIFIED = "UNSPECIFIED"
    RESERVED = "RESERVED"
    """Room is held for it; not one byte has left."""
    DISPATCHED = "DISPATCHED"
    """Its provider request leaves now or has left."""
    SETTLED = "SETTLED"
    """It has ended and its bill is known."""
    UNSETTLED = "UNSETTLED"
    """It has ended, and what it cost is not wholly known; a bound is held until it expires."""
    RECONCILED = "RECONCILED"
    """A truer figure came later."""
    WRITTEN_OFF = "WRITTEN_OFF"
    """Nobody ever told; its bound left the ceilings and remains a column of the sums."""

    @property
    def is_open(self) -> bool:
        """Say whether the call is still under way."""
        return self in (CallState.RESERVED, CallState.DISPATCHED)


@unique
class Operation(_Word):
    """What was asked of a model."""

    UNSPECIFIED = "UNSPECIFIED"
    COMPLETE = "COMPLETE"
    EMBED = "EMBED"


@unique
class Landing(_Word):
    """What a caller's leaving did to the provider's request."""

    UNSPECIFIED = "UNSPECIFIED"
    """Nobody left."""
    ABORTED = "ABORTED"
    """The connection to the provider was closed."""
    DRAINED = "DRAINED"
    """The provider was left to finish, and did."""
    DRAIN_CUT = "DRAIN_CUT"
    """The provider was left to finish, and the bound ended first."""


@unique
class Reconciler(_Word):
    """Who told the figure of a call after its end."""

    UNSPECIFIED = "UNSPECIFIED"
    """Nobody; the figure is the one of the call's end."""
    PROVIDER = "PROVIDER"
    OPERATOR = "OPERATOR"
    LATE = "LATE"
    """The server that ran the call, after it had been given up for dead."""


@unique
class ContentState(_Word):
    """What became of the content of a call."""

    UNSPECIFIED = "UNSPECIFIED"
    """There never was any, or the call is under way."""
    KEPT = "KEPT"
    ERASED = "ERASED"
    EXPIRED = "EXPIRED"


@unique
class OnLandedError(_Word):
    """What a repetition does about a recorded error that landed."""

    UNSPECIFIED = "UNSPECIFIED"
    """The same as REPLAY."""
    REPLAY = "REPLAY"
    """Return the error; nothing is bought again."""
    RETRY = "RETRY"
    """Buy the answer once more; both are billed."""


@unique
class Scope(_Word):
    """What a ceiling or a halt is about."""

    UNSPECIFIED = "UNSPECIFIED"
    TENANT = "TENANT"
    """The caller's tenant as a whole."""
    RUN = "RUN"
    MODEL = "MODEL"


@unique
class WindowKind(_Word):
    """Over which time a ceiling counts."""

    UNSPECIFIED = "UNSPECIFIED"
    """The same as TOTAL."""
    TOTAL = "TOTAL"
    """For ever."""
    DAY = "DAY"
    """From midnight to midnight of a time zone."""
    MONTH = "MONTH"
    """From the first of a month to the next, in a time zone."""
    ROLLING = "ROLLING"
    """The last so many seconds."""


@unique
class HaltMode(_Word):
    """How a halt treats calls under way."""

    UNSPECIFIED = "UNSPECIFIED"
    """The same as ADMISSION."""
    ADMISSION = "ADMISSION"
    """New calls are refused, those under way may end."""
    CUT = "CUT"
    """Those under way are cut as well."""


@unique
class GroupBy(_Word):
    """By what sums of spend tell calls apart."""

    UNSPECIFIED = "UNSPECIFIED"
    """One sum for everything."""
    RUN = "RUN"
    MODEL = "MODEL"
    KIND = "KIND"
    """By how they ended: an `ErrorKind`, ANSWERED or OPEN."""
    LABEL = "LABEL"
    """By the values of one label."""


@unique
class Period(_Word):
    """Into which stretches of time spend is cut."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not cut."""
    HOUR = "HOUR"
    DAY = "DAY"
    MONTH = "MONTH"


@unique
class TokenState(_Word):
    """Whether a bearer token opens anything."""

    UNSPECIFIED = "UNSPECIFIED"
    ACTIVE = "ACTIVE"
    """It lets its tenant in."""
    EXPIRED = "EXPIRED"
    """Its time is over."""
    REVOKED = "REVOKED"
    """It was ended for good."""


@unique
class EventSeverity(_Word):
    """How much an operator should care about an event."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not said."""
    DEBUG = "DEBUG"
    """For whoever looks for a fault."""
    INFO = "INFO"
    """In the ordinary course of things."""
    WARNING = "WARNING"
    """A call failed, or room is running out."""
    ERROR = "ERROR"
    """Spend that nobody can account for, or a fault of the service."""
