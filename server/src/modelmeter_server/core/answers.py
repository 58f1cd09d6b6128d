"""A completion in this service's own terms, its pieces as they arrive, and what an answer is held to."""

from __future__ import annotations

from enum import Enum, unique
from typing import Protocol

import msgspec

from .hosted import HostedTool
from .outcomes import Certainty
from .pricing import Cost
from .requests import Continuation
from .usage import AdditionalUsage, Usage


@unique
class Finish(Enum):
    """Why a model stopped, in one vocabulary for all providers."""

    STOP = "STOP"
    TOOL_CALLS = "TOOL_CALLS"
    LENGTH = "LENGTH"
    CONTINUE = "CONTINUE"
    UNRECOGNIZED = "UNRECOGNIZED"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of the caller's tools."""

    id: str
    name: str
    arguments_json: str
    """Argument text exactly as generated; `{}` when the model gave none."""
    free_text: bool = False
    """The tool takes text: never parsed (R-T4)."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole, usable answer with its bill."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    additional_usage: tuple[AdditionalUsage, ...] = ()
    certainty: Certainty = Certainty.UNKNOWN
    cost: Cost | None = None
    """As the provider reported it; the price table fills it in otherwise."""
    stop_reason: str = ""
    """The provider's own word, untouched."""
    finish: Finish = Finish.STOP
    truncated: bool = False
    structured_json: str | None = None
    model_served: str | None = None
    provider_response_id: str | None = None
    provider_request_id: str | None = None
    hosted_tools: tuple[HostedTool, ...] = ()
    continuation: Continuation | None = None
    service_tier: str | None = None
    price_factor: str | None = None
    """What else the provider says changes the price; no price table knows it, so that the cost is a lower bound."""
    estimated_output_tokens: int | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of the model's reasoning; billed, and no part of the answer (R-X5)."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More of one tool call; id and name stand in the first piece of the call."""

    index: int
    """Position in `Answer.tool_calls`."""
    id: str = ""
    name: str = ""
    arguments_json: str = ""


Delta = TextDelta | ReasoningDelta | ToolCallDelta


class SchemaCheck(Protocol):
    """Check a document against a schema that compiled before; never fetches anything."""

    def __call__(self, document: object) -> str | None:
        """Return what is wrong with the document, or `None`. Never quotes the document."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is held to."""

    schema_check: SchemaCheck | None = None
    """Present when the answer must satisfy a schema."""
    forced_tool: bool = False
    """The answer is the arguments of the forced tool, never text."""
    enforce: bool = True
    """Check the document, not only that it parses."""
    may_be_empty: bool = False
    """Nothing was to be generated, so that an empty answer is one."""


FREE_TEXT = Expectation()
