"""From a batch of texts to a provider request that is ready to be sent, or the refusal that names every mistake.

What follows is a call like any other: in flight, cut and recorded by the same code, with the same bill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.digest import embedding_digest
from modelmeter_server.core.embeddings import check_embedding
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.models import Task
from modelmeter_server.core.reservation import Hold, dearest_hold, embedding_hold_for
from modelmeter_server.drivers.driver import EmbeddingDriver, RequestRefused

from .plan import Plan, Refused, mistaken, seen_by, too_sensitive, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import Driver


def plan_embedding(
    request: EmbeddingRequest,
    model: ModelSpec,
    driver: Driver,
    found: Sequence[FieldViolation],
    prefix: str,
) -> Plan:
    """Check a batch as a whole and encode it for its provider. The arguments are those of `plan`. Raises Refused."""
    if model.task is Task.COMPLETION:
        fix = 'is no embedding model: ask it with `Complete`, or declare task = "embedding"'
        raise Refused(mistaken([*found, FieldViolation(f"{prefix}model", fix)]))
    if request.sensitivity > model.max_sensitivity:
        raise Refused(too_sensitive(request.sensitivity, seen_by(model)))
    mistakes = [*found, *within(prefix, check_embedding(request))]
    if mistakes:
        raise Refused(mistaken(mistakes))
    if not isinstance(driver, EmbeddingDriver):
        fix = "is a model of a provider whose driver has no embeddings"
        raise Refused(mistaken([FieldViolation(f"{prefix}model", fix)]))
    try:
        prepared = driver.prepare_embedding(request, model)
    except RequestRefused as refusal:
        raise Refused(mistaken(within(prefix, refusal.violations))) from None
    return Plan(model=model, prepared=prepared, expectation=FREE_TEXT)


def with_embedding_terms(planned: Plan, request: EmbeddingRequest, places: Sequence[ModelSpec] = ()) -> Plan:
    """Return a plan with what the ledger asks of it, as `with_terms` does."""
    return msgspec.structs.replace(
        planned,
        digest=embedding_digest(request, planned.model.identity),
        hold=dearest_hold([embedding_hold(request, each) for each in places or (planned.model,)]),
    )


def embedding_hold(request: EmbeddingRequest, model: ModelSpec) -> Hold:
    """Return what is held for a batch of texts."""
    return embedding_hold_for(
        request,
        price=model.price,
        reserve_factor=model.reserve_factor,
        abort_stops_billing=model.abort_stops_billing,
    )
