"""What becomes of admitted calls: dispatch, checkpoints, settlement, servers that die, truer figures, write-off."""

from __future__ import annotations

import msgspec
import pytest

from modelmeter_server.core.journal import CallKey, CallState
from modelmeter_server.core.outcomes import Code
from modelmeter_server.ledger.commands import CloseServer, Reconcile, WriteOff
from modelmeter_server.ledger.rows import CallRow
from tests.support.ledger_orders import (
    NOTHING_BILLED,
    NOTHING_TOLD,
    NOW,
    SECOND,
    answering,
    attempt_of,
    dispatching,
    failing,
    first_ref,
    noting,
    reserving,
    told,
)
from tests.support.memory_ledger import MemoryLedger

HOUR = 3600 * SECOND
LEASE = NOW + 10 * SECOND
REF = first_ref(reserving())


@pytest.fixture
def ledger() -> MemoryLedger:
    """Return a ledger with two servers and one call, reserved by the first."""
    ledger = MemoryLedger()
    ledger.register(LEASE)
    ledger.register(NOW + HOUR)
    ledger.apply([reserving()], 1)
    return ledger


def tell(ledger: MemoryLedger, *commands, own: int = 1):
    return ledger.apply(list(commands), own)


def only(ledger: MemoryLedger) -> CallRow:
    (row,) = ledger.calls()
    return row


def give_up(ledger: MemoryLedger, at: int = NOW + HOUR) -> CallRow:
    """Close the first server and return what became of its call."""
    assert tell(ledger, CloseServer(owner=1, at=at), CloseServer(owner=1, at=at), own=2) == [1, 0]
    return only(ledger)


def reconcile(ledger: MemoryLedger, figures, by: str = "provider", **more):
    (reply,) = tell(ledger, Reconcile(call=CallKey("acme", "call"), at=NOW, figures=figures, by=by, **more))
    return reply


# Under way


def test_a_request_leaves_only_after_its_row_says_so(ledger):
    assert tell(ledger, dispatching(REF, at=NOW + 1)) == [True]
    row = only(ledger)
    (attempt,) = ledger.attempts()
    assert (row.state, row.dispatched_at, row.attempts_total) == (CallState.DISPATCHED, NOW + 1, 1)
    assert (attempt.number, attempt.started_at, attempt.elapsed) == (1, NOW + 1, None)


@pytest.mark.parametrize(
    "ref",
    [
        msgspec.structs.replace(REF, dispatch=2),
        msgspec.structs.replace(REF, owner=2),
        msgspec.structs.replace(REF, generation=2),
        msgspec.structs.replace(REF, call=CallKey("acme", "nobody")),
    ],
)
def test_nothing_leaves_for_a_call_that_is_not_its_servers(ledger, ref):
    assert tell(ledger, dispatching(ref)) == [False]
    assert only(ledger).state == CallState.RESERVED


def test_nothing_leaves_for_a_call_that_has_ended(ledger):
    assert tell(ledger, answering(REF, told(1, 1)), dispatching(REF)) == [True, False]


def test_a_checkpoint_never_takes_a_figure_back(ledger):
    tell(ledger, dispatching(REF), noting(REF, told(10, 5, "AT_LEAST")), noting(REF, told(10, 3, "AT_LEAST")))
    assert only(ledger).figures == told(10, 5, "AT_LEAST")
    tell(ledger, noting(REF, NOTHING_TOLD, generated=False))
    assert only(ledger).generated
    assert only(ledger).booking.held_tokens == 150, "held until the end"


# Settlement


def test_an_outcome_is_booked_once(ledger):
    order = answering(REF, told(10, 5), at=NOW + SECOND)
    assert tell(ledger, dispatching(REF), order, order) == [True, True, True]
    row = only(ledger)
    assert (row.state, row.booking.settled_tokens, row.booking.settled_nanos) == (CallState.SETTLED, 15, 250)
    assert row.content_expires_at == NOW + HOUR + SECOND
    assert tell(ledger, answering(REF, told(99, 99))) == [True]
    assert only(ledger) == row


def test_an_outcome_of_an_unknown_call_is_not_settled(ledger):
    stranger = msgspec.structs.replace(REF, call=CallKey("acme", "nobody"))
    assert tell(ledger, answering(stranger, told(1, 1))) == [False]


def test_an_outcome_cannot_untell_what_a_checkpoint_told(ledger):
    tell(ledger, dispatching(REF), noting(REF, told(10, 5, "AT_LEAST")))
    tell(ledger, failing(REF, "UNAVAILABLE", NOTHING_BILLED, landed=False))
    assert only(ledger).booking.settled_tokens == 15


def test_a_bound_waits_a_day_for_its_figure(ledger):
    tell(ledger, failing(REF, "UNACCOUNTED", landed=True, at=NOW + 5, generating_seconds=1.0))
    row = only(ledger)
    assert (row.state, row.booking.unsettled_tokens) == (CallState.UNSETTLED, 110)
    assert row.expires_at == NOW + 5 + 24 * HOUR


def test_silent_attempts_before_the_last_one_stay_bounded(ledger):
    silent = attempt_of(REF, NOTHING_TOLD, kind="UNAVAILABLE", stage="WRITTEN", elapsed=2.0)
    refused = attempt_of(REF, NOTHING_TOLD, number=2, kind="UNAVAILABLE", stage="HEADERS", http_status=503)
    last = attempt_of(REF, told(10, 5), number=3)
    order = answering(REF, told(10, 5))
    tell(ledger, msgspec.structs.replace(order, attempts=(silent, refused, last)))
    booking = only(ledger).booking
    assert (booking.settled_tokens, booking.unsettled_tokens, booking.possibly_billed) == (15, 120, 1)
    assert only(ledger).attempts_total == 3


# A server that died


def test_a_call_that_was_never_sent_cost_nothing(ledger):
    row = give_up(ledger)
    assert (row.state, row.kind, row.disposition) == (CallState.SETTLED, "UNREACHABLE", "DID_NOT_HAPPEN")
    assert (row.figures.certainty, row.stage, row.code) == ("NONE", "NOT_WRITTEN", Code.UNAVAILABLE)
    assert row.booking.settled_tokens == row.booking.held_tokens == row.booking.unsettled_tokens == 0


@pytest.mark.parametrize(
    ("note", "kind", "disposition", "stage", "settled", "unsettled"),
    [
        (None, "UNAVAILABLE", "IN_DOUBT", "WRITTEN", 0, 150),
        (noting(REF, NOTHING_TOLD), "UNACCOUNTED", "LANDED", "OUTPUT", 0, 150),
        (noting(REF, told(10, 5, "AT_LEAST")), "INTERRUPTED", "LANDED", "OUTPUT", 15, 45),
        (noting(REF, told(10, 5)), "INTERRUPTED", "LANDED", "OUTPUT", 15, 0),
    ],
)
def test_a_call_that_was_sent_is_given_up_by_what_it_had_told(
    ledger, note, kind, disposition, stage, settled, unsettled
):
    tell(ledger, dispatching(REF), *([note] if note else []))
    row = give_up(ledger)
    assert (row.kind, row.disposition, row.stage, row.cause) == (kind, disposition, stage, "DRAIN")
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (settled, unsettled)
    assert row.state == (CallState.UNSETTLED if unsettled else CallState.SETTLED)
    (attempt,) = ledger.attempts()
    assert (attempt.kind, attempt.elapsed, attempt.figures) == (kind, None, row.figures)


def test_time_bounds_what_a_dead_server_may_have_let_generate(ledger):
    tell(ledger, dispatching(REF, at=LEASE - 2 * SECOND))
    assert give_up(ledger).booking.unsettled_tokens == 100 + 2 * 10


def test_only_the_attempts_without_an_end_are_ended(ledger):
    tell(ledger, dispatching(REF), dispatching(REF, number=2), noting(REF, told(10, 5, "AT_LEAST")))
    give_up(ledger)
    assert [(each.number, each.figures.tokens) for each in ledger.attempts()] == [(1, 0), (2, 15)]


def test_a_lease_that_was_renewed_is_respected_and_an_own_one_may_be_given_back(ledger):
    ledger.renew(1, NOW + HOUR)
    assert tell(ledger, CloseServer(owner=1, at=NOW + HOUR - 1), own=2) == [0]
    assert only(ledger).state == CallState.RESERVED
    assert tell(ledger, CloseServer(owner=1, at=NOW), CloseServer(owner=1, at=NOW), own=1) == [1, 0]
    assert ledger.servers[1].closed


def test_calls_of_a_dead_server_are_given_up_some_at_a_time(ledger):
    ledger.apply([reserving(f"c{number}") for number in range(4)], 1)
    closing = CloseServer(owner=1, at=NOW + HOUR)
    closed = [ledger.apply([closing], 2, limit=2)[0] for _ in range(4)]
    assert closed == [2, 2, 1, 0]
    assert ledger.servers[1].closed


def test_a_call_reserved_in_the_batch_that_gives_its_server_up_is_given_up_too(ledger):
    closing = CloseServer(owner=1, at=NOW + HOUR)
    assert tell(ledger, reserving("late"), closing, closing, own=2)[1:] == [2, 0]
    assert {row.state for row in ledger.calls()} == {CallState.SETTLED}


def test_a_late_settlement_makes_the_figures_truer_and_leaves_the_outcome(ledger):
    tell(ledger, dispatching(REF), noting(REF, told(10, 5, "AT_LEAST")))
    give_up(ledger)
    tell(ledger, answering(REF, told(10, 20)))
    row = only(ledger)
    assert (row.state, row.kind, row.reconciled_by) == (CallState.RECONCILED, "INTERRUPTED", "late")
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens, row.expires_at) == (30, 0, None)
    assert ledger.attempts()[0].figures == told(10, 20)
    assert not ledger.contents()


@pytest.mark.parametrize("figures", [told(10, 4, "AT_LEAST"), NOTHING_TOLD, NOTHING_BILLED])
def test_a_late_settlement_never_lowers(ledger, figures):
    tell(ledger, dispatching(REF), noting(REF, told(10, 5, "AT_LEAST")))
    before = give_up(ledger)
    tell(ledger, failing(REF, "INTERRUPTED", figures, landed=True))
    assert only(ledger) == before


@pytest.mark.parametrize(("figures", "rest"), [(told(200, 5, "AT_LEAST"), 10), (NOTHING_TOLD, 110)])
def test_a_late_settlement_bounds_what_was_generated_after_the_call_was_given_up(ledger, figures, rest):
    """The lease ended at the moment of the dispatch; the call went on for a second, at 10 tokens a second."""
    ledger.renew(1, NOW)
    tell(ledger, dispatching(REF))
    assert give_up(ledger).booking.unsettled_tokens == 100
    late = failing(REF, "INTERRUPTED", figures, landed=True, generating_seconds=1.0)
    assert tell(ledger, late, late) == [True, True]
    row = only(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (figures.tokens, rest)
    assert (row.state, row.expires_at is None) == (CallState.UNSETTLED, False)


def test_a_late_word_that_nothing_was_sent_frees_the_bound(ledger):
    tell(ledger, dispatching(REF))
    give_up(ledger)
    tell(ledger, failing(REF, "UNREACHABLE", NOTHING_BILLED, landed=False))
    row = only(ledger)
    assert (row.booking.unsettled_tokens, row.state, row.disposition) == (0, CallState.RECONCILED, "IN_DOUBT")


# Truer figures


def test_an_exact_figure_replaces_the_bound_also_after_it_was_written_off(ledger):
    tell(ledger, failing(REF, "UNACCOUNTED", landed=True, generating_seconds=1.0), WriteOff(at=NOW))
    assert tell(ledger, WriteOff(at=NOW + 25 * HOUR)) == [1]
    assert only(ledger).booking.written_off_tokens == 110
    reply = reconcile(ledger, told(10, 5), by="operator", reason="the bill of March")
    row = only(ledger)
    assert reply.raised
    assert reply.row == row
    assert (row.state, row.booking.settled_tokens, row.booking.written_off_tokens) == (
        CallState.RECONCILED,
        15,
        0,
    )
    assert (row.reconciled_by, row.reconcile_reason) == ("operator", "the bill of March")


def test_a_lower_bound_gives_nothing_back(ledger):
    tell(ledger, failing(REF, "INTERRUPTED", told(10, 5, "AT_LEAST"), landed=True, generating_seconds=4.0))
    assert not reconcile(ledger, told(10, 5, "AT_LEAST")).raised
    assert reconcile(ledger, told(10, 15, "AT_LEAST")).raised
    row = only(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (25, 30)
    assert (row.state, row.expires_at) == (CallState.UNSETTLED, NOW + 24 * HOUR)


def test_an_exact_figure_stays(ledger):
    tell(ledger, answering(REF, told(10, 5)))
    assert not reconcile(ledger, told(99, 99)).raised
    assert reconcile(ledger, told(99, 99), generation=2) is None
    assert only(ledger).booking.settled_tokens == 15


def test_a_call_under_way_is_not_reconciled(ledger):
    assert not reconcile(ledger, told(9, 9)).raised
    assert only(ledger).booking.held_tokens == 150


@pytest.mark.parametrize(
    ("by", "settled", "unsettled", "state"), [("provider", 15, 110, 4), ("operator", 15, 0, 5)]
)
def test_a_provider_speaks_of_the_last_dispatch_and_an_operator_of_all(ledger, by, settled, unsettled, state):
    silent = failing(REF, "UNAVAILABLE", landed=False, generating_seconds=1.0)
    tell(ledger, silent, reserving())
    ref = msgspec.structs.replace(REF, dispatch=2)
    tell(ledger, failing(ref, "UNACCOUNTED", landed=True, generating_seconds=2.0))
    assert only(ledger).booking.unsettled_tokens == 110 + 120
    reconcile(ledger, told(10, 5), by=by)
    row = only(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens, row.state) == (
        settled,
        unsettled,
        state,
    )


def test_what_waits_is_written_off_some_at_a_time(ledger):
    for number in range(3):
        order = reserving(f"c{number}")
        tell(ledger, order, failing(first_ref(order), "UNACCOUNTED", landed=True))
    written_off = [ledger.apply([WriteOff(at=NOW + 25 * HOUR)], 1, limit=2)[0] for _ in range(3)]
    assert written_off == [2, 1, 0]
