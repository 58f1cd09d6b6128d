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
    has_dialects: bool = False
    """Whether servers of this kind differ, as `dialect` tells."""


REPLAY = ProviderKind(name="replay")

SUPPORTED = {
    kind.name: kind
    for kind in (
        ProviderKind(name="anthropic", base_url="https://api.anthropic.com", key_example="ANTHROPIC_API_KEY"),
        ProviderKind(
            name="chat_completions",
            base_url=OPENAI.base_url,
            key_example="OPENAI_API_KEY",
            has_dialects=True,
        ),
        ProviderKind(
            name="openai_responses", base_url="https://api.openai.com/v1", key_example="OPENAI_API_KEY"
        ),
        REPLAY,
    )
}

PLANNED = ("bedrock", "gemini")
"""Kinds that this version refuses by name, so that nobody looks for a misspelling."""
