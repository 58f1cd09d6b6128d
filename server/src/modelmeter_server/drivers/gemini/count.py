"""`POST {base}/v1beta/models/{model}:countTokens`. Pure.

The Gemini API takes the whole request, Vertex AI its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.drivers.count_body import counting, members_of, reader_of

from .address import is_vertex, method_target, resource

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

_VERTEX_TAKES: Final = frozenset(("contents", "systemInstruction", "tools", "generationConfig"))


def count(prepared: PreparedRequest, model: ModelSpec, base_path: str) -> PreparedRequest:
    """Turn a prepared completion into the request that counts its input."""
    members = members_of(prepared.body)
    body: object
    if is_vertex(base_path):
        body = {name: raw for name, raw in members.items() if name in _VERTEX_TAKES}
    else:
        body = {"generateContentRequest": {"model": resource(model.provider_model), **members}}
    target = method_target(model.provider_model, "countTokens")
    return counting(prepared, target, msgspec.json.encode(body), reader_of("totalTokens"))
