"""What becomes of a call that was admitted: it is sent, tells something, ends; or ends after it was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.journal import CallState
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.settlement import (
    NOTHING,
    Booking,
    End,
    Figures,
    add,
    book,
    book_earlier_attempt,
    is_truer,
    raise_booking,
    without,
)
from modelmeter_server.core.windows import SECOND

from .room import passed_limits
from .rows import AttemptRow, CallRow, ContentRow, Hold
from .spending import entry_of

if TYPE_CHECKING:
    from .books import Books
    from .commands import CallRef, Checkpoint, Dispatch, Settle

OPERATOR = "operator"
LATE = "late"
"""Who reconciled a call: its own server, after it had been given up."""


def row_of(books: Books, ref: CallRef) -> CallRow | None:
    """Return the call that a server speaks of, unless it is at another dispatch by now."""
    row = books.rows.get((ref.call.tenant, ref.call.call_id, ref.generation))
    if row is None or row.dispatch != ref.dispatch or row.owner != ref.owner:
        return None
    return row


def dispatch(books: Books, order: Dispatch) -> bool:
    """Note that a provider request leaves; return False when it must not."""
    ref = order.ref
    row = row_of(books, ref)
    if row is None or row.state > CallState.DISPATCHED or books.is_fenced(ref.owner):
        return False
    row.state = CallState.DISPATCHED
    row.dispatched_at = order.at
    row.target = order.target
    row.attempts_total = max(row.attempts_total, order.number)
    books.put_attempt(
        AttemptRow(
            tenant=row.tenant,
            call_id=row.call_id,
            generation=row.generation,
            dispatch=row.dispatch,
            number=order.number,
            target=order.target,
            started_at=order.at,
        )
    )
    books.update(row)
    return True


def checkpoint(books: Books, order: Checkpoint) -> None:
    """Note what a running call has told; a figure never falls."""
    row = row_of(books, order.ref)
    if row is None or row.state > CallState.DISPATCHED:
        return
    if is_truer(order.figures, row.figures):
        row.figures = order.figures
    row.generated = row.generated or order.generated
    row.model_served = order.model_served or row.model_served
    row.provider_request_id = order.provider_request_id or row.provider_request_id
    row.provider_response_id = order.provider_response_id or row.provider_response_id
    books.update(row)


def settle(books: Books, order: Settle, expire_after: int) -> bool:
    """Book the outcome of a call; return False when the ledger does not know the call at all.

    An outcome that was booked already is not booked again. One that comes after the call was given up can make its
    figures truer; the recorded outcome stays, because repetitions may have been answered with it.
    """
    ref = order.ref
    row = row_of(books, ref)
    if row is None:
        return (ref.call.tenant, ref.call.call_id, ref.generation) in books.rows
    if row.tried is not None and order.number is not None and order.number <= row.tried.number:
        order = _without_attempts(order)
    if row.state > CallState.DISPATCHED:
        if raise_figures(books, row, order.figures, by=LATE):
            _put_attempts(books, order)
        _raise_bound(books, row, order, expire_after)
        return True
    before = entry_of(row)
    figures = _no_less(order.figures, row.figures)
    row.hold = in_told_currency(row.hold, figures)
    booking = _booked(row, figures, order)
    _take_outcome(row, order)
    end_call(row, figures, booking, at=order.at, expire_after=expire_after)
    _put_attempts(books, order)
    _put_content(books, row, order)
    books.update(row, before)
    if row.tenant in books.governed:
        passed_limits(books, row, row.reserved_at)
    return True


def _raise_bound(books: Books, row: CallRow, order: Settle, expire_after: int) -> None:
    """Hold what a call may have cost that went on after it was given up: how long it ran is known only now.

    Never less than before, and nothing where the bill is known or somebody else has spoken since.
    """
    is_known = row.figures.certainty in (Certainty.EXACT.value, Certainty.NONE.value)
    if is_known or row.state == CallState.WRITTEN_OFF or row.reconciled_by not in ("", LATE):
        return
    carried = row.carried.booking if row.carried is not None else NOTHING
    own = without(row.booking, carried)
    due = _booked(row, row.figures, order)
    tokens = max(0, due.settled_tokens + due.unsettled_tokens - own.settled_tokens - own.unsettled_tokens)
    nanos = max(0, due.settled_nanos + due.unsettled_nanos - own.settled_nanos - own.unsettled_nanos)
    if not (tokens or nanos):
        return
    before = entry_of(row)
    row.booking = add(row.booking, Booking(unsettled_tokens=tokens, unsettled_nanos=nanos))
    row.state = CallState.UNSETTLED
    row.expires_at = order.at + expire_after
    books.update(row, before)


def _booked(row: CallRow, figures: Figures, order: Settle) -> Booking:
    own = book(row.hold, figures, order.end or _end_of(order))
    return add(own, left_by_attempts(row.hold, unbooked(row, order.attempts)))


def unbooked(row: CallRow, attempts: tuple[AttemptRow, ...]) -> tuple[AttemptRow, ...]:
    """Return the attempts of which nothing was booked when a request was sent anew."""
    resent = 0 if row.carried is None else row.carried.resent
    return tuple(each for each in attempts if each.number >= resent)


def _without_attempts(order: Settle) -> Settle:
    """Return the outcome of a call that ended between two attempts: what they cost is booked already."""
    return msgspec.structs.replace(order, figures=Figures(certainty=Certainty.NONE.value), attempts=())


def _no_less(told: Figures, seen: Figures) -> Figures:
    """Return the figures of an outcome, unless a checkpoint had told more: what was told is not untold."""
    untold = told.certainty == Certainty.NONE.value and seen.certainty != Certainty.UNKNOWN.value
    return seen if untold or is_truer(seen, told) else told


def _end_of(order: Settle) -> End:
    return End(
        kind=order.kind,
        generated=order.generated,
        written=order.written,
        refused_by_provider=order.refused_by_provider,
        generating_seconds=order.generating_seconds,
    )


def left_by_attempts(hold: Hold, attempts: tuple[AttemptRow, ...]) -> Booking:
    """Return what was left behind by requests that were sent anew, over another connection."""
    left = NOTHING
    for attempt in attempts[:-1]:
        one = book_earlier_attempt(
            hold,
            attempt.kind,
            attempt.stage,
            http_status=attempt.http_status,
            provider_code=attempt.provider_code,
            elapsed=attempt.elapsed,
        )
        left = add(left, one)
    return left


def in_told_currency(hold: Hold, figures: Figures) -> Hold:
    """Return the hold of a model without a price in the currency in which its provider told the cost."""
    if hold.currency or not figures.currency:
        return hold
    return msgspec.structs.replace(hold, currency=figures.currency)


def _take_outcome(row: CallRow, order: Settle) -> None:
    row.kind = order.kind
    row.cause = order.cause
    row.stage = order.stage
    row.disposition = order.disposition
    row.code = order.code
    row.message = order.message
    row.finish = order.finish
    row.generated = row.generated or order.generated
    row.model_served = order.model_served or row.model_served
    row.http_status = order.http_status
    row.provider_code = order.provider_code
    row.provider_request_id = order.provider_request_id or row.provider_request_id
    row.provider_response_id = order.provider_response_id or row.provider_response_id
    last = order.attempts[-1].number if order.attempts else 0
    row.attempts_total = max(row.attempts_total, order.attempts_total, last)
    row.queue_seconds = order.queue_seconds
    row.first_token_seconds = order.first_token_seconds
    row.total_seconds = order.total_seconds
    row.landing = order.landing


def end_call(row: CallRow, figures: Figures, booking: Booking, *, at: int, expire_after: int) -> None:
    """End a call with these figures; what is booked for it stands beside what earlier dispatches left."""
    row.figures = figures
    row.booking = booking if row.carried is None else add(booking, row.carried.booking)
    row.ended_at = at
    waits = row.booking.unsettled_tokens or row.booking.unsettled_nanos
    row.state = CallState.UNSETTLED if waits else CallState.SETTLED
    row.expires_at = at + expire_after if waits else None


def _put_attempts(books: Books, order: Settle) -> None:
    for attempt in order.attempts:
        books.put_attempt(attempt)


def _put_content(books: Books, row: CallRow, order: Settle) -> None:
    keeps = bool(order.outcome_json or order.provider_body) and order.content_seconds > 0
    if keeps:
        row.content_expires_at = order.at + order.content_seconds * SECOND
        row.content_gone = ""
    elif row.content_expires_at is None:
        return
    # Without a content of its own, an outcome must not be shown with that of an earlier dispatch.
    books.put_content(
        ContentRow(
            tenant=row.tenant,
            call_id=row.call_id,
            generation=row.generation,
            outcome_json=order.outcome_json if keeps else b"",
            provider_body=order.provider_body if keeps else b"",
        )
    )


def raise_figures(books: Books, row: CallRow, figures: Figures, *, by: str, reason: str = "") -> bool:
    """Make the figures of a call that has ended truer; return whether they were.

    An exact figure of an operator is about the whole row. Any other is about the last dispatch, and leaves what earlier
    ones left behind.
    """
    is_exact = figures.certainty != Certainty.AT_LEAST.value
    is_about_all = is_exact and by == OPERATOR
    carries_doubt = row.carried is not None and not row.carried.booking.is_settled
    is_news = is_truer(figures, row.figures) or (is_about_all and carries_doubt)
    if row.state <= CallState.DISPATCHED or not is_news:
        return False
    before = entry_of(row)
    if is_about_all:
        row.carried = None
    row.hold = in_told_currency(row.hold, figures)
    carried = row.carried.booking if row.carried is not None else NOTHING
    booking = add(raise_booking(without(row.booking, carried), row.hold, figures), carried)
    row.figures = figures
    row.booking = booking
    row.reconciled_by = by
    row.reconcile_reason = reason
    if booking.is_settled:
        row.state = CallState.RECONCILED
        row.expires_at = None
    books.update(row, before)
    return True
