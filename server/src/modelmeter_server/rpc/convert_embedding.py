"""Batches of texts from protos, and their vectors as protos. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from modelmeter_server.core.embeddings import MAX_INPUTS, EmbeddingRequest
from modelmeter_server.core.request_checks import MAX_LABELS
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.text import well_formed

from .convert_answer import fill_call
from .convert_request import call_id_from, ledger_fields, sensitivity_from
from .convert_usage import fill_cost, fill_usage
from .words import CERTAINTIES, INPUT_TYPE_WORDS

if TYPE_CHECKING:
    from modelmeter.v1 import embedding_pb2
    from modelmeter.v1.model_service_pb2 import EmbedRequest
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.embeddings import Embeddings

    from .convert_request import Violations


def embedding_request(
    message: EmbedRequest, found: Violations, default_sensitivity: Sensitivity = Sensitivity.PUBLIC
) -> EmbeddingRequest:
    """Return the batch in the core's terms; mistakes of the wire form are added to `found`.

    `default_sensitivity` is the tenant's, for texts that do not say how confidential they are.
    """
    return EmbeddingRequest(
        model=message.model,
        call_id=call_id_from(message.call_id, found),
        inputs=tuple(islice(message.inputs, MAX_INPUTS + 1)),
        dimensions=message.dimensions if message.HasField("dimensions") else None,
        input_type=found.word("input_type", message.input_type, INPUT_TYPE_WORDS),
        provider_options_json=message.provider_options_json,
        sensitivity=sensitivity_from(message.sensitivity, default_sensitivity, found),
        labels=dict(islice(message.labels.items(), MAX_LABELS + 1)),
        **ledger_fields(message, found),
    )


def fill_embeddings(message: embedding_pb2.Embeddings, outcome: CallOutcome, answer: Embeddings) -> None:
    """Write vectors with their bill; `answer` is the outcome's result."""
    for vector in answer.vectors:
        message.vectors.add().values.extend(vector)
    message.dimensions = answer.dimensions
    message.revision = well_formed(answer.revision)
    message.certainty = CERTAINTIES[answer.certainty]
    if answer.usage is not None:
        fill_usage(message.usage, answer.usage)
    if answer.cost is not None:
        fill_cost(message.cost, answer.cost)
    message.model_served = well_formed(answer.model_served or "")
    message.provider_response_id = well_formed(answer.provider_response_id or "")
    message.provider_request_id = well_formed(answer.provider_request_id or "")
    fill_call(message, outcome)
