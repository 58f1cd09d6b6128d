"""A call as the ledger holds it: reserved before it is sent, told of every request, settled in the end.

    reserve ──► Holding ──► dispatch (each provider request) ──► checkpoint ... ──► settle
            └─► an outcome of the journal, a call under way, or a refusal

It knows nothing of what is asked, so that every operation can use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.commands import Checkpoint, Dispatch, Resend
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.ledger.replies import Admitted, Denied, Recorded, UnderWay
from modelmeter_server.telemetry.log import get_logger

from .booking import another, settlement
from .joining import Leaders
from .recorded import denial

if TYPE_CHECKING:
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.ledger.commands import CallRef, Reserve
    from modelmeter_server.ledger.ledger import Ledger
    from modelmeter_server.ledger.rows import Figures

    from .booking import Asked

CONTENT_SECONDS = 24 * 3600
"""How long content is kept unless configured otherwise."""

MAX_DRAINING_CALLS = 100
"""Requests that are read on at once after their callers have left, unless configured otherwise."""

DOWN = "the ledger cannot be written now, so nothing was sent; this server's log tells why"

_log = get_logger(__name__)


class Desk:
    """The ledger as the calls of one server use it, and what they share beside it."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        content_seconds: int = CONTENT_SECONDS,
        replay_only: bool = False,
        max_draining_calls: int = MAX_DRAINING_CALLS,
    ) -> None:
        """`content_seconds`: how long answers are kept, 0 for not at all. `replay_only`: buy nothing."""
        self.ledger = ledger
        self.leaders = Leaders()
        self._content_seconds = content_seconds
        self._replay_only = replay_only
        self._max_draining = max_draining_calls
        self._draining = 0

    async def reserve(self, order: Reserve) -> Holding | Recorded | UnderWay | Failure:
        """Ask for room. A ledger that is down refuses: what cannot be written down is not sent."""
        order = msgspec.structs.replace(
            order, owner=self.ledger.owner, at=now(), replay_only=order.replay_only or self._replay_only
        )
        try:
            reply = await self.ledger.reserve(order)
        except LedgerUnavailable as error:
            _log.warning("call refused: the ledger is down", call_id=order.call.call_id, reason=str(error))
            return failure(Kind.LEDGER_DOWN, DOWN, cause=Cause.LIMIT)
        if isinstance(reply, Denied):
            return denial(reply, now())
        if not isinstance(reply, Admitted):
            return reply
        return Holding(self.ledger, reply.ref(order), reply, self._content_seconds, order)

    def take_drain(self) -> bool:
        """Take one of the places of requests that are read on; say whether there was one."""
        if self._draining >= self._max_draining:
            return False
        self._draining += 1
        return True

    def give_drain_back(self) -> None:
        """Give a place back."""
        self._draining -= 1


class Holding:
    """One call that was admitted. It must be settled, whatever becomes of it."""

    def __init__(
        self, ledger: Ledger, ref: CallRef, admitted: Admitted, content_seconds: int, order: Reserve
    ) -> None:
        self.ref = ref
        """Its call id is another than was asked for when its effect stands in the journal under that one."""
        self.output_tokens = admitted.output_tokens
        """The most it may generate."""
        self._earlier = admitted.attempts
        self._ledger = ledger
        self._content_seconds = content_seconds
        self._started: dict[int, int] = {}
        self._order = order

    async def dispatch(self, number: int, target: str) -> bool:
        """Write down that a provider request leaves now; False when it must not leave."""
        at = now()
        self._started[number] = at
        order = Dispatch(ref=self.ref, at=at, number=self._earlier + number, target=target)
        try:
            allowed = await self._ledger.dispatch(order)
        except LedgerUnavailable as error:
            _log.warning(
                "call not sent: the ledger is down", call_id=self.ref.call.call_id, reason=str(error)
            )
            return False
        if not allowed:
            _log.warning("call not sent: this server's lease was lost", call_id=self.ref.call.call_id)
        return allowed

    async def resend(self, number: int, target: str) -> bool:
        """Write down that a request leaves once more, over another connection; False when it must not leave.

        What the one before may have cost must have room beside it.
        """
        at = now()
        self._started[number] = at
        order = Resend(
            ref=self.ref,
            at=at,
            number=self._earlier + number,
            target=target,
            ceiling=self._order.ceiling,
            bounds_tokens=self._order.bounds_tokens,
            bounds_money=self._order.bounds_money,
        )
        try:
            reply: Denied | Literal[True] = await self._ledger.order(order)
        except LedgerUnavailable as error:
            reply = Denied(kind=Kind.LEDGER_DOWN, message=str(error))
        if isinstance(reply, Denied):
            _log.info("call not sent anew", call_id=self.ref.call.call_id, reason=reply.message)
        return reply is True

    def checkpoint(
        self,
        figures: Figures,
        *,
        generated: bool,
        model_served: str | None = None,
        provider_response_id: str | None = None,
    ) -> None:
        """Write down what the call has told so far; waits for nothing."""
        order = Checkpoint(
            ref=self.ref,
            at=now(),
            generated=generated,
            figures=figures,
            model_served=model_served or "",
            provider_response_id=provider_response_id or "",
        )
        self._ledger.checkpoint(order)

    async def another(
        self,
        so_far: Failure,
        failed: Failure,
        request: CompletionRequest | EmbeddingRequest,
        asked: Asked,
    ) -> Failure | None:
        """Book an attempt that `failed`; return why the ledger lets no other one follow, `None` where it does."""
        order = another(
            so_far,
            failed,
            self.ref,
            request,
            at=now(),
            asked=asked,
            started=self._started,
            earlier=self._earlier,
        )
        try:
            reply: Denied | Literal[True] = await self._ledger.order(order)
        except LedgerUnavailable as error:
            _log.warning(
                "call not tried again: the ledger is down", call_id=self.ref.call.call_id, reason=str(error)
            )
            return failure(Kind.LEDGER_DOWN, DOWN, cause=Cause.LIMIT)
        if not isinstance(reply, Denied):
            return None
        _log.info("call not tried again", call_id=self.ref.call.call_id, reason=reply.message)
        return denial(reply, now())

    async def settle(self, outcome: CallOutcome, asked: Asked, *, landing: str = "") -> bool:
        """Book the outcome; say whether that is durable. If not, it is booked when the database is back."""
        order = settlement(
            outcome,
            self.ref,
            at=now(),
            asked=asked,
            started=self._started,
            earlier=self._earlier,
            landing=landing,
            content_seconds=self._content_seconds,
        )
        return await self._ledger.settle(order)
