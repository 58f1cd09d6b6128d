"""Whether a call may go to its provider once more, and what the attempt before it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from modelmeter_server.core.ceilings import Scope, Subject, Window
from modelmeter_server.core.journal import CallState
from modelmeter_server.core.outcomes import Kind, Stage
from modelmeter_server.core.reservation import MOST_TOKENS
from modelmeter_server.core.settlement import Booking, add, book, book_earlier_attempt, together
from modelmeter_server.core.windows import SECOND

from .admission import halted
from .commands import Dispatch
from .progress import dispatch, in_told_currency, left_by_attempts, row_of, unbooked
from .replies import Denied
from .room import Bound, bounds_of_row
from .rows import Carried, Figures, Tried
from .spending import entry_of

if TYPE_CHECKING:
    from .books import Books
    from .commands import Again, Resend
    from .rows import CallRow


_FENCED = Denied(kind=Kind.LEDGER_DOWN, message="this server's lease was lost")
_FULL = Denied(kind=Kind.CEILING, message="no ceiling has room for what it cost and for another attempt")


def again(books: Books, order: Again) -> Literal[True] | Denied:
    """Book an attempt that failed, and say that another one may follow it, or why not; nothing is booked then."""
    row = row_of(books, order.ref)
    if row is None or row.state > CallState.DISPATCHED or books.is_fenced(order.ref.owner):
        return _FENCED
    if row.tried is not None and order.number <= row.tried.number:
        return True  # the order was carried out before, and nobody heard
    hold = in_told_currency(row.hold, order.figures)
    left = add(book(hold, order.figures, order.end), left_by_attempts(hold, unbooked(row, order.attempts)))
    if stopped := _stopped(books, order, row, left):
        return stopped
    before = entry_of(row)
    row.hold = hold
    carried = row.carried or Carried()
    booking = add(carried.booking, left)
    row.carried = Carried(
        booking=booking,
        input_tokens=carried.input_tokens + min(order.figures.input_tokens or 0, MOST_TOKENS),
        output_tokens=carried.output_tokens + min(order.figures.output_tokens or 0, MOST_TOKENS),
        tried=_tried(order, carried.tried),
    )
    row.booking = msgspec.structs.replace(
        booking, held_tokens=row.booking.held_tokens, held_nanos=row.booking.held_nanos
    )
    row.state = CallState.RESERVED
    row.figures = Figures()
    row.generated = False
    row.attempts_total = max(row.attempts_total, order.number)
    for attempt in order.attempts:
        books.put_attempt(attempt)
    books.update(row, before)
    return True


def resend(books: Books, order: Resend) -> Literal[True] | Denied:
    """Let a request whose connection died leave once more, and book what the first one may have cost."""
    row = row_of(books, order.ref)
    if row is None or row.state > CallState.DISPATCHED or books.is_fenced(order.ref.owner):
        return _FENCED
    carried = row.carried or Carried()
    if order.number <= carried.resent:
        return True  # the order was carried out before, and nobody heard
    left = book_earlier_attempt(
        row.hold,
        Kind.UNAVAILABLE.value,
        Stage.WRITTEN.name,
        http_status=None,
        provider_code="",
        elapsed=max(0, order.at - (row.dispatched_at or order.at)) / SECOND,
    )
    if stopped := _stopped(books, order, row, left):
        return stopped
    before = entry_of(row)
    row.carried = msgspec.structs.replace(carried, booking=add(carried.booking, left), resent=order.number)
    row.booking = add(row.booking, left)
    books.update(row, before)
    dispatch(books, Dispatch(ref=order.ref, at=order.at, number=order.number, target=order.target))
    return True


def _tried(order: Again, before: Tried | None) -> Tried:
    return Tried(
        number=order.number,
        figures=order.figures if before is None else together(before.figures, order.figures),
        generated=order.generated or (before is not None and before.generated),
        kind=order.kind,
        cause=order.cause,
        stage=order.stage,
        disposition=order.disposition,
        code=order.code,
        message=order.message,
    )


def _stopped(books: Books, order: Again | Resend, row: CallRow, left: Booking) -> Denied | None:
    """Return why nothing more may be sent for a call of which so much is `left`; `None` where it may."""
    if stopped := halted(books, row.tenant, row.run_id, row.model):
        return stopped
    if not _has_room(books, order, row, left):
        return _FULL
    return None


def _has_room(books: Books, order: Again | Resend, row: CallRow, left: Booking) -> bool:
    """Say whether what the attempt left fits in beside what is held for the next one.

    An attempt that cost nothing leaves nothing to be asked about: the room for the next one is held already.
    """
    tokens = left.settled_tokens + left.unsettled_tokens
    nanos = left.settled_nanos + left.unsettled_nanos
    if not (tokens or nanos):
        return True
    bounds = [*bounds_of_row(books, row, order.at), *_own_bounds(order, row)]
    return all((nanos if bound.currency else tokens) <= bound.room for bound in bounds)


def _own_bounds(order: Again | Resend, row: CallRow) -> list[Bound]:
    own, booked = order.ceiling, row.booking
    if own is None:
        return []
    about = Subject(order.ref.call.tenant, Scope.CALL.value, order.ref.call.call_id)
    bounds = []
    if order.bounds_tokens:
        sums = (booked.settled_tokens, booked.held_tokens, booked.unsettled_tokens)
        bounds.append(Bound(about, Window(), "", own.tokens, *sums, 0, None))
    if order.bounds_money:
        sums = (booked.settled_nanos, booked.held_nanos, booked.unsettled_nanos)
        bounds.append(Bound(about, Window(), own.currency, own.nano_units, *sums, 0, None))
    return bounds
