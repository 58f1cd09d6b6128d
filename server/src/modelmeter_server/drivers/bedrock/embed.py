"""`POST {base}/model/{model}/invoke`, whose body is each family's own. Pure.

Which family a model is of is declared (`embedding_dialect`) and never guessed from its name: an ARN has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from modelmeter_server.core.accumulators.embeddings import EmbeddingForm
from modelmeter_server.core.counters import counter
from modelmeter_server.core.embeddings import EmbeddingRequest, InputType
from modelmeter_server.drivers.embedding_body import embedding, options_of, refuse_more_than, word_of
from modelmeter_server.drivers.json_body import refused

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

TOKENS_HEADER: Final = "x-amzn-bedrock-input-token-count"
"""Bedrock tells the input tokens of every model here; Cohere's document does not have them."""

MAX_COHERE_INPUTS: Final = 96
"""Texts of one request, as Cohere documents it."""

_COHERE_TYPES: Final = {
    InputType.QUERY: "search_query",
    InputType.DOCUMENT: "search_document",
    InputType.CLASSIFICATION: "classification",
    InputType.CLUSTERING: "clustering",
}
_TITAN_OWNED: Final = frozenset(
    ("inputtext", "inputimage", "dimensions", "embeddingtypes", "embeddingconfig")
)
_COHERE_OWNED: Final = frozenset(
    ("texts", "images", "inputs", "inputtype", "embeddingtypes", "outputdimension")
)


def _titan_body(request: EmbeddingRequest) -> dict[str, Any]:
    refuse_more_than(request, 1)
    word_of(request, {})
    body: dict[str, Any] = {"inputText": request.inputs[0]}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return {**body, **options_of(request, _TITAN_OWNED)}


def _titan_vectors(document: Mapping[str, object]) -> list[object] | None:
    return [document["embedding"]] if "embedding" in document else None


def _titan_usage(document: Mapping[str, object]) -> int | None:
    return counter(document.get("inputTextTokenCount"))


def _cohere_body(request: EmbeddingRequest) -> dict[str, Any]:
    refuse_more_than(request, MAX_COHERE_INPUTS)
    kind = word_of(request, _COHERE_TYPES)
    if kind is None:
        msg = "input_type"
        raise refused(msg, "must be set: this model gives other vectors to questions than to documents")
    body: dict[str, Any] = {"texts": request.inputs, "input_type": kind}
    if request.dimensions is not None:  # version 3 has none, and says no to the member
        body["output_dimension"] = request.dimensions
    return {**body, **options_of(request, _COHERE_OWNED)}


def _cohere_vectors(document: Mapping[str, object]) -> list[object] | None:
    vectors = document.get("embeddings")
    if isinstance(
        vectors, dict
    ):  # by the type of their components, when types were asked for; version 4 always
        vectors = vectors.get("float")
    return vectors if isinstance(vectors, list) else None


def _cohere_usage(document: Mapping[str, object]) -> int | None:
    """Cohere's own API has the billed units in its document; Bedrock's answers have none so far."""
    meta = document.get("meta")
    units = meta.get("billed_units") if isinstance(meta, dict) else None
    return counter(units.get("input_tokens")) if isinstance(units, dict) else None


class EmbeddingDialect(msgspec.Struct, frozen=True):
    """How one family of embedding models is asked and read."""

    body: Callable[[EmbeddingRequest], dict[str, Any]]
    form: EmbeddingForm


EMBEDDING_DIALECTS: Final[Mapping[str, EmbeddingDialect]] = {
    "cohere": EmbeddingDialect(
        _cohere_body,
        EmbeddingForm(vectors=_cohere_vectors, usage=_cohere_usage, tokens_header=TOKENS_HEADER),
    ),
    "titan": EmbeddingDialect(
        _titan_body,
        EmbeddingForm(vectors=_titan_vectors, usage=_titan_usage, tokens_header=TOKENS_HEADER),
    ),
}
"""What a model's `embedding_dialect` may name."""


def embed(request: EmbeddingRequest, model: ModelSpec, _base_path: str) -> PreparedRequest:
    """Turn a checked batch into the provider's. Raises RequestRefused for what it cannot do."""
    if model.embedding_dialect is None:
        msg = "model"
        raise refused(msg, "is not declared as an embedding model: give it an alias with `embedding_dialect`")
    dialect = EMBEDDING_DIALECTS[model.embedding_dialect]
    target = f"/model/{quote(model.provider_model, safe='')}/invoke"
    return embedding(request, model, dialect.form, target, dialect.body(request))
