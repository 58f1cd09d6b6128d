"""One accumulator for each wire format: bytes in, and at any moment what is known and what it would mean.

An accumulator never reads a clock or a socket. Any chunking of the same bytes gives the same result.
"""

from .accumulator import Accumulator, Snapshot
from .anthropic import AnthropicAccumulator
from .bedrock import BedrockAccumulator
from .chat_completions import ChatCompletionsAccumulator
from .deltas import coalesce
from .gemini import GeminiAccumulator
from .openai_responses import OpenAIResponsesAccumulator

__all__ = [
    "Accumulator",
    "AnthropicAccumulator",
    "BedrockAccumulator",
    "ChatCompletionsAccumulator",
    "GeminiAccumulator",
    "OpenAIResponsesAccumulator",
    "Snapshot",
    "coalesce",
]
