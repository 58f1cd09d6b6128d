"""Asks the ledger for a call until it is known what becomes of it: to be bought here, or to be had from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.journal import CallKey
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.ledger.contents import ContentUnreadable
from modelmeter_server.ledger.replies import Recorded, UnderWay
from modelmeter_server.telemetry.log import get_logger

from .joining import POLL_LEAST, POLL_MOST
from .recorded import recorded_outcome

if TYPE_CHECKING:
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.ledger.commands import Reserve

    from .call import Call
    from .cut import Cut
    from .holding import Desk, Holding

_log = get_logger(__name__)


async def claim(desk: Desk, order: Reserve, cut: Cut) -> Holding | Recorded | Call | Failure:
    """Return a hold on a call, its recorded outcome, the same call that runs here already, or a refusal.

    One that another server runs is looked at again and again until it has ended, or until this one is cut.
    """
    pause = POLL_LEAST
    while True:
        found = await desk.reserve(order)
        if not isinstance(found, UnderWay):
            return found
        leader = desk.leaders.find(CallKey(order.call.tenant, found.call_id))
        if leader is not None:
            return leader
        await cut.wait(pause)
        if cut.word is not None:
            return cut.never_sent(*cut.word)
        pause = min(2 * pause, POLL_MOST)


def replayed(found: Recorded, model: ModelSpec | None) -> CallOutcome | Failure:
    """Return the outcome that the journal has."""
    try:
        return recorded_outcome(found, model)
    except ContentUnreadable as error:
        _log.error("a recorded outcome cannot be read", call_id=found.row.call_id, reason=str(error))
        message = f"the outcome is recorded and cannot be read: {error}"
        return failure(Kind.OUTCOME_GONE, message, cause=Cause.LIMIT)
