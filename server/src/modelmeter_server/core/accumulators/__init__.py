"""One accumulator for each wire format: bytes in, and at any moment what is known and what it would mean.

An accumulator never reads a clock or a socket. Any chunking of the same bytes gives the same result.
"""

from .accumulator import Accumulator, Snapshot
from .anthropic import AnthropicAccumulator
from .chat_completions import ChatCompletionsAccumulator
from .deltas import coalesce
from .openai_responses import OpenAIResponsesAccumulator

__all__ = [
    "Accumulator",
    "AnthropicAccumulator",
    "ChatCompletionsAccumulator",
    "OpenAIResponsesAccumulator",
    "Snapshot",
    "coalesce",
]
