"""The kinds of providers, and what a provider of each kind has to be told."""

from __future__ import annotations

import msgspec

from modelmeter_server.core.dialects import OPENAI


class ProviderKind(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every provider instance of one kind."""

    name: str
    base_url: str = ""
    """Used when the instance names none; empty for a kind that has no network."""
    key_example: str = ""
    """An environment variable for the key, as messages suggest it; empty for a kind that has no key."""
    is_regional: bool = False
    """The instance names a region, which its base URL holds; without a key its requests are signed for it."""
    has_dialects: bool = False
    """Whether servers of this kind differ, as `dialect` tells."""


BEDROCK = "bedrock"
OPENAI_RESPONSES = "openai_responses"

REPLAY = ProviderKind(name="replay")

SUPPORTED = {
    kind.name: kind
    for kind in (
        ProviderKind(name="anthropic", base_url="https://api.anthropic.com", key_example="ANTHROPIC_API_KEY"),
        ProviderKind(
            name=BEDROCK,
            base_url="https://bedrock-runtime.{region}.amazonaws.com",
            key_example="AWS_BEARER_TOKEN_BEDROCK",
            is_regional=True,
        ),
        ProviderKind(
            name="chat_completions",
            base_url=OPENAI.base_url,
            key_example="OPENAI_API_KEY",
            has_dialects=True,
        ),
        ProviderKind(
            name="gemini",
            base_url="https://generativelanguage.googleapis.com",
            key_example="GEMINI_API_KEY",
        ),
        ProviderKind(
            name=OPENAI_RESPONSES, base_url="https://api.openai.com/v1", key_example="OPENAI_API_KEY"
        ),
        REPLAY,
    )
}
