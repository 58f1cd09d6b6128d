"""One row for each provider kind that speaks HTTP. A new provider is an encoder, an accumulator and a row here."""

from __future__ import annotations

from functools import partial

from modelmeter_server.core.accumulators import (
    AnthropicAccumulator,
    ChatCompletionsAccumulator,
    OpenAIResponsesAccumulator,
)
from modelmeter_server.core.dialects import OPENAI, Dialect

from . import anthropic, chat_completions, openai_responses
from .http_driver import WireFormat


def _api_key_header(key: str) -> tuple[str, str]:
    return "x-api-key", key


def _bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


def _header(name: str, key: str) -> tuple[str, str]:
    return _bearer(key) if name == "authorization" else (name, key)


def chat_completions_format(dialect: Dialect) -> WireFormat:
    """Return the row of a server that speaks Chat Completions in this dialect."""
    return WireFormat(
        kind="chat_completions",
        capabilities=chat_completions.capabilities(dialect),
        encode=partial(chat_completions.encode, dialect=dialect),
        accumulator=partial(ChatCompletionsAccumulator, dialect=dialect),
        authenticate=partial(_header, dialect.auth_header),
    )


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
        chat_completions_format(OPENAI),
        WireFormat(
            kind="openai_responses",
            capabilities=openai_responses.CAPABILITIES,
            encode=openai_responses.encode,
            accumulator=OpenAIResponsesAccumulator,
            authenticate=_bearer,
        ),
    )
}
"""By kind; of `chat_completions` the plain dialect."""


def wire_format(kind: str, dialect: Dialect | None = None) -> WireFormat:
    """Return the row of a provider kind; only `chat_completions` has dialects."""
    return WIRE_FORMATS[kind] if dialect is None else chat_completions_format(dialect)
