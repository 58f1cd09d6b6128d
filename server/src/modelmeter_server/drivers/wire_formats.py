"""One row for each provider kind that speaks HTTP. A new provider is an encoder, an accumulator and a row here."""

from __future__ import annotations

from functools import partial

from modelmeter_server.core.accumulators import (
    AnthropicAccumulator,
    BedrockAccumulator,
    ChatCompletionsAccumulator,
    GeminiAccumulator,
    OpenAIResponsesAccumulator,
)
from modelmeter_server.core.dialects import OPENAI, Dialect

from . import anthropic, bedrock, chat_completions, gemini, openai_embeddings, openai_responses
from .authentication import key_header
from .gemini.address import VERSION, VERSIONED_BASE
from .http_driver import WireFormat


def chat_completions_format(dialect: Dialect) -> WireFormat:
    """Return the row of a server that speaks Chat Completions in this dialect."""
    return WireFormat(
        kind="chat_completions",
        capabilities=chat_completions.capabilities(dialect),
        encode=partial(chat_completions.encode, dialect=dialect),
        accumulator=partial(ChatCompletionsAccumulator, dialect=dialect),
        authenticate=key_header(dialect.auth_header),
        reconciler=chat_completions.reconciler(dialect),
        count=chat_completions.count,
        embed=partial(openai_embeddings.embed, target=openai_embeddings.target_of(dialect)),
    )


WIRE_FORMATS = {
    wire.kind: wire
    for wire in (
        WireFormat(
            kind="anthropic",
            capabilities=anthropic.CAPABILITIES,
            encode=anthropic.encode,
            accumulator=AnthropicAccumulator,
            authenticate=key_header("x-api-key"),
            count=anthropic.count,
        ),
        WireFormat(
            kind="bedrock",
            capabilities=bedrock.CAPABILITIES,
            encode=bedrock.encode,
            accumulator=BedrockAccumulator,
            authenticate=key_header("authorization"),
            authenticator=bedrock.SigV4,
            count=bedrock.count,
            embed=bedrock.embed,
        ),
        chat_completions_format(OPENAI),
        WireFormat(
            kind="gemini",
            capabilities=gemini.CAPABILITIES,
            encode=gemini.encode,
            accumulator=GeminiAccumulator,
            authenticate=gemini.authenticate,
            count=gemini.count,
            embed=gemini.embed,
            version=VERSION,
            versioned_base=VERSIONED_BASE,
        ),
        WireFormat(
            kind="openai_responses",
            capabilities=openai_responses.CAPABILITIES,
            encode=openai_responses.encode,
            accumulator=OpenAIResponsesAccumulator,
            authenticate=key_header("authorization"),
            link=openai_responses.WebSocketLink,
            reconciler=openai_responses.RECONCILER,
            count=openai_responses.count,
            embed=openai_embeddings.embed,
        ),
    )
}
"""By kind; of `chat_completions` the plain dialect."""


def wire_format(kind: str, dialect: Dialect | None = None) -> WireFormat:
    """Return the row of a provider kind; only `chat_completions` has dialects."""
    return WIRE_FORMATS[kind] if dialect is None else chat_completions_format(dialect)
