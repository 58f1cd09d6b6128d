"""Which told figure replaces which, and the money a provider reports itself."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.usage_meter import RunningTotals, part_of, reported_nanos, told

COUNTS = st.integers(0, 50)
FIGURES = st.dictionaries(st.sampled_from(["a", "b", "out"]), COUNTS)


def meter(*usages: dict[str, Any], at_stop: bool = False) -> RunningTotals:
    totals = RunningTotals(("a", "b"), "out")
    for usage in usages:
        totals.take(usage, at_stop=at_stop)
    return totals


def test_counters_are_read_one_by_one():
    usage = {"a": 1, "b": -1, "c": None, "d": "5", "e": 2.0, "f": True}
    assert told(usage, *"abcdefg") == {"a": 1, "e": 2}


def test_a_part_is_read_only_from_a_detail_object():
    assert part_of({"details": {"cached": 5}}, "details", "cached") == 5
    odd: list[object] = [None, 5, [], {}, {"cached": -1}]
    for details in odd:
        assert part_of({"details": details}, "details", "cached") is None
    assert part_of({}, "details", "cached") is None


@given(st.lists(FIGURES, max_size=6))
def test_a_later_figure_replaces_an_earlier_one_except_for_zeros_after_more(usages: list[dict[str, int]]):
    known: dict[str, int] = {}
    for usage in usages:
        group = {name: usage[name] for name in "ab" if name in usage}
        if any(group.values()) or not any(known.get(name) for name in "ab"):
            known |= group
        if usage.get("out") or not known.get("out"):
            known |= {name: usage[name] for name in ("out",) if name in usage}
    totals = meter(*usages)
    for name in ("a", "b", "out"):
        assert totals.get(name) == known.get(name)


@given(FIGURES, FIGURES)
def test_telling_the_same_again_changes_nothing(first: dict[str, int], second: dict[str, int]):
    totals = meter(first, second)
    changes = totals.changes
    totals.take(second, at_stop=False)
    assert totals.changes == changes


def test_output_is_final_when_told_with_the_stop_reason_and_not_by_a_zero_after_more():
    assert not meter({"out": 5}).output_is_final
    assert meter({"out": 5}, at_stop=True).output_is_final
    assert not meter({"a": 5}, at_stop=True).output_is_final
    totals = meter({"out": 5})
    assert totals.take({"out": 0}, at_stop=True).output is False
    assert not totals.output_is_final
    assert meter({"out": 0}, at_stop=True).output_is_final


def test_a_part_that_was_not_told_is_kept():
    totals = meter()
    totals.remember("part", 7)
    totals.remember("part", None)
    assert totals.get("part") == 7


COSTS = st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False)


@given(COSTS)
def test_a_reported_cost_is_exact_to_the_nano_and_rounded_up(cost: Decimal):
    for spelled in (str(cost), f" {cost} "):
        assert reported_nanos({"cost": spelled}) == ceil(Fraction(cost) * 10**9)


def test_a_reported_cost_is_read_by_its_shortest_decimal_spelling():
    assert reported_nanos({"cost": 0.1}) == 100_000_000
    assert reported_nanos({"cost": 3}) == 3_000_000_000
    assert reported_nanos({"cost": 0.0000000001}) == 1
    assert reported_nanos({"cost": 0}) == 0


def test_no_ambient_decimal_context_changes_a_bill():
    with localcontext() as context:
        context.prec = 3
        assert reported_nanos({"cost": "1.23456789"}) == 1_234_567_890


@pytest.mark.parametrize(
    "odd",
    [
        None,
        True,
        -1,
        "x",
        "NaN",
        "Infinity",
        float("nan"),
        [1],
        {"total": 1},
        1e300,
        "9" * 5000,
        "1e-9" * 9,
        "1_000",
        "\uff11",
        "0x1",
        "",
    ],
)
def test_an_odd_cost_is_none(odd: object):
    assert reported_nanos({"cost": odd}) is None


def test_a_cost_of_absurd_exponents_costs_no_time():
    assert reported_nanos({"cost": "1e-999999999"}) == 1
    assert reported_nanos({"cost": "1e999999999"}) is None
    assert reported_nanos({"cost": "0e999999999"}) == 0


@given(st.integers(0, 10**15))
def test_ticks_are_ten_to_the_minus_ten_dollars_rounded_up(ticks: int):
    assert reported_nanos({"cost_in_usd_ticks": ticks}) == ceil(Fraction(ticks, 10))


def test_a_cost_wins_over_ticks():
    assert reported_nanos({"cost": 1, "cost_in_usd_ticks": 5}) == 10**9
    assert reported_nanos({"cost": "x", "cost_in_usd_ticks": 5}) == 1
    assert reported_nanos({"cost_in_usd_ticks": 10**40}) == ceil(Fraction(INT64_MAX, 10))
