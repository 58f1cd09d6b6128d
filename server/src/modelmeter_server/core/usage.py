"""What a call consumed, in buckets that mean the same for every provider.

`input_tokens` is everything the provider processed, cached tokens included; `output_tokens` is everything it
generated, reasoning included. All other counters are parts of one of the two. `None` means that nobody told the
figure; it is never the same as 0. Sums saturate at int64, so that two absurd figures never wrap to a small one.
"""

from __future__ import annotations

import msgspec

from .counters import saturating_add


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one provider answer, as far as the provider told them."""

    input_tokens: int | None = None
    """Every input token processed, cached ones included."""
    output_tokens: int | None = None
    """Every token generated, reasoning and tool arguments included."""
    cache_write_tokens: int | None = None
    """Part of the input that was written to a prompt cache."""
    cache_write_5m_tokens: int | None = None
    """Part of the cache writes kept for five minutes; a subset, priced apart."""
    cache_write_1h_tokens: int | None = None
    """Part of the cache writes kept for one hour; a subset, priced apart."""
    cache_read_tokens: int | None = None
    """Part of the input that was served from a prompt cache."""
    reasoning_tokens: int | None = None
    """Part of the output that is reasoning."""
    input_audio_tokens: int | None = None
    """Part of the input that was audio."""
    output_audio_tokens: int | None = None
    """Part of the output that is audio."""
    input_image_tokens: int | None = None
    """Part of the input that was images."""
    output_image_tokens: int | None = None
    """Part of the output that is images."""
    tool_prompt_tokens: int | None = None
    """Part of the input that the provider added for its own tools."""
    hosted_tool_requests: dict[str, int] = {}
    """Requests to the provider's own tools that are billed apiece, by the tool's name."""

    @property
    def is_seen(self) -> bool:
        """Say whether any counter above 0 was told, of tokens or of requests billed apiece; zeros alone are no news
        (R-U6)."""
        return bool(self.input_tokens or self.output_tokens) or any(self.hosted_tool_requests.values())

    @property
    def spend_tokens(self) -> int:
        """Add input and output, flat: what token ceilings count."""
        return saturating_add(self.input_tokens or 0, self.output_tokens or 0)

    @property
    def uncached_input_tokens(self) -> int:
        """Return the input that was neither written to nor read from a cache, at least 0."""
        cached = saturating_add(self.cache_write_tokens or 0, self.cache_read_tokens or 0)
        return max(0, (self.input_tokens or 0) - cached)


class AdditionalUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Work billed beside the top-level figures, at the price of its own model (R-U8)."""

    kind: str
    """The provider's own word for the work, such as `compaction` or `advisor_message`."""
    usage: Usage
    model: str | None = None
    """The model that did it; `None` means the model of the call."""


def with_cache_beside_input(uncached: int | None, write: int | None, read: int | None) -> int | None:
    """Return the whole input where a provider reports cached tokens beside it (Anthropic, Bedrock).

    One spelling for every path: a buffered and a streamed path with an arithmetic each drift apart.
    Returns `None` if none of the three was told.
    """
    told = [part for part in (uncached, write, read) if part is not None]
    return saturating_add(*told) if told else None


def total_spend_tokens(usage: Usage | None, additional: tuple[AdditionalUsage, ...]) -> int:
    """Add up the tokens of a call with what was billed beside it; an absent usage adds nothing."""
    return saturating_add(
        usage.spend_tokens if usage else 0, *(extra.usage.spend_tokens for extra in additional)
    )
