"""A session: many turns of one conversation, each a call like any other, on one socket where the provider has that.

    open ──► turn ──► turn ──► ... ──► close
              │ one at a time; call, bill and record of its own

What the provider remembers is bound to a socket. When a turn cannot go over that socket any more, the session sends
it with all that was said before, if its caller lets it keep that; otherwise it refuses the turn before anything is
sent. It never begins a new conversation by itself. A model without sockets is asked by ordinary calls that carry
everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, unique
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.calls import MAX_REPORTED_ATTEMPTS, CallOutcome
from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.core.session_events import (
    Bill,
    SessionEnded,
    SessionEvent,
    SessionTotals,
    TurnCompleted,
)
from modelmeter_server.core.session_observer import SessionObserver
from modelmeter_server.core.tally import together
from modelmeter_server.core.tenants import OPEN, Tenant
from modelmeter_server.drivers.driver import TurnTerms

from .session_memory import SessionMemory
from .stream import LiveEvent, LiveFeed, Started

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import Driver, SessionLink
    from modelmeter_server.telemetry.sessions import SessionWatch

    from .call import Call
    from .engine import Engine
    from .offers import Offer

Deliver = Callable[[LiveEvent], Awaitable[None]]


@unique
class SessionEnd(Enum):
    """Why a session ended."""

    CLIENT_CLOSE = "client_close"
    TRANSPORT_ERROR = "transport_error"
    RESPONSE_FAILED = "response_failed"
    IDLE = "idle"
    AGE = "age"
    DRAIN = "drain"
    DEADLINE = "deadline"
    CREDENTIAL_ENDED = "credential_ended"


class TurnOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, as asked."""

    request: CompletionRequest
    previous_response_id: str | None = None
    """`None`: go on from where the session is; empty: begin anew; else: go on from this response."""
    generate: bool = True
    violations: Sequence[FieldViolation] = ()
    """Mistakes of the wire form."""
    prefix: str = ""
    """What leads to the request's fields in the caller's message."""


class TurnEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended."""

    outcome: CallOutcome
    event: TurnCompleted


class Session:
    """One session. Run one turn at a time."""

    def __init__(
        self,
        engine: Engine,
        model: ModelSpec,
        link: SessionLink | None,
        *,
        session_id: str,
        conversation_id: str,
        keeps_transcript: bool,
        tell: Callable[[SessionEvent], None],
        watch: SessionWatch | None = None,
        tenant: Tenant = OPEN,
        offer: Offer,
    ) -> None:
        """Begin with no turn. `tell` hears every event, and `watch` tells those who watch.

        Without a `link` the model is asked by ordinary calls.
        """
        self.session_id = session_id
        self.conversation_id = conversation_id
        self.model = model
        self.draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server shuts down and wants no further turn."""
        self.is_closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when its end has begun."""
        self.tenant = tenant
        """Who opened it: its turns are booked under this name."""
        self.offer = offer
        """What was offered when it was opened: all its turns are asked and priced by that."""
        self._engine = engine
        self._link = link
        self._observer = SessionObserver(
            session_id=session_id,
            model=model.name,
            conversation_id=conversation_id,
            awaits_bill=True,
            payloads=False,  # those who watch hear of hosted tools from the call
        )
        self._tell = tell
        self._watch = watch
        self._memory = SessionMemory(link, keeps=keeps_transcript)
        self._settling: asyncio.Task[CallOutcome] | None = None
        self._call: Call | None = None
        self._cut: tuple[Cause, str] | None = None
        self._turn: asyncio.Task[TurnEnd] | None = None

    @property
    def is_emulated(self) -> bool:
        """Say whether turns are ordinary calls that carry the whole conversation."""
        return self._link is None

    @property
    def connection(self) -> int:
        """Return the number of the socket that was opened last, from 1; 0 for none."""
        return 0 if self._link is None else self._link.connection

    @property
    def previous_response_id(self) -> str | None:
        """Return the response that the next turn goes on from, as far as the provider remembers it."""
        return self._memory.response_id

    @property
    def totals(self) -> SessionTotals:
        """Return what all turns so far came to."""
        return self._observer.totals

    # Turns

    def start(self, order: TurnOrder, deliver: Deliver, budget: float | None) -> asyncio.Task[TurnEnd]:
        """Start a turn, which ends in its recorded outcome whatever becomes of its caller.

        `deliver` gets what comes; when it raises, nothing more is delivered. `budget`: seconds, `None` for any time.
        """
        assert self._turn is None or self._turn.done(), "one turn at a time"
        self._cut = None
        self._turn = asyncio.get_running_loop().create_task(self._run(order, deliver, budget))
        return self._turn

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the turn under way, if there is one; its outcome follows."""
        if self._turn is None or self._turn.done() or self._cut is not None:
            return
        self._cut = (cause, detail)
        if self._call is not None:
            self._call.cut(cause, detail)

    async def _run(self, order: TurnOrder, deliver: Deliver, budget: float | None) -> TurnEnd:
        await self._settled()
        order = msgspec.structs.replace(
            order, request=self._memory.labelled(order.previous_response_id, order.request)
        )
        begun = time.monotonic()
        news = _News(deliver)
        asked = order.previous_response_id
        terms = self._memory.terms(asked, generate=order.generate)
        previous = None if isinstance(terms, Failure) else terms.previous_response_id
        call_id = order.request.call_id
        self._emit(
            self._observer.observe_send(previous, at=begun, call_id=call_id, connection=self.connection)
        )
        outcome = await self._ask(order, terms, news, budget)
        if self._may_send_again(order, terms, outcome):
            left = None if budget is None else max(0.0, budget - (time.monotonic() - begun))
            self._observer.observe_resend()
            whole = self._memory.whole_terms(generate=order.generate)
            again = await self._ask(order, whole, news, left, earlier=outcome.attempts_total)
            outcome = _joined(outcome, again)
        self._call = None
        self._memory.learn(asked, order.request, outcome)
        return self._ended(outcome)

    async def _ask(
        self,
        order: TurnOrder,
        terms: TurnTerms | Failure,
        news: _News,
        budget: float | None,
        earlier: int = 0,
    ) -> CallOutcome:
        request, link = order.request, self._link
        via: Callable[[Driver], Driver] | None = None
        if isinstance(terms, TurnTerms):
            if link is None:
                request = terms.expand(request)
            else:
                driver = link.turn(terms, self)
                request = msgspec.structs.replace(
                    request, turn=self._memory.scope(order.previous_response_id, terms)
                )
                via = lambda _driver: driver  # noqa: E731 - a turn's driver stands in for its instance's
        self._call = call = self._engine.start(
            request,
            budget=budget,
            deltas=True,
            violations=order.violations,
            prefix=order.prefix,
            via=via,
            refusal=terms if isinstance(terms, Failure) else None,
            tenant=self.tenant,
            place=self.model if self.model.target else None,
            conversation_id=self.conversation_id,
            offer=self.offer,
            earlier=earlier,
        )
        if self._cut is not None:
            call.cut(*self._cut)
        outcome = await news.relay(LiveFeed(call))
        self._settling = call.task
        return outcome

    async def _settled(self) -> None:
        """Wait for a request that is read on for its bill after its caller was told: it has the socket."""
        settling, self._settling = self._settling, None
        if settling is not None and not settling.done():
            await asyncio.wait((settling,))

    def _ended(self, outcome: CallOutcome) -> TurnEnd:
        result = outcome.result
        status, reason = "completed", None
        if isinstance(result, Failure):
            status = "error" if result.stage >= Stage.WRITTEN else "send_error"
            reason = result.kind.value.lower()
        elif result.truncated:
            status = "incomplete"
        bill = Bill(
            usage=result.usage,
            certainty=result.certainty,
            cost=result.cost,
            response_id=result.provider_response_id or "",
            hosted_tool_calls=len(result.hosted_tools),
            replayed=outcome.replayed,
        )
        events = self._observer.observe_bill(bill, at=time.monotonic(), status=status, reason=reason)
        self._emit(events, bill)
        event = events[-1]
        assert isinstance(event, TurnCompleted)
        return TurnEnd(outcome=outcome, event=event)

    def _may_send_again(self, order: TurnOrder, terms: TurnTerms | Failure, outcome: CallOutcome) -> bool:
        if isinstance(terms, Failure) or self._cut is not None:
            return False
        is_stale = self._call is not None and getattr(self._call.provider_call, "is_stale", False)
        return self._memory.may_send_again(
            order.previous_response_id, terms, outcome.result, is_stale=is_stale
        )

    # What the socket says

    def sending(self, connection: int) -> None:
        """See `TurnListener`."""
        self._observer.observe_connection(connection)

    def send_failed(self) -> None:
        """See `TurnListener`."""
        self._emit(self._observer.observe_send_error(at=time.monotonic()))

    def frame(self, data: bytes) -> None:
        """See `TurnListener`."""
        self._emit(self._observer.observe_frame(data, at=time.monotonic()))

    def transport_failed(self) -> None:
        """See `TurnListener`."""
        self._emit(self._observer.observe_transport_error(at=time.monotonic()))

    # The end

    async def close(self, reason: SessionEnd) -> SessionEnded | None:
        """Wait for the turn under way, close the socket and tell that it is over; `None` if no turn was ever sent."""
        if not self.is_closing.done():
            self.is_closing.set_result(None)
        if self._turn is not None:
            await asyncio.wait((self._turn,))
        await self._settled()
        if self._link is not None:
            self._link.close()
        events = self._observer.observe_close(reason.value, at=time.monotonic())
        self._emit(events)
        return next((each for each in events if isinstance(each, SessionEnded)), None)

    def _emit(self, events: Sequence[SessionEvent], bill: Bill | None = None) -> None:
        for event in events:
            self._tell(event)
            if self._watch is not None:
                self._watch.tell(event, bill)


class _News:
    """Hand on what a turn tells, over one or two provider requests."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver: Deliver | None = deliver
        self._has_started = False

    async def relay(self, feed: LiveFeed) -> CallOutcome:
        """Read a feed to its end."""
        try:
            while True:
                for event in await feed.next():
                    if isinstance(event, CallOutcome):
                        return event
                    if not (isinstance(event, Started) and self._has_started):
                        self._has_started = self._has_started or isinstance(event, Started)
                        await self._hand_on(event)
        finally:
            feed.close()

    async def _hand_on(self, event: LiveEvent) -> None:
        if self._deliver is None:
            return
        try:
            await self._deliver(event)
        except Exception:  # noqa: BLE001 - whoever listened is gone; the turn and its bill go on
            self._deliver = None


def _joined(first: CallOutcome, second: CallOutcome) -> CallOutcome:
    """Return the outcome of a turn that was sent twice: the attempts and the bills of both, whatever each told."""
    assert isinstance(first.result, Failure)
    later = [
        msgspec.structs.replace(each, number=first.attempts_total + each.number) for each in second.attempts
    ]
    return msgspec.structs.replace(
        second,
        result=together(first.result, second.result),
        attempts=(*first.attempts, *later)[-MAX_REPORTED_ATTEMPTS:],
        attempts_total=first.attempts_total + second.attempts_total,
    )
