"""The record of an outcome: durable in the ledger, and with the recorder, before anybody hears of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from modelmeter_server.core.calls import CallOutcome

    from .booking import Asked
    from .holding import Holding
    from .recorder import Recorder

_log = get_logger(__name__)


async def settled(outcome: CallOutcome, holding: Holding, asked: Asked, landing: str) -> CallOutcome:
    """Book an outcome in the ledger, and return it with the word whether that is durable."""
    try:
        is_durable = await holding.settle(outcome, asked, landing=landing)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the outcome goes out unsettled, and it says so
        _log.exception("settling failed; the outcome is not booked", call_id=outcome.call_id)
        return outcome
    return msgspec.structs.replace(outcome, settled=True) if is_durable else outcome


async def recorded(outcome: CallOutcome, recorder: Recorder) -> CallOutcome:
    """Hand an outcome to the recorder, and return it with the word whether that one has booked it."""
    try:
        booked = await recorder.record(outcome)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - as above
        _log.exception("recording failed; the outcome is not booked", call_id=outcome.call_id)
        return outcome
    return msgspec.structs.replace(outcome, settled=True) if booked else outcome
