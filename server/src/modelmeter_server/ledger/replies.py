"""What the writer answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.ceilings import Standing, Subject, Window
from modelmeter_server.core.journal import CallKey
from modelmeter_server.core.outcomes import Kind

from .commands import CallRef
from .rows import CallRow, ContentRow

if TYPE_CHECKING:
    from .commands import Reserve


class SoftLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A share of a ceiling was passed for the first time in its window."""

    ceiling_id: str
    subject: Subject
    window: Window
    percent: int
    standing: Standing


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Room is held; the call may be dispatched."""

    generation: int
    dispatch: int
    output_tokens: int
    """The most it may generate: what was asked, or less after a clamp."""
    call_id: str = ""
    """The call's own id. It is another than was asked for when the effect stands in the journal under that one."""
    attempts: int = 0
    """Provider requests that this generation has had before; the numbers of attempts go on from there."""
    soft_limits: tuple[SoftLimit, ...] = ()

    def ref(self, order: Reserve) -> CallRef:
        """Return how the call that `order` reserved is referred to from now on."""
        call = CallKey(order.call.tenant, self.call_id or order.call.call_id)
        return CallRef(call=call, generation=self.generation, dispatch=self.dispatch, owner=order.owner)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The journal has the outcome; nothing is bought."""

    row: CallRow
    content: ContentRow | None = None
    """`None` for a landed error of which the row is all that is left: a server died with it."""


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """The same call runs already, here or on another server; ask again, or join it."""

    call_id: str
    owner: int


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """The call may not be sent, or not once more."""

    kind: Kind
    """CEILING, HALTED, DIVERGED, CALL_ID_CONFLICT, OUTCOME_GONE, REPLAY_MISS, REFUSED (a money ceiling on a model
    without a price or in another currency) or LEDGER_DOWN (this server was fenced off)."""
    message: str
    field: str = ""
    """For DIVERGED and CALL_ID_CONFLICT: the first field that differs."""
    standings: tuple[Standing, ...] = ()
    """For CEILING: every ceiling without room."""
    row: CallRow | None = None
    """For OUTCOME_GONE: the call, with its bill."""


ReserveReply = Admitted | Recorded | UnderWay | Denied


class Guarded(msgspec.Struct, frozen=True):
    """An admin set it, or it is an admin's to set: whoever else ordered the change, nothing was changed."""


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciliation did."""

    row: CallRow
    raised: bool
    """Whether the figure was taken; an equal or a less certain one is not."""
