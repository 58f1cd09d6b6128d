"""Who writes down what became of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from modelmeter_server.core.calls import CallOutcome


class Recorder(Protocol):
    """Book the outcome of every call before its caller hears of it."""

    async def record(self, outcome: CallOutcome) -> bool:
        """Write the outcome down; return whether its bill is durably booked now.

        What it raises is logged, and the outcome goes out as not booked.
        """
