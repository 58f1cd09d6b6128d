"""One row for each provider kind that speaks HTTP. A new provider is an encoder, an accumulator and a row here."""

from __future__ import annotations

from modelmeter_server.core.accumulators import (
    AnthropicAccumulator,
    BedrockAccumulator,
    GeminiAccumulator,
    OpenAIResponsesAccumulator,
)

from . import anthropic, bedrock, gemini, openai_responses
from .gemini.address import VERSIONED_BASE
from .http_driver import WireFormat


def _api_key_header(key: str) -> tuple[str, str]:
    return "x-api-key", key


def _bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


WIRE_FORMATS = {
    wire.kind: wire
    for wire in (
        WireFormat(
            kind="anthropic",
            capabilities=anthropic.CAPABILITIES,
            encode=anthropic.encode,
            accumulator=AnthropicAccumulator,
            authenticate=_api_key_header,
        ),
        WireFormat(
            kind="bedrock",
            capabilities=bedrock.CAPABILITIES,
            encode=bedrock.encode,
            accumulator=BedrockAccumulator,
            authenticate=_bearer,
            authenticator=bedrock.SigV4,
        ),
        WireFormat(
            kind="gemini",
            capabilities=gemini.CAPABILITIES,
            encode=gemini.encode,
            accumulator=GeminiAccumulator,
            authenticate=gemini.authenticate,
            versioned_base=VERSIONED_BASE,
        ),
        WireFormat(
            kind="openai_responses",
            capabilities=openai_responses.CAPABILITIES,
            encode=openai_responses.encode,
            accumulator=OpenAIResponsesAccumulator,
            authenticate=_bearer,
        ),
    )
}
