"""What a stream yields: how an answer grows, and at last the answer itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .enums import Certainty
from .results import AdditionalUsage, Completion, Usage


@dataclass(frozen=True)
class Started:
    """The request has been sent to the provider. First, and at most once."""

    call_id: str
    """The call's id."""
    model_asked: str
    """The model as the caller asked for it."""
    target: str
    """The provider instance that was asked."""


@dataclass(frozen=True)
class TextDelta:
    """More of the answer's text."""

    text: str
    """The text to append."""
    sequence: int = 0
    """Position in the stream of the call, the same for everyone who reads it; see `from_sequence` of `stream`."""


@dataclass(frozen=True)
class ReasoningDelta:
    """More of the model's reasoning. It is billed and is no part of the answer."""

    text: str
    """The text to append."""
    sequence: int = 0
    """Position in the stream of the call, the same for everyone who reads it; see `from_sequence` of `stream`."""


@dataclass(frozen=True)
class ToolCallDelta:
    """More of one tool call."""

    index: int
    """Position of the call in `Completion.tool_calls`, from 0."""
    id: str
    """The provider's id of the call; set in the first delta of the call."""
    name: str
    """The tool's name; set in the first delta of the call."""
    arguments_json: str
    """Argument text to append."""
    sequence: int = 0
    """Position in the stream of the call, the same for everyone who reads it; see `from_sequence` of `stream`."""


@dataclass(frozen=True)
class UsageSnapshot:
    """What the provider has told about usage so far. Each snapshot replaces the one before."""

    usage: Usage
    """The figures so far."""
    additional_usage: tuple[AdditionalUsage, ...]
    """What was billed beside them so far."""
    certainty: Certainty
    """AT_LEAST until the provider's stop reason, EXACT with it."""


StreamEvent: TypeAlias = Started | TextDelta | ReasoningDelta | ToolCallDelta | UsageSnapshot | Completion
"""One event of a stream; the last one of a good stream is the `Completion`."""
