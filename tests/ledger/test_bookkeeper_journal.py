"""What the journal answers for a call that comes again."""

from __future__ import annotations

from typing import Any

import pytest

from modelmeter_server.core.journal import OnLandedError
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.ledger.commands import CloseServer, Erase
from modelmeter_server.ledger.replies import Admitted, Denied, Recorded, UnderWay
from tests.support.ledger_orders import (
    HOLD,
    NOTHING_BILLED,
    NOTHING_TOLD,
    NOW,
    SECOND,
    answering,
    dispatching,
    failing,
    first_ref,
    noting,
    ref_of,
    reserving,
    told,
)
from tests.support.memory_ledger import MemoryLedger

RETRY: dict[str, Any] = {"on": {"on_landed_error": OnLandedError.RETRY}}
HOUR = 3600 * SECOND


@pytest.fixture
def ledger() -> MemoryLedger:
    ledger = MemoryLedger()
    ledger.register(NOW + HOUR)
    ledger.register(NOW + HOUR)
    return ledger


def ask(ledger: MemoryLedger, order, **options):
    (reply,) = ledger.apply([order], 1, **options)
    return reply


def answered(ledger: MemoryLedger, order):
    """Let a call be answered, and return how its server refers to it."""
    ref = ref_of(order, ask(ledger, order))
    ledger.apply([dispatching(ref), answering(ref, told(10, 5))], 1)
    return ref


def failed(ledger: MemoryLedger, order, kind: str, figures=NOTHING_TOLD, *, landed: bool):
    ref = ref_of(order, ask(ledger, order))
    ledger.apply([dispatching(ref), failing(ref, kind, figures, landed=landed)], 1)
    return ref


def test_a_call_that_runs_is_joined_and_not_bought_again(ledger):
    assert isinstance(ask(ledger, reserving()), Admitted)
    assert ask(ledger, reserving(owner=2)) == UnderWay(call_id="call", owner=1)
    assert len(ledger.calls()) == 1


def test_an_answer_is_replayed(ledger):
    answered(ledger, reserving())
    reply = ask(ledger, reserving(at=NOW + SECOND))
    assert isinstance(reply, Recorded)
    assert reply.content is not None
    assert (reply.content.outcome_json, reply.row.figures) == (b"{}", told(10, 5))


def test_an_effect_is_answered_under_every_call_id(ledger):
    answered(ledger, reserving("first", key="k"))
    reply = ask(ledger, reserving("second", key="k"))
    assert isinstance(reply, Recorded)
    assert reply.row.call_id == "first"
    assert len(ledger.calls()) == 1


def test_an_effect_that_runs_is_joined_under_its_own_id(ledger):
    ask(ledger, reserving("first", key="k"))
    assert ask(ledger, reserving("second", key="k")) == UnderWay(call_id="first", owner=1)


def test_another_tenant_learns_nothing(ledger):
    answered(ledger, reserving(key="k"))
    assert isinstance(ask(ledger, reserving(key="k", tenant="other", digest="d2")), Admitted)


@pytest.mark.parametrize("kind", ["REFUSED", "RATE_LIMITED", "UNREACHABLE"])
def test_what_did_not_happen_is_dispatched_again_under_the_same_row(ledger, kind):
    failed(ledger, reserving(), kind, NOTHING_BILLED, landed=False)
    reply = ask(ledger, reserving())
    assert (reply.generation, reply.dispatch, reply.attempts) == (1, 2, 1)
    (row,) = ledger.calls()
    assert (row.state, row.kind, row.disposition, row.message) == (1, "", "", "")
    ref = ref_of(reserving(), reply)
    ledger.apply([dispatching(ref, number=2), answering(ref, told(10, 5))], 1)
    assert [(each.dispatch, each.number) for each in ledger.attempts()] == [(1, 1), (2, 2), (2, 1)]


def test_what_an_earlier_dispatch_left_is_never_lost(ledger):
    ref = ref_of(reserving(), ask(ledger, reserving()))
    ledger.apply([failing(ref, "UNAVAILABLE", landed=False, generating_seconds=1.0)], 1)
    again = ref_of(reserving(), ask(ledger, reserving()))
    (row,) = ledger.calls()
    assert (row.booking.unsettled_tokens, row.booking.held_tokens) == (110, 150)
    ledger.apply([answering(again, told(10, 5))], 1)
    (row,) = ledger.calls()
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens, row.state) == (15, 110, 4)


def test_what_a_refusal_cost_stays_settled_beside_the_answer(ledger):
    failed(ledger, reserving(), "REFUSED", told(7, 0), landed=False)
    answered(ledger, reserving())
    (row,) = ledger.calls()
    assert row.booking.settled_tokens == 7 + 15
    assert row.figures == told(10, 5)
    (tenant,) = [each for each in ledger.spend() if each.dimension == "TENANT"]
    assert (tenant.calls, tenant.input_tokens, tenant.output_tokens, tenant.settled_tokens) == (1, 17, 5, 22)


@pytest.mark.parametrize("kind", ["INTERRUPTED", "UNACCOUNTED", "UNUSABLE"])
def test_a_landed_error_is_pinned(ledger, kind):
    failed(ledger, reserving(key="k"), kind, landed=True)
    reply = ask(ledger, reserving("other", key="k"))
    assert isinstance(reply, Recorded)
    assert (reply.row.kind, reply.content) == (kind, None)


def test_a_landed_error_is_bought_once_more_only_when_its_effect_says_so(ledger):
    first = failed(ledger, reserving(key="k"), "INTERRUPTED", told(10, 2, "AT_LEAST"), landed=True)
    reply = ask(ledger, reserving("other", key="k", **RETRY))
    assert (reply.generation, reply.dispatch, reply.call_id) == (2, 1, "call")
    ref = ref_of(reserving("other", key="k"), reply)
    ledger.apply([answering(ref, told(10, 5))], 1)
    assert [row.booking.settled_tokens for row in ledger.calls()] == [12, 15], "both are billed"
    repeated = ask(ledger, reserving(key="k", **RETRY))
    assert isinstance(repeated, Recorded), "an answer is not bought again"
    assert repeated.row.generation == 2
    assert ledger.apply([answering(first, told(10, 9))], 1) == [True]


# Conflicts


@pytest.mark.parametrize(
    ("again", "kind", "field"),
    [
        (
            reserving(digest="d2", field_digests={"model": "m1", "prompt": "p2"}),
            Kind.CALL_ID_CONFLICT,
            "prompt",
        ),
        (
            reserving(digest="d2", field_digests={"model": "m2", "prompt": "p2"}),
            Kind.CALL_ID_CONFLICT,
            "model",
        ),
        (
            reserving(digest="d2", field_digests={"model": "m1", "prompt": "p1", "seed": "s"}),
            Kind.CALL_ID_CONFLICT,
            "seed",
        ),
        (reserving(digest="d2", field_digests={"model": "m1"}), Kind.CALL_ID_CONFLICT, "prompt"),
        (reserving(key="k"), Kind.CALL_ID_CONFLICT, "effect"),
    ],
)
def test_a_call_id_belongs_to_one_request(ledger, again, kind, field):
    answered(ledger, reserving())
    reply = ask(ledger, again)
    assert (reply.kind, reply.field) == (kind, field)
    assert field in reply.message


def test_an_effect_key_belongs_to_one_request(ledger):
    answered(ledger, reserving(key="k"))
    fields = {"model": "m1", "prompt": "p2"}
    reply = ask(ledger, reserving("other", key="k", digest="d2", field_digests=fields))
    assert (reply.kind, reply.field) == (Kind.DIVERGED, "prompt")
    without = ask(ledger, reserving())
    assert (without.kind, without.field) == (Kind.CALL_ID_CONFLICT, "effect")
    elsewhere = ask(ledger, reserving(key="k2"))
    assert (elsewhere.kind, elsewhere.field) == (Kind.CALL_ID_CONFLICT, "effect")


def test_the_call_id_of_another_effect_is_a_conflict_also_beside_a_recorded_effect(ledger):
    answered(ledger, reserving("one", key="k1"))
    answered(ledger, reserving("two", key="k2"))
    reply = ask(ledger, reserving("two", key="k1"))
    assert (reply.kind, reply.field) == (Kind.CALL_ID_CONFLICT, "effect")


# Content that is gone


@pytest.mark.parametrize(
    "erase", [Erase(tenant="acme"), Erase(tenant="acme", call_id="call"), Erase(tenant="acme", run_id="run")]
)
def test_an_erased_answer_is_refused_with_its_bill(ledger, erase):
    answered(ledger, reserving(key="k"))
    erased, reply = ledger.apply([erase, reserving(key="k")], 1)
    later = ask(ledger, reserving(key="k"))
    assert erased == 1
    for gone in (reply, later):
        assert gone.kind is Kind.OUTCOME_GONE
        assert gone.row.booking.settled_tokens == 15


def test_an_expired_answer_is_gone_before_it_is_swept(ledger):
    answered(ledger, reserving())
    assert isinstance(ask(ledger, reserving(at=NOW + HOUR - 1)), Recorded)
    assert ask(ledger, reserving(at=NOW + HOUR)).kind is Kind.OUTCOME_GONE
    assert ledger.apply([Erase(expired_at=NOW + HOUR)], 1) == [1]
    assert ledger.calls()[0].content_gone == "expired"


def test_an_answer_that_was_not_kept_is_gone(ledger):
    ref = ref_of(reserving(), ask(ledger, reserving()))
    ledger.apply([answering(ref, told(1, 1), content=b"")], 1)
    assert ask(ledger, reserving()).kind is Kind.OUTCOME_GONE


def test_an_outcome_is_not_shown_with_the_content_of_an_earlier_dispatch(ledger):
    ref = ref_of(reserving(), ask(ledger, reserving()))
    kept: dict[str, Any] = {"outcome_json": b"refused", "content_seconds": 3600}
    ledger.apply([failing(ref, "REFUSED", NOTHING_BILLED, landed=False, **kept)], 1)
    failed(ledger, reserving(), "UNACCOUNTED", landed=True)
    assert ask(ledger, reserving()).content is None


# Replay only


def test_replay_alone_answers_and_never_buys(ledger):
    assert ask(ledger, reserving(replay_only=True)).kind is Kind.REPLAY_MISS
    failed(ledger, reserving("refused"), "REFUSED", NOTHING_BILLED, landed=False)
    assert ask(ledger, reserving("refused", replay_only=True)).kind is Kind.REPLAY_MISS
    failed(ledger, reserving("died", key="k"), "UNACCOUNTED", landed=True)
    assert isinstance(ask(ledger, reserving("died", key="k", replay_only=True, **RETRY)), Recorded)


# A batch


def test_commands_of_one_batch_see_each_other(ledger):
    order = reserving(key="k")
    ref = first_ref(order)
    replies = ledger.apply(
        [order, order, dispatching(ref), noting(ref, told(1, 1)), answering(ref, told(2, 2)), order], 1
    )
    assert [type(reply) for reply in replies] == [Admitted, UnderWay, bool, type(None), bool, Recorded]


def test_a_batch_that_is_tried_again_admits_its_own_rows(ledger):
    order = reserving()
    first = ask(ledger, order)
    assert ask(ledger, order, again=True) == first
    assert isinstance(ask(ledger, reserving(owner=2), again=True), UnderWay)
    assert isinstance(ask(ledger, reserving(at=NOW + 1), again=True), UnderWay)
    assert isinstance(ask(ledger, order), UnderWay)


def test_one_round_of_loading_is_enough_without_ceilings(ledger):
    order = reserving(key="k")
    ref = first_ref(order)
    ledger.apply([order, dispatching(ref), noting(ref, told(1, 1)), answering(ref, told(2, 2))], 1)
    assert ledger.loads == 1


# Currencies


def test_a_call_is_dispatched_again_as_a_new_generation_when_its_currency_changed(ledger):
    failed(ledger, reserving(), "REFUSED", told(7, 0), landed=False)
    euro = reserving(hold=type(HOLD)(input_tokens=1, output_tokens=1, currency="EUR", tokens_per_second=1))
    assert ask(ledger, euro).generation == 2
    assert {row.hold.currency for row in ledger.calls()} == {"USD", "EUR"}


def test_a_call_without_a_price_takes_the_currency_of_the_cost_that_was_told(ledger):
    free = type(HOLD)(input_tokens=1, output_tokens=1, tokens_per_second=1)
    ref = ref_of(reserving(), ask(ledger, reserving(hold=free)))
    ledger.apply([answering(ref, told(10, 5))], 1)
    sums = {each.currency: each for each in ledger.spend() if each.dimension == "TENANT"}
    assert (sums["USD"].calls, sums["USD"].settled_nanos, sums[""].calls) == (1, 250, 0)


def test_a_server_that_was_given_up_is_not_admitted(ledger):
    assert ledger.apply([CloseServer(owner=1, at=NOW)], 2) == [0]
    assert isinstance(ask(ledger, reserving()), Admitted), "its lease holds"
    ledger.apply([CloseServer(owner=1, at=NOW + 2 * HOUR), CloseServer(owner=1, at=NOW + 2 * HOUR)], 2)
    reply = ask(ledger, reserving("next"))
    assert isinstance(reply, Denied)
    assert reply.kind is Kind.LEDGER_DOWN
