"""What a deployment serves: one value for each model that callers may ask for."""

from __future__ import annotations

from enum import Enum, unique

import msgspec

from .pricing import PriceTable
from .requests import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    ReasoningEffort,
    SchemaCheckPolicy,
    SchemaMode,
    Sensitivity,
)
from .reservation import MAX_TOKENS_PER_SECOND
from .retry_policy import ONCE, RetryPolicy

HOSTED_TOOLS_FACTOR = 20
"""How much more input than its prompt a model with hosted tools may process: pages that it reads are input as well."""


@unique
class OnCancel(Enum):
    """What becomes of a provider request whose last caller has left."""

    ABORT = "abort"
    """Its connection is closed at once."""
    DRAIN = "drain"
    """It is read on within bounds, so that its bill is told."""


class CacheMarks(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider lets the end of what it is to cache be marked."""

    places: tuple[str, ...] = ()
    """Of `cache_marks.PLACES`; none for a provider that cannot be told."""
    lifetimes: tuple[int, ...] = ()
    """Seconds that can be asked for."""
    longest_first: bool = False
    """No mark may be kept longer than one before it; without a time it is kept for the shortest."""


@unique
class Task(Enum):
    """What a model is for."""

    COMPLETION = "completion"
    EMBEDDING = "embedding"


@unique
class Strategy(Enum):
    """How a target is chosen for a call."""

    ORDERED = "ordered"
    """The first one that is free."""
    WEIGHTED = "weighted"
    """Each one for its share of the calls."""
    LEAST_LOADED = "least_loaded"
    """The one with the fewest calls under way, by its weight."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider kind can do; a request beyond it is refused before dispatch."""

    schema_modes: tuple[SchemaMode, ...] = (SchemaMode.NATIVE, SchemaMode.FORCED_TOOL)
    enforces_native_schema: bool = True
    """Whether the provider constrains generation by the schema, so that `auto` need only parse."""
    tools: bool = True
    tools_with_schema: bool = True
    media: tuple[str, ...] = ()
    """Kinds of media that prompts may hold: image, audio, document."""
    reasoning_efforts: tuple[ReasoningEffort, ...] = ()
    sampling: tuple[str, ...] = ()
    """Sampling fields of the request that the provider takes."""
    cache_marks: CacheMarks = CacheMarks()
    end_user_id: int = 0
    """Most characters of the id of an end user; 0 for a provider that has no field for it."""

    @property
    def default_schema_mode(self) -> SchemaMode:
        """Return the mode of a model that nobody configured: native where there is one."""
        is_native = SchemaMode.NATIVE in self.schema_modes or not self.schema_modes
        return SchemaMode.NATIVE if is_native else self.schema_modes[0]


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One model as configured: who serves it, under which name, with which limits and prices."""

    name: str
    """What callers ask for: an alias, or `provider/model`."""
    provider: str
    """The provider instance, as configured."""
    provider_kind: str
    provider_model: str
    """The model in the provider's own spelling."""
    capabilities: Capabilities = Capabilities()
    schema_mode: SchemaMode = SchemaMode.NATIVE
    schema_check: SchemaCheckPolicy = SchemaCheckPolicy.AUTO
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    max_sensitivity: Sensitivity = Sensitivity.PUBLIC
    """The most confidential prompt that it may see."""
    output_sensitivity: Sensitivity | None = None
    """How confidential an answer is at least; `None`: as confidential as the most confidential prompt may be."""
    price: PriceTable | None = None
    buffered: bool = False
    """Ask the provider for one JSON body instead of a stream."""
    allow_remote_media: bool = False
    """Let the provider fetch media by URL."""
    hosted_tools: frozenset[str] = frozenset()
    """The provider's own tools that `provider_options_json` may switch on."""
    service_tier: str | None = None
    """The tier that calls ask for, in the provider's own word; `None` leaves it to the provider."""
    reasoning_dialect: str | None = None
    """How a model of Bedrock is told to think; without one it takes no effort."""
    task: Task | None = Task.COMPLETION
    """`None`: nobody declared it, and it is asked for whatever the call asks."""
    embedding_dialect: str | None = None
    """How an embedding model of Bedrock is asked."""
    declared_identity: str = ""
    """What the model is, for the digests of requests; empty for `KIND/PROVIDER_MODEL`."""
    declared_reserve_factor: int | None = None
    """How much more input is reserved than the prompt takes; `None`: 1, or `HOSTED_TOOLS_FACTOR` with hosted tools."""
    max_tokens_per_second: int = MAX_TOKENS_PER_SECOND
    """How fast it generates at most."""
    abort_stops_billing: bool = True
    """Whether the provider bills no more once its connection is closed."""
    clamp_output: int | None = None
    """Cut a call's output to what its ceilings leave, down to this many tokens; `None` refuses the call."""
    on_cancel: OnCancel = OnCancel.ABORT
    drain_seconds: float = 30.0
    """How long a request is read on after its last caller has left."""
    drain_bytes: int = 4 * 1024 * 1024
    """How much more of its answer is read."""
    recoverable: bool = False
    """Let the provider keep the answer, so that its bill can be asked for later."""
    retry: RetryPolicy = ONCE
    """How often a call asks the provider; calls may ask for less."""
    route: RouteSpec | None = None
    """What its calls may be sent to, for a model with targets; it has no provider of its own then."""
    target: str = ""
    """As a target: what callers are told as its name. `INSTANCE/PROVIDER_MODEL`."""

    @property
    def places(self) -> list[ModelSpec]:
        """Return what a call of it may be sent to: its targets, or the model itself."""
        return [self] if self.route is None else [each.model for each in self.route.targets]

    @property
    def target_name(self) -> str:
        """Return what is told of where a call was sent: the target's name, else the provider instance."""
        return self.target or self.provider

    @property
    def identity(self) -> str:
        """Return what the model is, however callers call it."""
        return self.declared_identity or f"{self.provider_kind}/{self.provider_model}"

    @property
    def reserve_factor(self) -> int:
        """Return how much more input is reserved than the prompt takes."""
        if self.declared_reserve_factor is not None:
            return self.declared_reserve_factor
        return HOSTED_TOOLS_FACTOR if self.hosted_tools else 1

    def answer_sensitivity(self, prompt: Sensitivity) -> Sensitivity:
        """Return how confidential an answer to such a prompt is."""
        floor = self.max_sensitivity if self.output_sensitivity is None else self.output_sensitivity
        return max(prompt, floor)


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One of the places that a model's calls may be sent to."""

    model: ModelSpec
    """What is asked there, under the name and the identity of the model that has the target."""
    weight: int = 1

    @property
    def name(self) -> str:
        """Return its name, one of its own among all targets of a deployment."""
        return self.model.target_name


class RouteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's calls may be sent, and how one place is chosen."""

    strategy: Strategy = Strategy.ORDERED
    targets: tuple[TargetSpec, ...]
    sticky_runs: bool = False
    """Keep the calls of a run at one target when they name no affinity of their own."""
