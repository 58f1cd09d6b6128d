"""What the encoders of embeddings share: options beside what is owned, and the request with its reader. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.accumulators.embeddings import EmbeddingAccumulator, EmbeddingForm
from modelmeter_server.core.caller_json import field_path, read_caller_json
from modelmeter_server.core.embeddings import revision
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.json_text import NotJson
from modelmeter_server.core.provider_options import FIELD as OPTIONS

from .driver import PreparedRequest, RequestRefused
from .json_body import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter_server.core.embeddings import EmbeddingRequest, InputType
    from modelmeter_server.core.models import ModelSpec


def options_of(request: EmbeddingRequest, owned: frozenset[str]) -> dict[str, msgspec.Raw]:
    """Return the members of the provider options, as they were written.

    `owned` are names that belong to the request or to this service, in lower case without `_` and `-`. Raises
    RequestRefused for each of them, and for options that are no JSON object.
    """
    if not request.provider_options_json:
        return {}
    try:
        document = read_caller_json(request.provider_options_json)
    except NotJson as error:
        raise refused(OPTIONS, f"must be JSON: {error}") from None
    if not isinstance(document.value, dict):
        raise refused(OPTIONS, "must be a JSON object")
    taken = [name for name in document.value if name.replace("_", "").replace("-", "").lower() in owned]
    if taken:
        reason = "is reserved: the request or the service sets it"
        raise RequestRefused(*(FieldViolation(field_path(OPTIONS, name), reason) for name in taken))
    return msgspec.json.decode(document.text, type=dict[str, msgspec.Raw])


def refuse_more_than(request: EmbeddingRequest, most: int) -> None:
    """Raise RequestRefused for a batch that is larger than the provider takes."""
    if len(request.inputs) > most:
        few = "one text a call" if most == 1 else f"at most {most:,} texts a call"
        msg = "inputs"
        raise refused(msg, f"this model takes {few}: send more calls")


def word_of(request: EmbeddingRequest, words: Mapping[InputType, str]) -> str | None:
    """Return the provider's word for the input type. Raises RequestRefused for one that it has no word for."""
    if request.input_type is None:
        return None
    if request.input_type not in words:
        known = ", ".join(each.name for each in words)
        fix = (
            f"this provider does not name {request.input_type.name}; it names {known}"
            if known
            else ("this provider names no input types: leave it out, or use the server's own option")
        )
        msg = "input_type"
        raise refused(msg, fix)
    return words[request.input_type]


def embedding(
    request: EmbeddingRequest, model: ModelSpec, form: EmbeddingForm, target: str, body: dict[str, Any]
) -> PreparedRequest:
    """Return the request, with what reads its answer."""
    return PreparedRequest(
        target=target,
        body=msgspec.json.encode(body),
        accumulator=partial(
            EmbeddingAccumulator,
            form=form,
            expected=len(request.inputs),
            dimensions=request.dimensions,
            revision=partial(revision, request, model),
        ),
    )
