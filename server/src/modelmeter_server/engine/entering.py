"""How a call asks for room: where its place may be, and what it takes of the rates."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.reservation import dearest_hold

from .choosing import instances_of
from .embedding import embedding_hold
from .entry import Entry
from .plan import completion_hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.core.tenants import Tenant

    from .admission import Admission


def enter(
    admission: Admission,
    request: CompletionRequest | EmbeddingRequest,
    tenant: Tenant,
    model: ModelSpec | None,
    *,
    place: ModelSpec | None,
    left: float | None,
    is_count: bool,
) -> Entry | Failure:
    """Ask for room. A model that is not there has no limits of its own; planning says the rest.

    `place` is the target of the model that alone may be asked; `left` are the seconds that its provider has, `None` for
    any time. A count takes nothing of a rate.
    """
    if model is None:
        return admission.enter(tenant.name, "", ("",), 0, left=left)
    tokens: int | None = 0
    measure: Callable[[], int] | None = None
    if is_count:
        tokens = None
    elif admission.counts_tokens(tenant.name, model.name):
        tokens = _held(request, model)
    else:
        measure = functools.partial(_held, request, model)
    entered = admission.enter(
        tenant.name,
        model.name,
        instances_of(request, place or model),
        tokens,
        left=left,
        measure=measure,
    )
    if isinstance(entered, Entry) and tenant.may_use(request.model):
        entered.spec = model
    return entered


def _held(request: CompletionRequest | EmbeddingRequest, model: ModelSpec) -> int:
    """Return the bound on a call's tokens by which it is let in: what the ledger would hold, at any of its targets.

    0 for a request that planning will refuse.
    """
    places = model.places
    try:
        if isinstance(request, EmbeddingRequest):
            holds = [embedding_hold(request, each) for each in places]
        else:
            holds = [completion_hold(request, each) for each in places]
        return max(0, dearest_hold(holds).tokens)
    except Exception:  # noqa: BLE001 - nothing of it was checked yet, and that is another's task
        return 0
