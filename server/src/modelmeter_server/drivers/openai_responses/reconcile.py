"""What OpenAI tells of an ended call: `GET /v1/responses/{id}`, for answers that it was asked to keep.

A request in the background goes on when its connection is closed, so that the record may still be growing.
"""

from __future__ import annotations

import re
from typing import Final

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.outcomes import Cause, End, Ending
from modelmeter_server.drivers.lookup import EndedCall, NotReconcilable, Reconciler, Told, record

from .encode import TARGET

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_UNFINISHED: Final = ("queued", "in_progress")


def target(call: EndedCall) -> str:
    """Return where the record of a call is. Raises NotReconcilable."""
    if not call.recoverable:
        message = (
            f'the provider keeps no answers of model "{call.model}": set recoverable = true in its configuration for'
            " calls to come, or book a figure with a reason"
        )
        raise NotReconcilable(message)
    if not _ID.fullmatch(call.response_id):
        message = "the call ended before the provider told the id of its answer: book a figure with a reason"
        raise NotReconcilable(message)
    return f"{TARGET}/{call.response_id}"


def read(body: bytes) -> Told:
    """Return what a record tells. Raises NotReconcilable for one that tells no usage, or not yet."""
    document = record(body)
    if isinstance(document, dict) and document.get("status") in _UNFINISHED:
        message = "the provider still generates in the background: ask again later"
        raise NotReconcilable(message)
    accumulator = OpenAIResponsesAccumulator()
    accumulator.feed(body)
    told = accumulator.finish(Ending(end=End.CLEAN, cause=Cause.PROVIDER))
    if told.usage is None:
        message = "the provider's record of the call tells no usage: book a figure with a reason"
        raise NotReconcilable(message)
    return Told(
        usage=told.usage,
        additional_usage=told.additional_usage,
        certainty=told.certainty,
        service_tier=told.service_tier,
    )


RECONCILER: Final = Reconciler(target, read)
