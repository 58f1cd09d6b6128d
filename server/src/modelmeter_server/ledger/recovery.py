"""Calls that nobody ends any more: those of a server that died, and bounds that have waited long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.errors import TABLE
from modelmeter_server.core.journal import CallState
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind, Stage
from modelmeter_server.core.settlement import NOTHING, End, Figures, Tried, book, write_off
from modelmeter_server.core.windows import SECOND

from .books import rebook
from .progress import end_call, in_told_currency
from .spending import entry_of

if TYPE_CHECKING:
    from .books import Books
    from .commands import CloseServer
    from .rows import CallRow, ServerRow

_NEVER_SENT = "the server that had admitted the call stopped before it was sent"
_NO_OTHER = "the server that ran the call stopped before it was tried again"
_GIVEN_UP = "the server that ran the call stopped and did not say how it ended"


def close_server(books: Books, order: CloseServer, *, own: int, expire_after: int, limit: int) -> int:
    """Give up open calls of a server, and the server itself once it has none; return how many calls were.

    A lease that was renewed in the meantime is respected; a server gives its own up at any time. One that was fenced
    off before, and so is closed already, may have open calls left all the same.
    """
    server = books.servers.get(order.owner)
    if server is None:
        return 0
    if not server.closed and order.owner != own and server.lease_until > order.at:
        return 0
    rows = [
        row for row in books.rows.values() if row.owner == order.owner and row.state <= CallState.DISPATCHED
    ]
    for row in rows[:limit]:
        _give_up(books, row, server, at=order.at, expire_after=expire_after)
    if not rows:
        books.close_server(server)
    return min(limit, len(rows))


def _give_up(books: Books, row: CallRow, server: ServerRow, *, at: int, expire_after: int) -> None:
    """End a call by what its checkpoints told: the ladder, with the lease's end as the end of the call."""
    before = entry_of(row)
    was_sent = row.state == CallState.DISPATCHED
    if row.tried is not None and not was_sent:
        _end_between(row, row.tried, at=at, expire_after=expire_after)
        books.update(row, before)
        return
    kind = _kind_of(row) if was_sent else Kind.UNREACHABLE
    figures = row.figures
    if not was_sent:
        figures = Figures(certainty=Certainty.NONE.value)
    row.kind = kind.value
    row.cause = Cause.DRAIN.value
    row.stage = _stage_of(row, was_sent=was_sent).name
    row.disposition = _disposition_of(kind, was_sent=was_sent).value
    row.code = TABLE[kind].code
    row.message = _GIVEN_UP if was_sent else _NEVER_SENT
    row.hold = in_told_currency(row.hold, figures)
    silent = max(0, min(server.lease_until, at) - (row.dispatched_at or at)) / SECOND
    end = End(kind=row.kind, generated=row.generated, written=was_sent, generating_seconds=silent)
    end_call(row, figures, book(row.hold, figures, end), at=at, expire_after=expire_after)
    _end_attempts(books, row)
    books.update(row, before)


def _end_between(row: CallRow, tried: Tried, *, at: int, expire_after: int) -> None:
    """End a call whose server died while it waited for its next attempt: as the one before ended."""
    row.kind = tried.kind
    row.cause = tried.cause
    row.stage = tried.stage
    row.disposition = tried.disposition
    row.code = tried.code
    row.message = f"{tried.message}; {_NO_OTHER}"
    end_call(row, Figures(certainty=Certainty.NONE.value), NOTHING, at=at, expire_after=expire_after)


def _kind_of(row: CallRow) -> Kind:
    if row.told.certainty in (Certainty.EXACT.value, Certainty.AT_LEAST.value):
        return Kind.INTERRUPTED
    return Kind.UNACCOUNTED if _has_generated(row) else Kind.UNAVAILABLE


def _has_generated(row: CallRow) -> bool:
    return row.generated or (row.tried is not None and row.tried.generated)


def _stage_of(row: CallRow, *, was_sent: bool) -> Stage:
    if not was_sent:
        return Stage.NOT_WRITTEN
    is_proven = _has_generated(row) or row.told.certainty != Certainty.UNKNOWN.value
    return Stage.OUTPUT if is_proven else Stage.WRITTEN


def _disposition_of(kind: Kind, *, was_sent: bool) -> Disposition:
    if kind is Kind.UNAVAILABLE and was_sent:
        return Disposition.IN_DOUBT
    return TABLE[kind].disposition or Disposition.IN_DOUBT


def _end_attempts(books: Books, row: CallRow) -> None:
    """Say of each attempt that had no end what became of the call; the last one has its figures."""
    attempts = books.attempts_of(row)
    for attempt in attempts:
        if attempt.elapsed is None and not attempt.kind:
            is_last = attempt is attempts[-1]
            books.put_attempt(
                msgspec.structs.replace(
                    attempt,
                    kind=row.kind,
                    cause=row.cause,
                    stage=row.stage,
                    figures=row.figures if is_last else attempt.figures,
                )
            )


def write_off_expired(books: Books, at: int, limit: int) -> int:
    """Write off what nobody told in time; return how many calls were."""
    expired = [
        row
        for row in books.rows.values()
        if row.state == CallState.UNSETTLED and row.expires_at is not None and row.expires_at <= at
    ][:limit]
    for row in expired:
        if row.carried is not None:
            row.carried = msgspec.structs.replace(row.carried, booking=write_off(row.carried.booking))
        row.state = CallState.WRITTEN_OFF
        row.expires_at = None
        rebook(books, row, write_off(row.booking))
    return len(expired)
