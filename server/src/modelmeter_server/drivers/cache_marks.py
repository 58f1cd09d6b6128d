"""The mark of what a provider is to cache, as each API writes it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.cache_marks import ASSISTANT_TEXT, SYSTEM, TOOLS
from modelmeter_server.core.models import CacheMarks

if TYPE_CHECKING:
    from modelmeter_server.core.requests import CacheBreakpoint

_NAMES: Final = {300: "5m", 1_800: "30m", 3_600: "1h", 43_200: "12h"}
_TEXTS: Final = (SYSTEM, "text", ASSISTANT_TEXT)

EPHEMERAL: Final = CacheMarks(
    places=(TOOLS, *_TEXTS, "image", "document", "tool_call", "tool_result"),
    lifetimes=(300, 3_600),
    longest_first=True,
)
"""Of Anthropic's `cache_control`."""

EPHEMERAL_TEXTS: Final = CacheMarks(places=_TEXTS, lifetimes=(300, 3_600), longest_first=True)
"""Of `cache_control` as OpenRouter takes it: in parts of text alone."""

CACHE_POINT: Final = CacheMarks(
    places=(TOOLS, *_TEXTS, "image", "audio", "document", "tool_call", "tool_result"),
    lifetimes=(300, 3_600),
    longest_first=True,
)
"""Of Bedrock's `cachePoint`."""

EXPLICIT: Final = CacheMarks(places=("text", "image", "document", "tool_result"), lifetimes=(1_800, 43_200))
"""Of `prompt_cache_breakpoint` in the Responses API, whose instructions and tools are no parts."""

EXPLICIT_CHAT: Final = CacheMarks(
    places=(*_TEXTS, "image", "audio", "document", "tool_result"), lifetimes=(1_800, 43_200)
)
"""Of `prompt_cache_breakpoint` in Chat Completions."""


def ephemeral(mark: CacheBreakpoint | None) -> dict[str, Any]:
    """Return the member that marks a block: `{"cache_control": {"type": "ephemeral"}}`; nothing without a mark."""
    return {} if mark is None else {"cache_control": {"type": "ephemeral", **_ttl(mark)}}


def explicit(mark: CacheBreakpoint | None) -> dict[str, Any]:
    """Return the member that marks a part: `{"prompt_cache_breakpoint": {"mode": "explicit"}}`."""
    return {} if mark is None else {"prompt_cache_breakpoint": {"mode": "explicit", **_ttl(mark)}}


def cache_point(mark: CacheBreakpoint | None) -> list[dict[str, Any]]:
    """Return the block that follows a marked one: `{"cachePoint": {"type": "default"}}`; none without a mark."""
    return [] if mark is None else [{"cachePoint": {"type": "default", **_ttl(mark)}}]


def _ttl(mark: CacheBreakpoint) -> dict[str, str]:
    return {} if mark.seconds is None else {"ttl": _NAMES[int(mark.seconds)]}
