"""The address of a model: `/v1beta/models/{model}:streamGenerateContent?alt=sse` below the base URL.

Vertex AI is a base URL that ends with `/publishers/google`; it says the version itself, like one that ends with
`/v1beta`, and the driver that joins the two does not repeat it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from modelmeter_server.drivers.json_body import refused

VERSION: Final = "/v1beta"

VERSIONED_BASE: Final = re.compile(r".*(/v1(alpha|beta)?\d*|/publishers/[^/]+|/locations/[^/]+)")
"""Base paths that name the API's version already."""


def target(model: str, *, buffered: bool) -> str:
    """Return path and query of a model. Raises RequestRefused for a name that would lead elsewhere."""
    # `models/x`, `tunedModels/x` and Vertex's `endpoints/x` are resource names; anything else is a model.
    segments = model.split("/") if "/" in model else ["models", model]
    if any(not segment.strip(".") for segment in segments):
        msg = "model"
        raise refused(msg, "is no name of a model at this provider")
    path = "/".join(quote(segment, safe="") for segment in segments)
    method = "generateContent" if buffered else "streamGenerateContent?alt=sse"
    return f"{VERSION}/{path}:{method}"
