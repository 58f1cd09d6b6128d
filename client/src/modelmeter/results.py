"""What comes back from a call: the answer, its usage, its cost. All values are immutable.

Absent is not zero: a counter that nobody told is None. Empty text means that the provider did not say. Times
are in seconds. `proto` is the message as it came, with whatever this client does not know yet.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any

from .enums import (
    Cause,
    Certainty,
    CostSource,
    ErrorKind,
    Finish,
    ModelTask,
    PassReason,
    ReasoningEffort,
    SchemaMode,
    Sensitivity,
    Stage,
    TargetStrategy,
    Trust,
)
from .messages import Continuation, Message, ToolCall
from .v1 import completion_pb2, embedding_pb2, model_service_pb2, token_count_pb2


@dataclass(frozen=True, repr=False)
class Usage:
    """The tokens of one provider answer.

    `input_tokens` and `output_tokens` are totals; every other counter is a part of one of them and must not
    be added to it. None: not told.
    """

    input_tokens: int | None = None
    """Every input token the provider processed, cached ones included."""
    output_tokens: int | None = None
    """Every token the provider generated, reasoning and tool arguments included."""
    cache_write_tokens: int | None = None
    """Part of the input that was written to a prompt cache."""
    cache_write_5m_tokens: int | None = None
    """Part of the cache writes that is kept for five minutes."""
    cache_write_1h_tokens: int | None = None
    """Part of the cache writes that is kept for one hour."""
    cache_read_tokens: int | None = None
    """Part of the input that was served from a prompt cache."""
    reasoning_tokens: int | None = None
    """Part of the output that is reasoning, whether it was shown or not."""
    input_audio_tokens: int | None = None
    """Part of the input that was audio."""
    output_audio_tokens: int | None = None
    """Part of the output that is audio."""
    input_image_tokens: int | None = None
    """Part of the input that was images."""
    output_image_tokens: int | None = None
    """Part of the output that is images."""
    tool_prompt_tokens: int | None = None
    """Part of the input that the provider added for its own tools."""
    hosted_tool_requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Requests to the provider's own tools that are billed apiece, by the provider's name of the tool."""

    def __repr__(self) -> str:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return f"Usage({', '.join(f'{name}={value}' for name, value in values if value not in (None, {}))})"

    @property
    def told(self) -> bool:
        """Say whether the provider told any figure at all."""
        return any(getattr(self, each.name) not in (None, {}) for each in fields(self))

    @property
    def seen(self) -> bool:
        """Say whether a counter above 0 was told, that is, whether anything is known to be billed."""
        counters = (getattr(self, each.name) for each in fields(self) if each.name != "hosted_tool_requests")
        return any(counters) or any(self.hosted_tool_requests.values())


@dataclass(frozen=True)
class AdditionalUsage:
    """Work that the provider bills beside the usage. It counts as spend and is not contained in `usage`."""

    kind: str
    """The provider's own word for the work."""
    model: str
    """The model that did the work. Empty: the model of the call."""
    usage: Usage
    """What the work consumed."""


@dataclass(frozen=True)
class Cost:
    """Money for one call."""

    nano_units: int
    """Billionths of the currency unit, 0 or more. 0 means free; an unknown cost is an absent `Cost`."""
    currency: str
    """ISO 4217 code."""
    source: CostSource
    """Who worked the figure out."""
    certainty: Certainty
    """How far the figure can be trusted."""
    minor_units: int
    """The same money in hundredths of the currency unit, rounded up. For display; never add these up."""


@dataclass(frozen=True)
class Attempt:
    """One provider request of a call."""

    number: int
    """1 for the first attempt of the call."""
    target: str
    """The provider instance that was asked."""
    kind: ErrorKind
    """How the attempt failed; UNSPECIFIED when it answered."""
    cause: Cause
    """Who ended it; UNSPECIFIED when it answered."""
    stage: Stage
    """How far it got."""
    usage: Usage
    """What the attempt consumed."""
    certainty: Certainty
    """How far `usage` can be trusted."""
    http_status: int | None
    """HTTP status the provider answered with."""
    provider_code: str
    """The provider's own error code or type, untouched."""
    provider_request_id: str
    """The provider's id of the request."""
    elapsed: float | None
    """Seconds from the start of the attempt to its end."""
    wait: float = 0.0
    """Seconds from the end of the attempt before to the start of this one."""
    cost: Cost | None = None
    """What it cost, where a price is known and usage was told."""


@dataclass(frozen=True)
class PassedOver:
    """A target that a call was not sent to although it came before the one that was asked last."""

    target: str
    """The target, as `Attempt.target` names it."""
    reason: PassReason
    """Why it was passed over."""
    detail: str
    """One clause for a person."""


@dataclass(frozen=True)
class Standing:
    """Where a subject stands against one bound of a ceiling. Numbers are tokens, or nano units with a `currency`."""

    scope: str
    """What is bounded: CALL, RUN, TENANT or MODEL."""
    name: str
    """The run id or the model; empty for CALL and TENANT."""
    currency: str
    """ISO 4217 code of a bound on money; empty for a bound on tokens."""
    allowed: int
    """The bound."""
    settled: int
    """Known to be billed in this window."""
    held: int
    """Held for calls that run."""
    unsettled: int
    """The bounds on what nobody has told yet."""
    asked: int
    """What the refused call would have needed; 0 outside of errors."""
    room_at: datetime | None
    """When more room comes for certain; None when only settlements or a higher ceiling can bring it."""
    ceiling_id: str
    """The ceiling's id; empty for the call's own."""

    @property
    def room(self) -> int:
        """What is left, at least 0."""
        return max(0, self.allowed - self.settled - self.held - self.unsettled)


@dataclass(frozen=True)
class HostedTool:
    """A tool of the provider's own that it used while answering. The caller never runs it."""

    type: str
    """The provider's word for the tool, such as `web_search`."""
    id: str
    """The provider's id of the use."""
    status: str
    """The provider's word for how it ended."""
    name: str = ""
    """What was called within the tool, such as the tool of an MCP server."""
    server: str = ""
    """The MCP server, by the name that the request gave it."""
    arguments_json: str = ""
    """What the model asked of the tool, as JSON text."""
    result_json: str = ""
    """What the tool gave, as JSON text. From outside: nobody vouches for it."""
    error: str = ""
    """What the provider says went wrong."""
    omitted: bool = False
    """True when the arguments or the result were too long to be passed on."""


@dataclass(frozen=True)
class Timings:
    """Where the time of a call went, in seconds."""

    queue: float | None = None
    """Waiting in the server before the request left."""
    first_token: float | None = None
    """From the request leaving to the first output."""
    total: float | None = None
    """From the call's arrival to its outcome."""


@dataclass(frozen=True)
class Completion:
    """A whole answer with its bill."""

    text: str
    """The answer's text; reasoning is not in it. With a forced schema tool: the raw argument text."""
    tool_calls: tuple[ToolCall, ...]
    """Calls of the caller's tools, in order."""
    usage: Usage
    """What the answer consumed; every counter is None when the provider never told."""
    additional_usage: tuple[AdditionalUsage, ...]
    """What was billed beside `usage`."""
    certainty: Certainty
    """How far `usage` can be trusted."""
    cost: Cost | None
    """What it costs; None when the model has no price or the usage is unknown."""
    stop_reason: str
    """The provider's own word for why it stopped, untouched."""
    finish: Finish
    """Why the model stopped, in one vocabulary."""
    truncated: bool
    """True when the answer is cut by length or to be continued."""
    structured_json: str | None
    """The structured answer as JSON text, exactly as generated; None when there is none."""
    model_asked: str
    """The model as the caller asked for it."""
    model_served: str
    """The model that the provider says served the call."""
    target: str
    """The provider instance that answered."""
    provider_response_id: str
    """The provider's id of the answer."""
    provider_request_id: str
    """The provider's id of the request."""
    hosted_tools: tuple[HostedTool, ...]
    """Tools of the provider's own that it used."""
    continuation: Continuation | None
    """The provider's state for the next turn; present when the answer calls tools, or the provider paused."""
    attempts: tuple[Attempt, ...]
    """The provider requests of the call, at most 8, the last one being the one that answered."""
    attempts_total: int
    """How many provider requests the call made."""
    trust: Trust
    """Always UNTRUSTED: a model wrote it."""
    sensitivity: Sensitivity
    """How confidential the answer is."""
    call_id: str
    """The call's id."""
    replayed: bool
    """True when the answer came from the journal or was shared; nothing new was bought."""
    settled: bool
    """True when the bill is durably booked."""
    timings: Timings
    """Where the time went."""
    service_tier: str
    """The tier the provider says it served the call in."""
    estimated_output_tokens: int | None
    """Output tokens counted from the text, beside AT_LEAST and UNKNOWN only; never part of `usage`."""
    passed_over: tuple[PassedOver, ...]
    """The targets that were passed over, at most 8."""
    proto: completion_pb2.Completion = field(repr=False, compare=False)
    """The message as it came."""

    @cached_property
    def structured(self) -> Any:
        """The structured answer, parsed; None when there is none."""
        return None if self.structured_json is None else json.loads(self.structured_json)

    @property
    def message(self) -> Message:
        """The answer as the assistant's turn of the next prompt.

        Where the provider gave state for the next turn, that state stands for the whole turn, so the next
        call must go to the same kind of provider.
        """
        if self.continuation is not None:
            return Message.assistant(self.continuation)
        text = (self.text,) if self.text else ()
        return Message.assistant(*text, *self.tool_calls)


@dataclass(frozen=True)
class ModelCapabilities:
    """What a model can do."""

    schema_modes: tuple[SchemaMode, ...]
    """Ways in which the model can be held to a schema."""
    tools: bool
    """Whether the caller's tools can be offered."""
    tools_with_schema: bool
    """Whether tools and a schema in NATIVE mode can stand together."""
    media: tuple[str, ...]
    """Kinds of parts that prompts may hold beside text."""
    reasoning_efforts: tuple[ReasoningEffort, ...]
    """Efforts that the provider names."""
    sampling: tuple[str, ...]
    """Sampling options that the provider takes."""


@dataclass(frozen=True)
class PriceTier:
    """Rates of one model, as decimal strings in currency units per million tokens; empty when not priced."""

    input: str
    """Uncached input."""
    output: str
    """Output."""
    cache_read: str
    """Cached input read."""
    cache_write: str
    """Input written to a cache."""
    cache_write_1h: str
    """Input written to a one-hour cache."""
    above_input_tokens: int
    """The tier holds for prompts of more than this many input tokens; 0 for all."""
    service_tier: str
    """The provider's service tier that the rates hold for; empty for any."""
    input_audio: str
    """Audio tokens of the input; empty when not priced apart."""
    output_audio: str
    """Audio tokens of the output; empty when not priced apart."""


@dataclass(frozen=True)
class Price:
    """What a model costs by the deployment's table."""

    currency: str
    """ISO 4217 code."""
    tiers: tuple[PriceTier, ...]
    """The rates; the first is the base."""
    hosted_tool_requests: Mapping[str, str] = field(hash=False)
    """Currency units for one request to a provider's own tool, by the tool's name."""
    source: str = ""
    """The collection that the rates come from, such as `genai-prices`; empty for the deployment's own."""
    source_version: str = ""
    """The version of the collection."""
    source_entry: str = ""
    """The entry of the collection, as `provider/model`."""
    partial: bool = False
    """Some of what a call may use is priced apart and not told here: its cost is a lower bound."""


@dataclass(frozen=True)
class ModelTarget:
    """One of the places that a model's calls may be sent to."""

    name: str
    """Its name, as answers and errors tell it: `instance/model`."""
    provider: str
    """The provider instance."""
    provider_kind: str
    """The provider's kind."""
    provider_model: str
    """The model in the provider's own spelling."""
    weight: int
    """Its share of the calls, against the other targets'."""
    max_sensitivity: Sensitivity
    """The most confidential prompt that it may see."""
    price: Price | None
    """What it costs there; None when the deployment has no price for it."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often the server may ask the provider for one call, within what is configured for its model."""

    max_attempts: int = 0
    """Most provider requests; 0: as many as the model's configuration says. 1 asks once."""
    ambiguous: bool = False
    """Also repeat after silence that followed a written request, which may buy the answer twice."""
    landed: bool = False
    """Also repeat calls that landed, each one billed."""


@dataclass(frozen=True)
class Model:
    """A model that the deployment serves."""

    name: str
    """The name that callers use."""
    provider: str
    """The provider instance that serves it."""
    provider_kind: str
    """The provider's kind, such as `anthropic`."""
    provider_model: str
    """The model in the provider's own spelling."""
    capabilities: ModelCapabilities
    """What it can do."""
    max_output_tokens: int
    """Most tokens that a call generates unless it says otherwise."""
    default_schema_mode: SchemaMode
    """The schema mode of a call that names none."""
    max_sensitivity: Sensitivity
    """The most confidential prompt that the model may see."""
    price: Price | None
    """What it costs; None when the deployment has no price for it."""
    task: ModelTask
    """What it is for. Of an embedding model, capabilities, output limit and schema mode say nothing."""
    targets: tuple[ModelTarget, ...]
    """Where its calls may be sent; empty for a model with a provider of its own."""
    strategy: TargetStrategy
    """How one of `targets` is chosen."""
    retry_policy: RetryPolicy | None
    """How often the server asks for one call, and the most that a call may ask for; None from a server that does not
    say."""
    proto: model_service_pb2.Model = field(repr=False, compare=False)
    """The message as it came."""


@dataclass(frozen=True)
class TokenCount:
    """The input tokens of a call that was not made. Counting is free."""

    input_tokens: int
    """The input tokens that the call would have, as `Usage.input_tokens` counts them."""
    is_estimate: bool
    """True when the server estimated the figure, because the provider has no endpoint that counts."""
    upper_bound: int | None
    """Beside an estimate: what the text comes to if every byte of it is a token."""
    uncounted_media: tuple[str, ...]
    """Beside an estimate: kinds of media that are in neither figure."""
    model_asked: str
    """The model as the caller asked for it."""
    target: str
    """The provider instance that counted, or that would be asked."""
    call_id: str
    """The call id of the request; the call itself may have the same one."""
    provider_request_id: str
    """The provider's id of the request; empty with an estimate."""
    proto: token_count_pb2.TokenCount = field(repr=False, compare=False)
    """The message as it came."""


@dataclass(frozen=True)
class Embeddings:
    """The vectors of a batch, with their bill."""

    vectors: tuple[array[float], ...] = field(repr=False, hash=False)
    """One vector for each input, in the order of the inputs: arrays of 32-bit floats, which numpy reads as they are."""
    dimensions: int
    """Components of each vector."""
    revision: str
    """Names everything known to change the vectors. Keep it beside stored ones; compare those of one revision only."""
    usage: Usage
    """What the batch consumed; every counter is None when the provider never told."""
    certainty: Certainty
    """How far `usage` can be trusted."""
    cost: Cost | None
    """What it costs; None when the model has no price or the usage is unknown."""
    model_asked: str
    """The model as the caller asked for it."""
    model_served: str
    """The model that the provider says served the call."""
    target: str
    """The provider instance that answered."""
    provider_response_id: str
    """The provider's id of the answer."""
    provider_request_id: str
    """The provider's id of the request."""
    attempts: tuple[Attempt, ...]
    """The provider requests of the call, at most 8, the last one being the one that answered."""
    attempts_total: int
    """How many provider requests the call made."""
    sensitivity: Sensitivity
    """How confidential the vectors are."""
    call_id: str
    """The call's id."""
    replayed: bool
    """True when the answer came from the journal or was shared; nothing new was bought."""
    settled: bool
    """True when the bill is durably booked."""
    timings: Timings
    """Where the time went; there is no first token."""
    passed_over: tuple[PassedOver, ...]
    """The targets that were passed over, at most 8."""
    proto: embedding_pb2.Embeddings = field(repr=False, compare=False)
    """The message as it came."""
