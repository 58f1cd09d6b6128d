"""What the ledger's rows must be, judged by the books of the provider that served the calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelmeter import AsyncClient, Completion, ModelmeterError
from modelmeter.enums import CallState, Cause, Certainty, ErrorKind
from modelmeter.records import LedgerCall
from modelmeter.results import Usage

from .telling_provider import Served, Told

OPEN = (CallState.RESERVED, CallState.DISPATCHED)


def told_by(usage: Usage) -> Told:
    """Return input and output."""
    return usage.input_tokens, usage.output_tokens


async def calls_of(client: AsyncClient) -> dict[str, LedgerCall]:
    """Return every call by its id; AssertionError if one is there twice."""
    rows = [row async for row in client.ledger.list_calls(page_size=1000)]
    found = {row.call_id: row for row in rows}
    assert len(found) == len(rows)
    return found


async def calls_when_ended(client: AsyncClient, at_least: Iterable[str] = ()) -> dict[str, LedgerCall]:
    """Wait until no call is under way any more and these are there, and return all."""
    wanted = set(at_least)
    while True:
        found = await calls_of(client)
        if wanted <= set(found) and not any(row.state in OPEN for row in found.values()):
            return found


def require_true(row: LedgerCall, served: Served) -> None:
    """Hold one row, of a call that has ended, against what the provider did for it."""
    figures, booked = told_by(row.usage), row.booking
    assert served.requests <= 1, f"{row.call_id} was bought {served.requests} times"
    assert row.attempts_total >= served.requests, f"{row.call_id} was sent and not written down"
    assert booked.held.tokens == 0, f"{row.call_id} holds what it does not use any more"
    assert booked.settled.tokens == sum(figure or 0 for figure in figures), f"{row.call_id}: {row}"
    if figures != (None, None):
        assert figures in served.told, f"{row.call_id}: {figures} was never told, but {served}"
    if row.certainty is Certainty.EXACT:
        assert served.stopped, f"{row.call_id} is EXACT without a stop"
        assert figures == served.told[-1], f"{row.call_id}: {figures} is not the last of {served}"
    if served.generated:
        assert booked.settled.tokens + booked.unsettled.tokens > 0, f"{row.call_id} is free: {row}"


def require_all_true(rows: Mapping[str, LedgerCall], books: Mapping[str, Served]) -> None:
    """Hold the ledger against the books: every call that was sent is there, none twice, none free, each figure told."""
    missing = set(books) - set(rows)
    assert not missing, f"sent and not in the ledger: {missing}"
    for call_id, row in rows.items():
        require_true(row, books.get(call_id, Served()))


def was_given_up(row: LedgerCall) -> bool:
    """Say whether the ledger closed a call whose server had lost its lease; no server of these tests drains."""
    return row.cause is Cause.DRAIN


def require_as_told(row: LedgerCall, heard: Completion | ModelmeterError) -> None:
    """Hold one row against what its caller was told last.

    A call that was given up before it ended, because its server was late for its lease, keeps that outcome; what it
    told later makes its figures true.
    """
    if was_given_up(row):
        assert not isinstance(heard, Completion) or row.certainty is heard.certainty, (row, heard)
        return
    if isinstance(heard, ModelmeterError):
        assert (row.kind, row.certainty) == (heard.kind, heard.certainty), (row, heard)
    else:
        assert row.kind is ErrorKind.UNSPECIFIED, (row, heard)
        assert row.certainty is heard.certainty, (row, heard)
    assert told_by(row.usage) == told_by(heard.usage), (row, heard)


async def require_sums(client: AsyncClient, rows: Mapping[str, LedgerCall]) -> None:
    """Hold the sums against the rows."""
    spend = await client.ledger.spend()
    bookings = [row.booking for row in rows.values()]
    assert sum(each.calls for each in spend) == len(rows)
    for column in ("settled", "held", "unsettled"):
        in_sums = sum(getattr(each, column).tokens for each in spend)
        assert in_sums == sum(getattr(booked, column).tokens for booked in bookings), column
