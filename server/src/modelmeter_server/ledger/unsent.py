"""The settlement of a call that was admitted and then never sent, because nobody was there any more to send it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage

from .commands import Settle
from .rows import Figures

if TYPE_CHECKING:
    from .commands import Reserve
    from .replies import Admitted


def never_sent(order: Reserve, admitted: Admitted) -> Settle:
    """Return what gives the room back that an order holds."""
    return Settle(
        ref=admitted.ref(order),
        at=order.at,
        kind=Kind.UNREACHABLE.value,
        cause=Cause.CALLER.value,
        stage=Stage.NOT_WRITTEN.name,
        disposition=Disposition.DID_NOT_HAPPEN.value,
        code=Code.CANCELLED,
        message="the caller left before anything was sent",
        generated=False,
        written=False,
        figures=Figures(certainty=Certainty.NONE.value),
    )
