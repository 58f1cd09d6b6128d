"""`POST {base}/v1beta/models/{model}:batchEmbedContents`. Pure.

Usage comes with newer models only (`usageMetadata`); without it the bill is UNKNOWN, which is not free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.accumulators.embeddings import EmbeddingForm
from modelmeter_server.core.embeddings import InputType
from modelmeter_server.core.usage_meter import told
from modelmeter_server.drivers.embedding_body import embedding, options_of, refuse_more_than, word_of
from modelmeter_server.drivers.json_body import refused

from .address import is_vertex, method_target, resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

MAX_INPUTS: Final = 100
"""Requests of one batch, as the API documents it."""

_TASKS: Final = {
    InputType.QUERY: "RETRIEVAL_QUERY",
    InputType.DOCUMENT: "RETRIEVAL_DOCUMENT",
    InputType.CLASSIFICATION: "CLASSIFICATION",
    InputType.CLUSTERING: "CLUSTERING",
    InputType.SIMILARITY: "SEMANTIC_SIMILARITY",
}
_OWNED: Final = frozenset(("model", "content", "contents", "requests", "outputdimensionality"))


def embed(request: EmbeddingRequest, model: ModelSpec, base_path: str) -> PreparedRequest:
    """Turn a checked batch into the provider's. Raises RequestRefused for what it cannot do."""
    if is_vertex(base_path):
        msg = "model"
        fix = "embeddings of Vertex AI are not supported by this server yet: use the Gemini API"
        raise refused(msg, fix)
    refuse_more_than(request, MAX_INPUTS)
    task = word_of(request, _TASKS)
    owned = _OWNED if task is None else _OWNED | {"tasktype"}
    shared: dict[str, Any] = {} if task is None else {"taskType": task}
    if request.dimensions is not None:
        shared["outputDimensionality"] = request.dimensions
    shared.update(options_of(request, owned))
    name = resource(model.provider_model)
    requests = [{"model": name, "content": {"parts": [{"text": text}]}, **shared} for text in request.inputs]
    target = method_target(model.provider_model, "batchEmbedContents")
    return embedding(request, model, _FORM, target, {"requests": requests})


def _vectors(document: Mapping[str, object]) -> list[object] | None:
    items = document.get("embeddings")
    if not isinstance(items, list):
        return None
    return [item.get("values") if isinstance(item, dict) else None for item in items]


def _usage(document: Mapping[str, object]) -> int | None:
    usage = document.get("usageMetadata")
    figures = told(usage, "promptTokenCount", "totalTokenCount") if isinstance(usage, dict) else {}
    return figures.get("promptTokenCount", figures.get("totalTokenCount"))


_FORM: Final = EmbeddingForm(vectors=_vectors, usage=_usage, model="modelVersion", id="responseId")
