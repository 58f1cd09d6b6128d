"""A completion request in this service's own terms, free of gRPC and of any provider."""

from __future__ import annotations

from enum import Enum, IntEnum, unique

import msgspec

from .journal import Effect
from .retry_policy import RetryAsk

FORCED_TOOL = "modelmeter_respond"
"""Name of the tool that a model must call to answer by a schema; the same on every wire."""

DEFAULT_MAX_OUTPUT_TOKENS = 16_384
"""Reasoning eats the same budget as the answer, so that smaller defaults cut answers short."""

MAX_AFFINITY_KEY = 256
"""Characters of an affinity key."""


@unique
class Role(Enum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"


@unique
class MediaKind(Enum):
    """What kind of medium a part holds."""

    IMAGE = "image"
    AUDIO = "audio"
    DOCUMENT = "document"


@unique
class SchemaMode(Enum):
    """How an answer is held to a schema."""

    NATIVE = "native"
    FORCED_TOOL = "forced_tool"


@unique
class SchemaCheckPolicy(Enum):
    """Whether this service checks an answer against the schema after the provider did."""

    AUTO = "auto"
    """Parse only where the provider enforces the schema while it generates, else enforce."""
    ENFORCE = "enforce"
    PARSE_ONLY = "parse_only"


@unique
class ReasoningEffort(Enum):
    """How hard the model should think, in the spelling of the wire."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


@unique
class Sensitivity(IntEnum):
    """How confidential a prompt or an answer is; ordered."""

    PUBLIC = 1
    INTERNAL = 2
    CONFIDENTIAL = 3
    SECRET = 4


@unique
class ToolMode(Enum):
    """How free the model is to call tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


class CacheBreakpoint(msgspec.Struct, frozen=True):
    """The end of a stretch of the prompt that the provider is to keep in its cache."""

    seconds: float | None = None
    """How long to keep it; `None` for the provider's default."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str
    cache_breakpoint: CacheBreakpoint | None = None


class MediaPart(msgspec.Struct, frozen=True, kw_only=True, tag="media"):
    """An image, audio or a document: inline bytes, or a URL that the provider would fetch."""

    kind: MediaKind
    media_type: str
    data: bytes = b""
    url: str | None = None
    name: str = ""
    cache_breakpoint: CacheBreakpoint | None = None


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A tool call that the model made in an earlier turn."""

    id: str
    name: str
    arguments_json: str = "{}"
    free_text: bool = False
    cache_breakpoint: CacheBreakpoint | None = None


class ToolResultPart(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result"):
    """What a tool call gave."""

    call_id: str
    output: str = ""
    failed: bool = False
    cache_breakpoint: CacheBreakpoint | None = None


class Continuation(msgspec.Struct, frozen=True, tag="continuation"):
    """A provider's own turns as JSON text, in place of the turn they stand for."""

    provider: str
    """Provider kind that issued it."""
    state_json: str
    """A JSON array of turns in the provider's format."""
    target: str = ""
    """The provider instance that issued it, which alone can read what it signed; empty if that is not known."""


Part = TextPart | MediaPart | ToolCallPart | ToolResultPart | Continuation


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model may call and the caller runs."""

    name: str
    description: str = ""
    parameters_json: str = ""
    """JSON Schema as text, key order kept; empty for an object without properties."""
    strict: bool = False
    cache_breakpoint: CacheBreakpoint | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and which tool must be called."""

    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    disable_parallel_calls: bool = False


class CallCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on what one call may consume; `None` bounds nothing, 0 admits nothing."""

    tokens: int | None = None
    """Input and output together."""
    nano_units: int | None = None
    currency: str = ""
    """ISO 4217; required with `nano_units`."""


class TurnScope(msgspec.Struct, frozen=True, kw_only=True):
    """How a request stands in a session, whose provider remembers what was said before."""

    previous_response_id: str | None = None
    """As asked: `None` goes on from where the session is, empty begins anew."""
    generate: bool = True
    context_tokens: int = 0
    """About how much of what was said before the provider reads again; for the reservation alone."""


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model, as asked. Exactly one of `text`, `messages`, `native_json` is set."""

    model: str
    """An alias, or `provider/model`."""
    call_id: str
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    native_json: str | None = None
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    output_schema_json: str = ""
    schema_mode: SchemaMode | None = None
    """`None`: the model's configured mode."""
    max_output_tokens: int | None = None
    """`None`: the model's configured limit."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning_effort: ReasoningEffort | None = None
    provider_options_json: str = ""
    continuation: Continuation | None = None
    sensitivity: Sensitivity = Sensitivity.PUBLIC
    system_cache_breakpoint: CacheBreakpoint | None = None
    end_user_id: str = ""
    """Whom the caller asks for; empty for none."""
    labels: dict[str, str] = {}
    effect: Effect | None = None
    ceiling: CallCeiling | None = None
    retry_policy: RetryAsk | None = None
    """`None`: as the model's policy says."""
    replay_only: bool = False
    """Answer from the journal or not at all."""
    affinity_key: str = ""
    """What the call has in common with those that should meet the same prompt cache; empty for nothing."""
    turn: TurnScope | None = None
    """Set for a turn of a session that has a socket."""
