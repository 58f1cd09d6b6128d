"""The kinds of providers, and what a provider of each kind has to be told."""

from __future__ import annotations

import msgspec

from modelmeter_server.core.dialects import OPENAI
from modelmeter_server.drivers.plugin import DriverPlugin


class ProviderKind(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every provider instance of one kind."""

    name: str
    base_url: str = ""
    """Used when the instance names none; empty for a kind that has none in common, or no network."""
    key_example: str = ""
    """An environment variable for the key, as messages suggest it; empty for a kind that has no key."""
    is_regional: bool = False
    """The instance names a region, which its base URL holds; without a key its requests are signed for it."""
    has_embeddings: bool = True
    """Whether its provider turns texts into vectors."""
    has_dialects: bool = False
    """Whether servers of this kind differ, as `dialect` tells."""
    has_sockets: bool = False
    """Whether its provider keeps the turns of a session on one WebSocket."""
    credentials: tuple[str, ...] = ()
    """What `credentials` may name in place of a key."""
    plugin: DriverPlugin | None = None
    """The driver of another distribution; `None` for a kind of this one."""

    @property
    def is_remote(self) -> bool:
        """Say whether instances have an address."""
        return bool(self.base_url) or self.plugin is not None


BEDROCK = "bedrock"
OPENAI_RESPONSES = "openai_responses"

GOOGLE = "google"
"""Access tokens of Google: Vertex AI takes them in Gemini's format and in that of Chat Completions."""

REPLAY = ProviderKind(name="replay")

SUPPORTED = {
    kind.name: kind
    for kind in (
        ProviderKind(
            name="anthropic",
            base_url="https://api.anthropic.com",
            key_example="ANTHROPIC_API_KEY",
            has_embeddings=False,
        ),
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
            credentials=(GOOGLE,),
        ),
        ProviderKind(
            name="gemini",
            base_url="https://generativelanguage.googleapis.com",
            key_example="GEMINI_API_KEY",
            credentials=(GOOGLE,),
        ),
        ProviderKind(
            name=OPENAI_RESPONSES,
            has_sockets=True,
            base_url="https://api.openai.com/v1",
            key_example="OPENAI_API_KEY",
        ),
        REPLAY,
    )
}
"""The kinds of this distribution."""


def foreign_kind(plugin: DriverPlugin) -> ProviderKind:
    """Return the kind that a driver of another distribution brings."""
    return ProviderKind(
        name=plugin.kind, base_url=plugin.base_url, key_example=plugin.key_example, plugin=plugin
    )
