"""A call that finds no room: first it asks the journal, which may have it already, then it waits for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.digest import Digest, digest, embedding_digest
from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.journal import OnLandedError
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.reservation import Hold
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.replies import Recorded, UnderWay

from .booking import reservation
from .claim import claim
from .holding import Holding

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest

    from .call import Call
    from .cut import Cut
    from .entry import Entry
    from .holding import Desk
    from .planning import Planning

NOTHING = Hold(input_tokens=0, output_tokens=0, tokens_per_second=1)
"""What is held for a question: it buys nothing."""


async def room_for(entry: Entry, cut: Cut) -> Failure | None:
    """Wait until a call has its place, which is `None`, or gets none: too late, refused, or cut."""
    assert entry.decided is not None
    if not entry.decided.done():
        await cut.wait(entry.patience, entry.decided)
    if entry.decided.done():
        return entry.decided.result()
    refusal = entry.obstacle() if cut.word is None else cut.never_sent(*cut.word)
    entry.withdraw()
    return refusal


async def known_already(
    call: Call, desk: Desk | None, planning: Planning, cut: Cut
) -> Recorded | Call | Failure | None:
    """Return what the journal has of a call that waits for room, the same call that runs here, or a conflict.

    `None`: it has to be bought, and waits for room. While another server runs it, it stands beside those who wait, and
    behind them when that came to nothing.
    """
    entry = call.entry
    if desk is None or entry is None or entry.spec is None:
        return None
    found = await planning.make(_digest, call.request, entry.spec)
    if not isinstance(found, Digest):
        return found
    order = reservation(
        call.request, entry.spec, found, NOTHING, tenant=call.tenant, owner=desk.ledger.owner, at=now()
    )
    order = msgspec.structs.replace(order, replay_only=True)
    known: Holding | Recorded | UnderWay | Call | Failure = await desk.reserve(order)
    if isinstance(known, UnderWay):
        if not entry.step_beside():
            return None
        known = await claim(desk, order, cut)
    if isinstance(known, Holding | UnderWay) or _is_to_be_bought(known, call.request):
        entry.step_back()
        return None
    return known


def _is_to_be_bought(known: Recorded | Call | Failure, request: CompletionRequest | EmbeddingRequest) -> bool:
    """Say whether a request wants more than what the journal has."""
    if request.replay_only:
        return False
    if isinstance(known, Failure):
        return known.kind is Kind.REPLAY_MISS
    wants_retry = request.effect is not None and request.effect.on_landed_error is OnLandedError.RETRY
    return wants_retry and isinstance(known, Recorded) and bool(known.row.kind)


def _digest(request: CompletionRequest | EmbeddingRequest, model: ModelSpec) -> Digest | None:
    """Return what tells the request from others; `None` for one that planning will refuse."""
    try:
        if isinstance(request, EmbeddingRequest):
            return embedding_digest(request, model.identity)
        return digest(request, model.identity)
    except Exception:  # noqa: BLE001 - nothing of it was checked yet, and that is another's task
        return None
