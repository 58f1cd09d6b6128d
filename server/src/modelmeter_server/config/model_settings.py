"""What a deployment is told of the models that callers may ask for, and how each becomes one of the engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.call_limits import CallLimits
from modelmeter_server.core.models import Capabilities, ModelSpec, OnCancel, Strategy, Task
from modelmeter_server.core.pricing import PriceTable
from modelmeter_server.core.requests import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    SchemaCheckPolicy,
    SchemaMode,
    Sensitivity,
)
from modelmeter_server.core.reservation import MAX_TOKENS_PER_SECOND
from modelmeter_server.core.retry_policy import ONCE, RetryPolicy
from modelmeter_server.core.routed_models import routed_model
from modelmeter_server.drivers.bedrock import capabilities_of

if TYPE_CHECKING:
    from collections.abc import Callable


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that callers may ask for by its alias."""

    name: str
    """The alias."""
    provider: str
    """Name of a provider instance."""
    model: str
    """The model in the provider's own spelling."""
    schema_mode: SchemaMode = SchemaMode.NATIVE
    schema_check: SchemaCheckPolicy = SchemaCheckPolicy.AUTO
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    buffered: bool = False
    """Ask the provider for one JSON body instead of a stream."""
    allow_remote_media: bool = False
    """Let the provider fetch media by URL."""
    hosted_tools: frozenset[str] = frozenset()
    """The provider's own tools that `provider_options_json` may switch on."""
    service_tier: str | None = None
    """The tier that calls ask for, in the provider's own word."""
    reasoning_dialect: str | None = None
    """For a model of `bedrock`: one of its `REASONING_DIALECTS`."""
    price: PriceTable | None = None
    limits: CallLimits = CallLimits()
    """What it may have under way and per minute, all callers together."""
    task: Task = Task.COMPLETION
    embedding_dialect: str | None = None
    """For an embedding model of `bedrock`: one of its `EMBEDDING_DIALECTS`."""
    identity: str = ""
    """What the model is, for the digests of requests; empty for `KIND/MODEL`."""
    reserve_factor: int | None = None
    """How much more input is reserved than the prompt takes; `None`: 1, or 20 with hosted tools."""
    max_tokens_per_second: int = MAX_TOKENS_PER_SECOND
    """How fast it generates at most: what bounds a call that ended in the dark."""
    abort_stops_billing: bool = True
    """Whether the provider bills no more once its connection is closed."""
    clamp_output: int | None = None
    """Cut the output to what ceilings leave, down to this many tokens; `None` refuses the call."""
    on_cancel: OnCancel = OnCancel.ABORT
    drain_seconds: float = 30.0
    """How long a request is read on after its last caller has left."""
    drain_bytes: int = 4 * 1024 * 1024
    """How much more of its answer is read."""
    recoverable: bool = False
    """Let the provider keep the answer, so that its bill can be asked for later."""
    max_sensitivity: Sensitivity = Sensitivity.PUBLIC
    """The most confidential prompt that the model may see."""
    output_sensitivity: Sensitivity | None = None
    """How confidential its answers are at least; `None`: as `max_sensitivity`."""
    retry: RetryPolicy = ONCE
    """How often a call asks the provider."""

    def spec(self, provider_kind: str, capabilities: Capabilities) -> ModelSpec:
        """Return the model as the engine knows it, once its driver has said what it can do."""
        if self.reasoning_dialect is not None:
            capabilities = capabilities_of(self.reasoning_dialect)
        return ModelSpec(
            name=self.name,
            provider=self.provider,
            provider_kind=provider_kind,
            provider_model=self.model,
            capabilities=capabilities,
            schema_mode=self.schema_mode,
            schema_check=self.schema_check,
            max_output_tokens=self.max_output_tokens,
            price=self.price,
            buffered=self.buffered,
            allow_remote_media=self.allow_remote_media,
            hosted_tools=self.hosted_tools,
            service_tier=self.service_tier,
            reasoning_dialect=self.reasoning_dialect,
            task=self.task,
            embedding_dialect=self.embedding_dialect,
            declared_identity=self.identity,
            declared_reserve_factor=self.reserve_factor,
            max_tokens_per_second=self.max_tokens_per_second,
            abort_stops_billing=self.abort_stops_billing,
            clamp_output=self.clamp_output,
            on_cancel=self.on_cancel,
            drain_seconds=self.drain_seconds,
            drain_bytes=self.drain_bytes,
            recoverable=self.recoverable,
            max_sensitivity=self.max_sensitivity,
            output_sensitivity=self.output_sensitivity,
            retry=self.retry,
        )


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One place that a model's calls may be sent to."""

    model: ModelSettings
    """What is asked there: another model of the file, or the section itself at one provider."""
    weight: int = 1


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model with targets."""

    name: str
    """The alias."""
    targets: tuple[TargetSettings, ...]
    """In the order of the file."""
    strategy: Strategy = Strategy.ORDERED
    sticky_runs: bool = False
    """Keep the calls of a run at one target."""
    identity: str = ""
    """What the model is, for the digests of requests; empty for what its targets are, if all are the same."""
    retry: RetryPolicy = ONCE
    """How often a call asks, all targets together."""

    def spec(self, spec_of: Callable[[ModelSettings], ModelSpec]) -> ModelSpec:
        """Return the model as the engine knows it; `spec_of` returns a target's own."""
        return routed_model(
            self.name,
            [(spec_of(each.model), each.weight) for each in self.targets],
            strategy=self.strategy,
            sticky_runs=self.sticky_runs,
            identity=self.identity,
            retry=self.retry,
        )
