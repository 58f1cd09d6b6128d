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


_VERTEX: Final = re.compile(r".*(/publishers/[^/]+|/locations/[^/]+)")


def is_vertex(base_path: str) -> bool:
    """Tell Vertex AI from the Gemini API by the base path: a few of its methods differ."""
    return _VERTEX.fullmatch(base_path) is not None


def target(model: str, *, buffered: bool) -> str:
    """Return path and query of a model. Raises RequestRefused for a name that would lead elsewhere."""
    return method_target(model, "generateContent" if buffered else "streamGenerateContent?alt=sse")


def method_target(model: str, method: str) -> str:
    """Return the path of a model's method. Raises RequestRefused for a name that would lead elsewhere."""
    segments = resource(model).split("/")
    if any(not segment.strip(".") for segment in segments):
        msg = "model"
        raise refused(msg, "is no name of a model at this provider")
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"{VERSION}/{path}:{method}"


def resource(model: str) -> str:
    """Return the resource name: `tunedModels/x` and Vertex's `endpoints/x` are some, a bare name is a model."""
    return model if "/" in model else f"models/{model}"
