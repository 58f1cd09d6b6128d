"""What the Converse API can do, and how its families of models are told to think."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.requests import ReasoningEffort
from modelmeter_server.drivers.cache_marks import CACHE_POINT

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec

CAPABILITIES = Capabilities(
    media=("image", "audio", "document"),
    sampling=("temperature", "top_p", "stop_sequences"),
    cache_marks=CACHE_POINT,
)
"""Without a declared dialect a model takes no reasoning effort: the API has no field that means the same to all."""


def _nova(effort: ReasoningEffort) -> dict[str, Any]:
    if effort is ReasoningEffort.NONE:
        config = {"type": "disabled"}
    else:
        config = {"type": "enabled", "maxReasoningEffort": effort.value}
    return {"additionalModelRequestFields": {"reasoningConfig": config}}


def _claude(effort: ReasoningEffort) -> dict[str, Any]:
    return {
        "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
        "outputConfig": {"effort": effort.value},
    }


class ReasoningDialect(msgspec.Struct, frozen=True):
    """How one family of models is told to think."""

    fields: Callable[[ReasoningEffort], dict[str, Any]]
    """Turn an effort into members of the body."""
    efforts: tuple[ReasoningEffort, ...]
    thinks_with_forced_tool: bool


REASONING_DIALECTS: Final[Mapping[str, ReasoningDialect]] = {
    # Adaptive thinking cannot be switched off, and it has no name for minimal.
    "claude": ReasoningDialect(
        _claude,
        (
            ReasoningEffort.LOW,
            ReasoningEffort.MEDIUM,
            ReasoningEffort.HIGH,
            ReasoningEffort.XHIGH,
            ReasoningEffort.MAX,
        ),
        thinks_with_forced_tool=False,
    ),
    "nova": ReasoningDialect(
        _nova,
        (ReasoningEffort.NONE, ReasoningEffort.LOW, ReasoningEffort.MEDIUM, ReasoningEffort.HIGH),
        thinks_with_forced_tool=True,
    ),
}
"""What a model's `reasoning_dialect` may name."""


def capabilities_of(dialect: str | None) -> Capabilities:
    """Return what a model of this dialect can do."""
    if dialect is None:
        return CAPABILITIES
    return msgspec.structs.replace(CAPABILITIES, reasoning_efforts=REASONING_DIALECTS[dialect].efforts)


def dialect_of(model: ModelSpec) -> ReasoningDialect | None:
    """Return the dialect that a model was declared to have."""
    return None if model.reasoning_dialect is None else REASONING_DIALECTS[model.reasoning_dialect]
