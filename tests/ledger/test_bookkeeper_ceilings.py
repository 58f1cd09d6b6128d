"""Ceilings and halts: who is let out, who is refused and told why, and what counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modelmeter_server.core.ceilings import Amount, Halt, Scope, Subject, Window, WindowKind
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.windows import QUARTER, quarter_of
from modelmeter_server.ledger.commands import DropCeiling, DropHalt, PutCeiling, PutHalt, WriteOff
from modelmeter_server.ledger.replies import Admitted, Denied
from tests.support.ledger_orders import (
    HOLD,
    NOTHING_BILLED,
    NOW,
    SECOND,
    answering,
    ceiling,
    failing,
    first_ref,
    ref_of,
    reserving,
    told,
)
from tests.support.memory_ledger import MemoryLedger

HOUR = 3600 * SECOND
DAY = Window(kind=WindowKind.DAY)
ROLLING = Window(kind=WindowKind.ROLLING, seconds=3600)


@pytest.fixture(params=[True, False], ids=["looks up who is governed", "does not"])
def ledger(request) -> MemoryLedger:
    ledger = MemoryLedger(tells_governed=request.param)
    ledger.register(NOW + 1000 * HOUR)
    return ledger


def setting(**fields) -> PutCeiling:
    return PutCeiling(ceiling=ceiling(**fields))


def tell(ledger: MemoryLedger, *commands):
    return ledger.apply(list(commands), 1)


def admitted(ledger: MemoryLedger, *orders) -> list[bool]:
    return [isinstance(reply, Admitted) for reply in tell(ledger, *orders)]


def several(count: int, **fields) -> list:
    return [reserving(f"c{number}", **fields) for number in range(count)]


def test_a_batch_is_let_out_in_order_until_nothing_is_left(ledger):
    tell(ledger, setting(tokens=400))
    assert admitted(ledger, *several(4)) == [True, True, False, False]


def test_a_refusal_tells_where_the_account_stands(ledger):
    tell(ledger, setting(tokens=299, window=DAY))
    ref = first_ref(reserving("c0"))
    tell(ledger, reserving("c0"))
    tell(ledger, answering(ref, told(10, 5)))
    tell(ledger, reserving("c1"))
    (reply,) = tell(ledger, reserving("c2"))
    (standing,) = reply.standings
    numbers = (standing.allowed, standing.settled, standing.held, standing.unsettled, standing.asked)
    assert (reply.kind, numbers, standing.room) == (Kind.CEILING, (299, 15, 150, 0, 150), 134)
    assert standing.room_at == NOW // (24 * HOUR) * 24 * HOUR + 24 * HOUR
    assert "tenant" in reply.message


def test_every_ceiling_without_room_is_told_and_none_is_charged(ledger):
    tell(
        ledger,
        setting(tokens=100, nano_units=2_499),
        setting(scope="MODEL", name="large", tokens=1_000, ceiling_id="c2"),
        setting(scope="RUN", name="run", tokens=149, ceiling_id="c3"),
    )
    (reply,) = tell(ledger, reserving(key="k"))
    assert [(each.subject.scope, each.currency) for each in reply.standings] == [
        ("TENANT", ""),
        ("TENANT", "USD"),
        ("RUN", ""),
    ]
    assert all(window.held_tokens == 0 for window in ledger.windows())
    assert not ledger.calls()


def test_money_and_tokens_are_bounded_each(ledger):
    tell(ledger, setting(nano_units=5_000))
    assert admitted(ledger, *several(3)) == [True, True, False]
    assert ledger.windows()[0].held_nanos == 5_000


def test_exactly_what_is_left_is_enough(ledger):
    tell(ledger, setting(tokens=150, nano_units=2_500))
    assert admitted(ledger, reserving()) == [True]


def test_a_ceiling_on_every_run_counts_each_by_itself(ledger):
    tell(ledger, setting(scope="RUN", tokens=150))
    orders = [reserving(f"c{i}", run=run, key=f"k{i}") for i, run in enumerate(["a", "b", "a"])]
    assert admitted(ledger, *orders, reserving("free")) == [True, True, False, True]
    assert sorted(window.name for window in ledger.windows()) == ["a", "b"]


def test_ceilings_of_another_tenant_or_model_do_not_matter(ledger):
    tell(
        ledger,
        setting(tenant="other", tokens=0),
        setting(scope="MODEL", name="small", tokens=0, ceiling_id="c2"),
    )
    assert admitted(ledger, reserving(), reserving("small", model="small")) == [True, False]


# Settlements


def test_a_settlement_gives_back_what_was_held_too_much(ledger):
    tell(ledger, setting(tokens=200))
    tell(ledger, reserving("c0"))
    tell(ledger, answering(first_ref(reserving("c0")), told(10, 5)))
    assert admitted(ledger, *several(2)[1:]) == [True]


def test_a_settlement_books_the_truth_also_above_the_ceiling(ledger):
    tell(ledger, setting(tokens=150))
    tell(ledger, reserving("c0"), answering(first_ref(reserving("c0")), told(300, 50)))
    assert ledger.windows()[0].settled_tokens == 350
    (reply,) = tell(ledger, reserving("c1"))
    assert reply.standings[0].room == 0


@pytest.mark.parametrize("kind", ["REFUSED", "RATE_LIMITED", "UNREACHABLE"])
def test_failures_that_cost_nothing_lock_nobody_out(ledger, kind):
    tell(ledger, setting(tokens=150))
    for order in several(20):
        assert admitted(ledger, order) == [True]
        tell(ledger, failing(first_ref(order), kind, NOTHING_BILLED, landed=False))


def test_an_error_of_the_provider_holds_nothing_and_is_counted(ledger):
    tell(ledger, setting(tokens=150))
    for order in several(3):
        assert admitted(ledger, order) == [True]
        tell(ledger, failing(first_ref(order), "UNAVAILABLE", landed=False, refused_by_provider=True))
    (tenant,) = [each for each in ledger.spend() if each.dimension == "TENANT"]
    assert (tenant.possibly_billed_calls, tenant.unsettled_tokens) == (3, 0)


def test_a_bound_that_expired_leaves_the_ceiling(ledger):
    tell(ledger, setting(tokens=200))
    tell(ledger, reserving("c0"))
    tell(ledger, failing(first_ref(reserving("c0")), "UNAVAILABLE", landed=False, generating_seconds=1.0))
    assert ledger.windows()[0].unsettled_tokens == 110
    assert admitted(ledger, reserving("c1")) == [False]
    assert tell(ledger, WriteOff(at=NOW + 24 * HOUR - 1), WriteOff(at=NOW + 24 * HOUR)) == [0, 1]
    assert admitted(ledger, reserving("c1")) == [True]
    (tenant,) = [each for each in ledger.spend() if each.dimension == "TENANT"]
    assert tenant.written_off_tokens == 110


# Windows


def test_a_ceiling_that_is_set_later_counts_what_was_there(ledger):
    tell(ledger, reserving("c0", at=NOW - 48 * HOUR), reserving("c1"))
    replies = tell(ledger, reserving("c2"), setting(tokens=500, window=DAY), reserving("c3"), reserving("c4"))
    assert isinstance(replies[2], Admitted)
    assert isinstance(replies[3], Denied)
    assert replies[3].standings[0].held == 450, "those of today, of the batch itself too"


def test_a_new_day_has_new_room(ledger):
    tell(ledger, setting(tokens=150, window=DAY))
    assert admitted(ledger, *several(2)) == [True, False]
    assert admitted(ledger, reserving("c2", at=NOW + 24 * HOUR)) == [True]


def test_a_rolling_window_lets_go_of_a_step_when_it_says(ledger):
    tell(ledger, setting(tokens=300, window=ROLLING))
    tell(ledger, reserving("c0"), reserving("c1", at=NOW + QUARTER))
    (reply,) = tell(ledger, reserving("c2", at=NOW + 2 * QUARTER))
    room_at = reply.standings[0].room_at
    assert room_at == quarter_of(NOW) + QUARTER + HOUR - 1
    assert admitted(ledger, reserving("c2", at=room_at - 1)) == [False]
    assert admitted(ledger, reserving("c2", at=room_at)) == [True]


def test_a_call_that_is_dispatched_again_takes_what_it_left_to_its_new_window(ledger):
    tell(ledger, setting(tokens=250, window=DAY))
    tell(ledger, reserving())
    tell(ledger, failing(first_ref(reserving()), "UNAVAILABLE", landed=False, generating_seconds=1.0))
    (reply,) = tell(ledger, reserving(at=NOW + 24 * HOUR))
    assert reply.kind is Kind.CEILING, "110 are left behind and 150 are asked for"
    tell(ledger, setting(tokens=260, window=DAY))
    assert admitted(ledger, reserving(at=NOW + 24 * HOUR)) == [True]
    windows = {window.starts_at < NOW: window for window in ledger.windows()}
    assert (windows[True].unsettled_tokens, windows[False].unsettled_tokens) == (0, 110)


# The call's own ceiling, and clamping


@pytest.mark.parametrize(
    ("own", "flags", "fits"),
    [
        (Amount(tokens=150), {"bounds_tokens": True}, True),
        (Amount(tokens=149), {"bounds_tokens": True}, False),
        (Amount(tokens=0), {}, True),
        (Amount(nano_units=2_500, currency="USD"), {"bounds_money": True}, True),
        (Amount(nano_units=2_499, currency="USD"), {"bounds_money": True}, False),
    ],
)
def test_a_call_may_bound_itself(ledger, own, flags, fits):
    (reply,) = tell(ledger, reserving(ceiling=own, **flags))
    assert isinstance(reply, Admitted) is fits
    if not fits:
        assert reply.standings[0].subject == Subject("acme", Scope.CALL.value, "call")


def test_output_is_clamped_to_what_all_ceilings_leave(ledger):
    tell(ledger, setting(tokens=140), setting(scope="MODEL", name="large", nano_units=1_900, ceiling_id="c2"))
    own: dict[str, Any] = {"ceiling": Amount(tokens=135), "bounds_tokens": True}
    (refused,) = tell(ledger, reserving(least_output=31, **own))
    (reply,) = tell(ledger, reserving(least_output=30, **own))
    assert refused.kind is Kind.CEILING
    assert reply.output_tokens == 30
    (row,) = ledger.calls()
    assert (row.hold.tokens, row.booking.held_nanos) == (130, 1_900)


@pytest.mark.parametrize("currency", ["", "EUR"])
def test_a_ceiling_on_money_refuses_what_has_no_price_in_its_currency(ledger, currency):
    tell(ledger, setting(nano_units=10**9))
    hold = msgspec.structs.replace(HOLD, currency=currency, nano_units=0, input_nano_units=0, output_rate=0)
    (reply,) = tell(ledger, reserving(hold=hold))
    assert reply.kind is Kind.REFUSED
    assert "tenant" in reply.message
    assert "USD" in reply.message


# Soft limits


def test_each_share_of_a_ceiling_is_told_once_in_its_window(ledger):
    tell(ledger, setting(tokens=600, window=DAY))
    passed = [[limit.percent for limit in reply.soft_limits] for reply in tell(ledger, *several(4))]
    assert passed == [[], [50], [], [100]]
    tell(ledger, answering(first_ref(reserving("c0")), told(0, 0)))
    assert tell(ledger, reserving("c4"))[0].soft_limits == ()
    tomorrow = several(3, at=NOW + 24 * HOUR)
    for number, order in enumerate(tomorrow):
        order = msgspec.structs.replace(order, call=type(order.call)("acme", f"t{number}"))
        (reply,) = tell(ledger, order)
        assert [limit.percent for limit in reply.soft_limits] == [[], [50], []][number]


def test_a_settlement_above_its_reservation_tells_what_it_passed(ledger):
    tell(ledger, setting(tokens=1_000))
    tell(ledger, reserving())
    changes = ledger.decide([answering(first_ref(reserving()), told(700, 100))], 1)
    (limit,) = changes.soft_limits
    assert (limit.percent, limit.ceiling_id, limit.standing.settled) == (80, "c1", 800)


def test_a_rolling_window_tells_again_only_when_the_step_that_told_is_gone(ledger):
    tell(ledger, setting(tokens=300, window=ROLLING))
    times = [0, 1, 6]
    told_at = [
        [limit.percent for limit in tell(ledger, reserving(f"c{n}", at=NOW + n * QUARTER))[0].soft_limits]
        for n in times
    ]
    assert told_at == [[50], [100], [50]]


# Setting and deleting


def test_a_ceiling_with_the_same_subject_window_and_currency_is_replaced(ledger):
    (first,) = tell(ledger, setting(tokens=150))
    tell(ledger, reserving("c0"))
    (second,) = tell(ledger, setting(tokens=300, ceiling_id="another"))
    assert (second.ceiling_id, second.tokens) == (first.ceiling_id, 300)
    assert admitted(ledger, *several(3)[1:]) == [True, False]
    (other,) = tell(ledger, setting(tokens=300, nano_units=1, ceiling_id="another"))
    assert other.ceiling_id == "another"


def test_a_deleted_ceiling_bounds_nothing_and_leaves_no_window(ledger):
    tell(ledger, setting(tokens=150))
    replies = tell(
        ledger,
        reserving("c0"),
        reserving("c1"),
        DropCeiling(tenant="acme", ceiling_id="c1"),
        DropCeiling(tenant="acme", ceiling_id="c1"),
        reserving("c2"),
    )
    assert [isinstance(reply, Admitted) for reply in replies] == [True, False, False, False, True]
    assert replies[2:4] == [True, False]
    assert not ledger.windows()
    assert tell(ledger, DropCeiling(tenant="other", ceiling_id="c1")) == [False]


@pytest.mark.parametrize(
    "subject",
    [Subject("acme", "TENANT", ""), Subject("acme", "RUN", "run"), Subject("acme", "MODEL", "large")],
)
def test_a_halt_stops_new_calls_with_its_reason_until_it_is_cleared(ledger, subject):
    halt = Halt(subject=subject, reason="looping")
    tell(ledger, reserving("before", key="k0"))
    halted = tell(ledger, PutHalt(halt=halt), reserving(key="k"), reserving(tenant="other", key="k"))
    (later,) = tell(ledger, reserving(key="k"))
    assert [type(reply) for reply in halted] == [bool, Denied, Admitted]
    assert halted[1].kind is later.kind is Kind.HALTED
    assert "looping" in later.message
    assert tell(ledger, answering(first_ref(reserving("before")), told(1, 1))) == [True], (
        "those under way may end"
    )
    assert tell(ledger, DropHalt(subject=subject), DropHalt(subject=subject)) == [True, False]
    assert admitted(ledger, reserving(key="k")) == [True]


def test_a_call_dispatched_again_under_an_alias_counts_where_it_counted(ledger):
    tell(ledger, setting(scope="MODEL", name="large", tokens=150, window=DAY))
    tell(ledger, reserving())
    tell(ledger, failing(first_ref(reserving()), "REFUSED", NOTHING_BILLED, landed=False))
    again = reserving(model="alias", at=NOW + 24 * HOUR)
    assert ref_of(again, tell(ledger, again)[0]).dispatch == 2
    assert admitted(ledger, reserving("c1", at=NOW + 24 * HOUR)) == [False]
