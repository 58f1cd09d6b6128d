"""`POST {base}/v1/embeddings`, as OpenAI has it and every compatible server after it. Pure.

Vectors are asked for as base64, four bytes a component instead of ten: every server that OpenAI's own SDK can talk to
takes that, for the SDK asks so too. Those that ignore it answer with numbers, which are read as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from modelmeter_server.core.accumulators.embeddings import EmbeddingForm
from modelmeter_server.core.embeddings import NotAVector
from modelmeter_server.core.provider_options import FIELD as OPTIONS
from modelmeter_server.core.usage_meter import told

from .embedding_body import embedding, options_of, word_of
from .json_body import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter_server.core.dialects import Dialect
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec

    from .driver import PreparedRequest

TARGET: Final = "/v1/embeddings"

_CHAT: Final = "/chat/completions"
_OWNED: Final = frozenset(("model", "input", "inputs", "dimensions", "stream"))
_ENCODINGS: Final = (b'"base64"', b'"float"')


def embed(
    request: EmbeddingRequest, model: ModelSpec, _base_path: str, *, target: str = TARGET
) -> PreparedRequest:
    """Turn a checked batch into the provider's. Raises RequestRefused for what it cannot do."""
    word_of(request, {})
    body: dict[str, Any] = {"model": model.provider_model, "input": request.inputs}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    body["encoding_format"] = msgspec.Raw(_ENCODINGS[0])
    body.update(options_of(request, _OWNED))
    if bytes(body["encoding_format"]) not in _ENCODINGS:
        msg = f"{OPTIONS}.encoding_format"
        raise refused(msg, 'must be "base64" or "float": vectors are handed out as 32-bit floats')
    return embedding(request, model, FORM, target, body)


def target_of(dialect: Dialect) -> str:
    """Return where the server of a dialect has its embeddings: beside its chat completions."""
    path = dialect.path.removesuffix(_CHAT) if dialect.path.endswith(_CHAT) else "/v1"
    query = f"?api-version={quote(dialect.api_version, safe='')}" if dialect.api_version else ""
    return f"{path}/embeddings{query}"


def _vectors(document: Mapping[str, object]) -> list[object] | None:
    items = document.get("data")
    if not isinstance(items, list):
        return None
    vectors: list[object] = []
    for position, item in enumerate(items):
        members = item if isinstance(item, dict) else {}
        index = members.get("index", position)
        if index != position or isinstance(index, bool):
            msg = f"the provider's vectors are out of order at position {position:,}"
            raise NotAVector(msg)
        vectors.append(members.get("embedding"))
    return vectors


def _usage(document: Mapping[str, object]) -> int | None:
    usage = document.get("usage")
    figures = told(usage, "prompt_tokens", "total_tokens") if isinstance(usage, dict) else {}
    # Some servers tell the total alone; it is all input.
    return figures.get("prompt_tokens", figures.get("total_tokens"))


FORM: Final = EmbeddingForm(vectors=_vectors, usage=_usage)
