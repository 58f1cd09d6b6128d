"""What a server that speaks Chat Completions can do, by its dialect."""

from __future__ import annotations

from modelmeter_server.core.dialects import OPENAI, Dialect, schema_modes
from modelmeter_server.core.models import CacheMarks, Capabilities
from modelmeter_server.drivers.cache_marks import EPHEMERAL_TEXTS, EXPLICIT_CHAT

_CACHE_MARKS = {"prompt_cache_breakpoint": EXPLICIT_CHAT, "cache_control": EPHEMERAL_TEXTS}


def capabilities(dialect: Dialect) -> Capabilities:
    """Return what a server of this dialect can do.

    No dialect is trusted to hold an answer to its schema: compatible servers ignore `response_format` silently, and
    nothing in their answer tells.
    """
    return Capabilities(
        schema_modes=schema_modes(dialect),
        enforces_native_schema=False,
        tools_with_schema=dialect.tools_with_schema,
        media=dialect.media,
        reasoning_efforts=dialect.reasoning_efforts,
        sampling=dialect.sampling,
        cache_marks=_CACHE_MARKS.get(dialect.cache_marks, CacheMarks()),
        end_user_id=0 if dialect.end_user_field == "none" else 128,
    )


CAPABILITIES = capabilities(OPENAI)
"""Of the plain dialect."""
