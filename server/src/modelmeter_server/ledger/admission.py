"""Whether a call may be sent: what the journal answers for it, halts, ceilings, and the row that lets it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.ceilings import Scope, Subject
from modelmeter_server.core.journal import CallState, OnLandedError
from modelmeter_server.core.outcomes import Disposition, Kind

from .books import copy_of
from .replies import Admitted, Denied, Recorded, ReserveReply, UnderWay
from .room import bounds_for, fitted, passed_limits, without_room
from .rows import Booking, CallRow, Carried, ContentRow, Figures, Hold
from .spending import entry_of, told_tokens

if TYPE_CHECKING:
    from .books import Books
    from .commands import Reserve

_NOT = Disposition.DID_NOT_HAPPEN.value
EFFECT_FIELD = "effect"
"""What differs when a call id comes again with another effect, or with none."""


def reserve(books: Books, order: Reserve, *, again: bool) -> ReserveReply:
    """Answer for a call from the journal, or hold room for it.

    `again`: the batch was tried before, so that a row of this very order may stand in the database already.
    """
    if books.is_fenced(order.owner):
        return Denied(kind=Kind.LEDGER_DOWN, message="this server lost its lease on the ledger")
    row, conflict = _find(books, order)
    if conflict is not None:
        return conflict
    if row is None:
        return _missed() if order.replay_only else _admit(books, order, None, generation=1)
    if CallState(row.state).is_open:
        is_own = row.owner == order.owner and row.reserved_at == order.at and row.state == CallState.RESERVED
        if again and is_own and books.is_untouched(row):
            return _admitted(row)
        return UnderWay(call_id=row.call_id, owner=row.owner)
    return _repeat(books, order, row)


def _repeat(books: Books, order: Reserve, row: CallRow) -> ReserveReply:
    """Answer for a call that has ended."""
    if row.disposition == _NOT:
        if order.replay_only:
            return _missed()
        # Sums are kept in one currency for each row: what was booked in another stays with the old generation.
        is_elsewhere = row.hold.currency != order.hold.currency and _has_money(row.booking)
        generation = row.generation + 1 if is_elsewhere else row.generation
        return _admit(books, order, row, generation=generation)
    wants_retry = order.effect is not None and order.effect.on_landed_error is OnLandedError.RETRY
    if row.kind and wants_retry and not order.replay_only:
        return _admit(books, order, row, generation=row.generation + 1)
    content = books.content_of(row)
    if books.is_content_gone(row, order.at) or (content is None and not row.kind):
        return Denied(
            kind=Kind.OUTCOME_GONE,
            message="the outcome of this call was recorded and its content is no longer kept",
            row=copy_of(row),
        )
    return Recorded(row=copy_of(row), content=content)


def _has_money(booking: Booking) -> bool:
    return bool(booking.settled_nanos or booking.unsettled_nanos or booking.written_off_nanos)


def _missed() -> Denied:
    return Denied(
        kind=Kind.REPLAY_MISS, message="only replay was asked for, and no outcome of this call is recorded"
    )


def _find(books: Books, order: Reserve) -> tuple[CallRow | None, Denied | None]:
    """Return the newest generation of the call or of its effect, or why it is another request's."""
    effect, call = order.effect, order.call
    by_call = books.newest.get((call.tenant, call.call_id))
    by_effect = None
    if effect is not None:
        by_effect = books.by_effect.get((call.tenant, effect.run_id, effect.key))
    if by_effect is not None and by_effect.digest != order.digest:
        return None, _differs(Kind.DIVERGED, order, by_effect)
    if by_call is not None and by_call is not by_effect:
        if by_call.digest != order.digest:
            return None, _differs(Kind.CALL_ID_CONFLICT, order, by_call)
        asked = (effect.run_id, effect.key) if effect is not None else ("", "")
        if asked != (by_call.run_id, by_call.effect_key):
            return None, _conflict(Kind.CALL_ID_CONFLICT, EFFECT_FIELD)
    return by_effect or by_call, None


def _differs(kind: Kind, order: Reserve, row: CallRow) -> Denied:
    asked, recorded = order.field_digests, row.field_digests
    names = [*asked, *(name for name in recorded if name not in asked)]
    first = next((name for name in names if asked.get(name) != recorded.get(name)), "")
    return _conflict(kind, first)


def _conflict(kind: Kind, field: str) -> Denied:
    key = "effect key" if kind is Kind.DIVERGED else "call id"
    where = f": `{field}` differs" if field else ""
    return Denied(
        kind=kind, message=f"the journal holds another request under this {key}{where}", field=field
    )


def _admit(books: Books, order: Reserve, row: CallRow | None, *, generation: int) -> ReserveReply:
    """Let a call out as a new generation, or as a new dispatch of the generation that did not happen."""
    is_new = row is None or generation > row.generation
    effect = order.effect
    run_id = effect.run_id if effect is not None else ""
    model = order.model
    if row is not None and not is_new:
        run_id, model = row.run_id, row.model
    if stopped := halted(books, order.call.tenant, run_id, model):
        return stopped
    bounds = bounds_for(books, order, model, run_id, None if is_new else row)
    hold = order.hold
    if bounds:
        for bound in bounds:
            if bound.currency and bound.currency != hold.currency:
                return _unpriced(hold, bound.subject, bound.currency)
        fitting = fitted(hold, bounds, order.least_output)
        if fitting is None:
            standings = without_room(hold, bounds)
            return Denied(kind=Kind.CEILING, message=_no_room(standings[0].subject), standings=standings)
        hold = fitting
    if row is None or is_new:
        row = _insert(books, order, hold, row, generation)
    else:
        _dispatch_again(books, order, hold, row)
    return _admitted(row, books, order.at)


def _admitted(row: CallRow, books: Books | None = None, at: int = 0) -> Admitted:
    return Admitted(
        generation=row.generation,
        dispatch=row.dispatch,
        output_tokens=row.hold.output_tokens,
        call_id=row.call_id,
        attempts=row.attempts_total,
        soft_limits=passed_limits(books, row, at)
        if books is not None and row.tenant in books.governed
        else (),
    )


def halted(books: Books, tenant: str, run_id: str, model: str) -> Denied | None:
    """Return why an operator's halt lets nothing be sent; `None` where none stands."""
    if tenant not in books.governed:
        return None
    for subject in books.subjects_of(tenant, run_id, model):
        halt = books.halts.get(subject)
        if halt is not None:
            reason = f": {halt.reason}" if halt.reason else ""
            return Denied(kind=Kind.HALTED, message=f"an operator has stopped {_name(subject)}{reason}")
    return None


def _name(subject: Subject) -> str:
    if subject.scope == Scope.TENANT.value:
        return "this tenant"
    if subject.scope == Scope.CALL.value:
        return "this call"
    return f"{subject.scope.lower()} `{subject.name}`" if subject.name else "all runs of this tenant"


def _no_room(subject: Subject) -> str:
    return f"the ceiling of {_name(subject)} has no room for the call"


def _unpriced(hold: Hold, subject: Subject, currency: str) -> Denied:
    why = f"is priced in {hold.currency}" if hold.currency else "has no price"
    message = f"the ceiling of {_name(subject)} is in {currency} and the model {why}: it needs a price in {currency}"
    return Denied(kind=Kind.REFUSED, message=message)


def _insert(books: Books, order: Reserve, hold: Hold, earlier: CallRow | None, generation: int) -> CallRow:
    effect = order.effect
    row = CallRow(
        tenant=order.call.tenant,
        call_id=order.call.call_id if earlier is None else earlier.call_id,
        generation=generation,
        run_id=effect.run_id if effect is not None else "",
        effect_key=effect.key if effect is not None else "",
        owner=order.owner,
        operation=order.operation,
        model=order.model,
        identity=order.identity,
        target=order.target,
        reserved_at=order.at,
        digest=order.digest,
        field_digests=order.field_digests,
        labels=order.labels,
        hold=hold,
        booking=_held(hold),
    )
    books.insert(row)
    return row


def _held(hold: Hold, carried: Booking = Booking()) -> Booking:  # noqa: B008 - frozen
    return Booking(
        settled_tokens=carried.settled_tokens,
        settled_nanos=carried.settled_nanos,
        held_tokens=hold.tokens,
        held_nanos=hold.nano_units,
        unsettled_tokens=carried.unsettled_tokens,
        unsettled_nanos=carried.unsettled_nanos,
        written_off_tokens=carried.written_off_tokens,
        written_off_nanos=carried.written_off_nanos,
        possibly_billed=carried.possibly_billed,
    )


def _dispatch_again(books: Books, order: Reserve, hold: Hold, row: CallRow) -> None:
    """Let a generation that did not happen out once more; what it left behind stays booked.

    Its model as asked, its run and its labels stay those that its sums are kept under.
    """
    before = entry_of(row)
    read, written = told_tokens(row)
    row.carried = Carried(booking=row.booking, input_tokens=read, output_tokens=written)
    if row.carried == Carried():
        row.carried = None
    row.booking = _held(hold, row.booking)
    row.hold = hold
    row.dispatch += 1
    row.state = CallState.RESERVED
    row.owner = order.owner
    row.target = order.target
    row.reserved_at = order.at
    row.dispatched_at = row.ended_at = row.expires_at = None
    row.generated = False
    row.figures = Figures()
    row.kind = row.cause = row.stage = row.disposition = row.message = row.finish = ""
    row.code = 0
    row.model_served = row.provider_code = row.provider_request_id = row.provider_response_id = ""
    row.http_status = row.first_token_seconds = None
    row.queue_seconds = row.total_seconds = 0.0
    row.landing = row.reconciled_by = row.reconcile_reason = ""
    if row.content_expires_at is not None:
        # The error body of a dispatch before is not to be shown as this one's.
        books.put_content(
            ContentRow(tenant=row.tenant, call_id=row.call_id, generation=row.generation, outcome_json=b"")
        )
    books.update(row, before)
