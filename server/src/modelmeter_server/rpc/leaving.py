"""What it means for a call that its RPC ends before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from modelmeter_server.core.errors import OWN_FAULT
from modelmeter_server.core.outcomes import Cause
from modelmeter_server.engine.call import LATE

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

LEFT: Final = "the caller left before the answer was whole"


def seconds_left(context: ServicerContext[Any, Any]) -> float | None:
    """Return the caller's time; `None` for a call without a deadline, of which typeshed does not know."""
    return cast("float | None", context.time_remaining())


def why_left(context: ServicerContext[Any, Any], error: BaseException) -> tuple[Cause, str]:
    """Return why an RPC is over that `error` has ended: a fault of ours, its deadline, or its caller."""
    left = seconds_left(context)
    if isinstance(error, Exception) and not isinstance(error, grpc.aio.BaseError):
        return Cause.BUG, OWN_FAULT
    if left is not None and left <= 0:
        return Cause.DEADLINE, LATE
    return Cause.CALLER, LEFT
