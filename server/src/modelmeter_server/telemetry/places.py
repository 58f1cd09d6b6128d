"""Where in a trace the code that runs now is. Set by the RPC, inherited by the call's task, read by logs and events."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import msgspec


class Place(msgspec.Struct, frozen=True):
    """A trace, a span of it, and the tracing library's own object for the span."""

    trace_id: str = ""
    span_id: str = ""
    span: Any = None
    """`None` without an exporter of traces."""


NOWHERE: Final = Place()

current_place: ContextVar[Place] = ContextVar("current_place", default=NOWHERE)
