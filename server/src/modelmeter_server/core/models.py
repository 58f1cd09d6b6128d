"""What a deployment serves: one value for each model that callers may ask for."""

from __future__ import annotations

import msgspec

from .pricing import PriceTable
from .requests import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    ReasoningEffort,
    SchemaCheckPolicy,
    SchemaMode,
    Sensitivity,
)


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
    price: PriceTable | None = None
    buffered: bool = False
    """Ask the provider for one JSON body instead of a stream."""
    allow_remote_media: bool = False
    """Let the provider fetch media by URL."""
    hosted_tools: frozenset[str] = frozenset()
    """The provider's own tools that `provider_options_json` may switch on."""
    reasoning_dialect: str | None = None
    """How a model of Bedrock is told to think; without one it takes no effort."""
