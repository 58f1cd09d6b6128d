"""What a server that speaks Chat Completions can do, by its dialect."""

from __future__ import annotations

from modelmeter_server.core.dialects import OPENAI, Dialect, schema_modes
from modelmeter_server.core.models import Capabilities


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
    )


CAPABILITIES = capabilities(OPENAI)
"""Of the plain dialect."""
