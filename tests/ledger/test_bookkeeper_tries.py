"""A call that is tried again: each attempt is booked once, beside what is held for the next one."""

from __future__ import annotations

import msgspec
import pytest

from modelmeter_server.core.ceilings import Amount, Halt, HaltMode, Scope, Subject
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.ledger.commands import Again, CloseServer, PutCeiling, PutHalt
from modelmeter_server.ledger.replies import Denied
from tests.support.ledger_orders import (
    HOLD,
    NOTHING_BILLED,
    NOTHING_TOLD,
    NOW,
    SECOND,
    answering,
    attempt_of,
    ceiling,
    dispatching,
    failing,
    first_ref,
    noting,
    resending,
    reserving,
    told,
    trying,
)
from tests.support.memory_ledger import MemoryLedger

ORDER = reserving()
REF = first_ref(ORDER)
BLANK = told(30, 5)
"""An attempt that was billed: 35 tokens."""


@pytest.fixture
def ledger() -> MemoryLedger:
    """Return a ledger with one call on its way to the provider."""
    made = MemoryLedger()
    made.register(NOW + 10 * SECOND)
    made.apply([ORDER, dispatching(REF)], 1)
    return made


def tell(ledger: MemoryLedger, *commands):
    return ledger.apply(list(commands), 1)


def row_in(ledger: MemoryLedger):
    (row,) = ledger.calls()
    return row


def test_what_an_attempt_cost_stays_booked_beside_the_hold_of_the_next(ledger):
    assert tell(ledger, trying(REF, "UNUSABLE", BLANK, landed=True)) == [True]
    row = row_in(ledger)
    assert (row.booking.settled_tokens, row.booking.held_tokens) == (35, HOLD.tokens)
    assert (row.told.tokens, row.figures.tokens) == (35, 0)


def test_an_attempt_that_comes_again_is_booked_once(ledger):
    order = trying(REF, "UNUSABLE", BLANK, landed=True)
    assert tell(ledger, order, order) == [True, True]
    assert row_in(ledger).booking.settled_tokens == 35


def test_the_answer_after_it_adds_up(ledger):
    last = attempt_of(REF, told(40, 20), number=2)
    order = msgspec.structs.replace(answering(REF, told(40, 20)), number=2, attempts=(last,))
    tell(ledger, trying(REF, "UNUSABLE", BLANK, landed=True), dispatching(REF, number=2), order)
    row = row_in(ledger)
    assert row.booking.settled_tokens == 95
    assert row.booking.held_tokens == row.booking.unsettled_tokens == 0
    assert (row.told.certainty, row.told.input_tokens, row.told.output_tokens) == ("EXACT", 70, 25)
    assert [(each.number, each.kind) for each in ledger.attempts()] == [(1, "UNUSABLE"), (2, "")]


def test_an_outcome_about_an_attempt_that_is_booked_already_is_not_booked_again(ledger):
    order = msgspec.structs.replace(failing(REF, "UNUSABLE", BLANK, landed=True), number=1)
    tell(ledger, trying(REF, "UNUSABLE", BLANK, landed=True), order)
    row = row_in(ledger)
    assert (row.booking.settled_tokens, row.booking.held_tokens) == (35, 0)
    assert (row.kind, row.told.tokens, row.told.certainty) == ("UNUSABLE", 35, "EXACT")


def test_silence_stays_unsettled_beside_the_answer(ledger):
    order = msgspec.structs.replace(
        answering(REF, told(40, 20)), number=2, attempts=(attempt_of(REF, told(40, 20), number=2),)
    )
    tell(ledger, trying(REF, "UNAVAILABLE", NOTHING_TOLD, seconds=1.0), dispatching(REF, number=2), order)
    row = row_in(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (60, HOLD.input_tokens + 10)
    assert row.told.certainty == "AT_LEAST"


def may_follow(ledger: MemoryLedger, order: Again) -> Kind | bool:
    (reply,) = tell(ledger, order)
    return reply.kind if isinstance(reply, Denied) else reply


@pytest.mark.parametrize(("room", "may"), [(HOLD.tokens + 35, True), (HOLD.tokens + 34, False)])
def test_a_ceiling_must_have_room_for_both(ledger, room, may):
    tell(ledger, PutCeiling(ceiling=ceiling(tokens=room)))
    before = row_in(ledger)
    assert may_follow(ledger, trying(REF, "UNUSABLE", BLANK, landed=True)) is (may or Kind.CEILING)
    assert (row_in(ledger) == before) is not may


@pytest.mark.parametrize(("room", "may"), [(HOLD.nano_units + 450, True), (HOLD.nano_units + 449, False)])
def test_the_calls_own_ceiling_must_have_it_too(ledger, room, may):
    own = Amount(tokens=0, nano_units=room, currency="USD")
    order = trying(REF, "UNUSABLE", BLANK, landed=True, ceiling=own, bounds_money=True)
    assert may_follow(ledger, order) is (may or Kind.CEILING)


def test_an_attempt_that_cost_nothing_asks_for_no_room(ledger):
    tell(ledger, PutCeiling(ceiling=ceiling(tokens=1)))
    assert tell(ledger, trying(REF, "RATE_LIMITED", NOTHING_BILLED)) == [True]


def test_a_server_that_lost_its_lease_tries_nothing_again(ledger):
    ledger.register(NOW + 100 * SECOND)
    ledger.apply([CloseServer(owner=1, at=NOW + 20 * SECOND)], 2)
    assert may_follow(ledger, trying(REF, "RATE_LIMITED", NOTHING_BILLED)) is Kind.LEDGER_DOWN


@pytest.mark.parametrize("mode", list(HaltMode))
def test_under_a_halt_of_either_mode_nothing_is_tried_again(ledger, mode):
    about = Subject(REF.call.tenant, Scope.TENANT.value, "")
    tell(ledger, PutHalt(halt=Halt(subject=about, mode=mode, reason="enough")))
    before = row_in(ledger)
    assert may_follow(ledger, trying(REF, "RATE_LIMITED", NOTHING_BILLED)) is Kind.HALTED
    assert row_in(ledger) == before


# A server that dies


def given_up(ledger: MemoryLedger):
    ledger.register(NOW + 100 * SECOND)
    ledger.apply([CloseServer(owner=1, at=NOW + 20 * SECOND)], 2)
    return row_in(ledger)


def test_between_two_attempts_the_call_ended_as_the_first_one_did(ledger):
    tell(ledger, trying(REF, "UNUSABLE", BLANK, landed=True))
    row = given_up(ledger)
    assert (row.kind, row.disposition, row.told.certainty) == ("UNUSABLE", "LANDED", "EXACT")
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens, row.booking.held_tokens) == (35, 0, 0)
    assert "stopped before it was tried again" in row.message


def test_within_the_second_attempt_the_first_ones_landing_is_not_forgotten(ledger):
    tell(ledger, trying(REF, "UNACCOUNTED", NOTHING_TOLD, landed=True), dispatching(REF, number=2))
    row = given_up(ledger)
    assert (row.kind, row.disposition) == ("UNACCOUNTED", "LANDED")


def test_within_the_second_attempt_its_checkpoints_count_beside_the_first(ledger):
    tell(ledger, trying(REF, "UNUSABLE", BLANK, landed=True), dispatching(REF, number=2))
    tell(ledger, noting(REF, told(40, 2, "AT_LEAST")))
    row = given_up(ledger)
    assert (row.kind, row.told.certainty, row.told.tokens) == ("INTERRUPTED", "AT_LEAST", 77)
    assert row.booking.settled_tokens == 77


RESENT = resending(REF, at=NOW + SECOND)
"""The first request had a second to generate 10 tokens."""
FIRST = HOLD.input_tokens + 10


def test_what_a_request_may_have_cost_whose_connection_died_is_booked_before_it_leaves_again(ledger):
    assert tell(ledger, RESENT, RESENT) == [True, True]
    row = row_in(ledger)
    assert (row.booking.held_tokens, row.booking.unsettled_tokens) == (HOLD.tokens, FIRST)
    assert (row.attempts_total, row.state.name) == (2, "DISPATCHED")


@pytest.mark.parametrize(("room", "may"), [(HOLD.tokens + FIRST, True), (HOLD.tokens + FIRST - 1, False)])
def test_a_ceiling_must_have_room_for_a_request_that_leaves_again(ledger, room, may):
    tell(ledger, PutCeiling(ceiling=ceiling(tokens=room)))
    before = row_in(ledger)
    (reply,) = tell(ledger, RESENT)
    assert (reply is True) is may
    assert may or (reply.kind, row_in(ledger)) == (Kind.CEILING, before)


@pytest.mark.parametrize(("room", "may"), [(HOLD.tokens + FIRST, True), (HOLD.tokens + FIRST - 1, False)])
def test_so_must_the_calls_own_ceiling(ledger, room, may):
    own = Amount(tokens=room)
    (reply,) = tell(ledger, resending(REF, at=NOW + SECOND, ceiling=own, bounds_tokens=True))
    assert (reply is True) is may


@pytest.mark.parametrize("mode", list(HaltMode))
def test_under_a_halt_of_either_mode_nothing_leaves_again(ledger, mode):
    subject = Subject(tenant="acme", scope=Scope.TENANT.value, name="")
    tell(ledger, PutHalt(halt=Halt(subject=subject, mode=mode)))
    (reply,) = tell(ledger, RESENT)
    assert reply.kind is Kind.HALTED


@pytest.mark.parametrize("end", ["answer", "another attempt"])
def test_its_end_does_not_book_the_first_request_a_second_time(ledger, end):
    lost = attempt_of(REF, NOTHING_TOLD, number=1, kind="UNAVAILABLE", stage="WRITTEN")
    last = attempt_of(REF, told(40, 20), number=2)
    tell(ledger, RESENT)
    if end == "answer":
        order = msgspec.structs.replace(answering(REF, told(40, 20)), number=2, attempts=(lost, last))
        tell(ledger, order)
        assert row_in(ledger).booking.held_tokens == 0
    else:
        another = trying(REF, "UNUSABLE", told(40, 20), last, landed=True)
        assert tell(ledger, msgspec.structs.replace(another, attempts=(lost, last))) == [True]
    row = row_in(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (60, FIRST)


def test_a_server_that_dies_after_it_sent_anew_leaves_the_bounds_of_both(ledger):
    tell(ledger, RESENT, CloseServer(owner=1, at=NOW + 20 * SECOND))
    row = row_in(ledger)
    assert row.booking.held_tokens == 0
    assert row.booking.unsettled_tokens > FIRST + HOLD.input_tokens
