"""R-U7: which JSON values are counters, and what their sums are."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX, counter, saturating_add

COUNTERS = st.integers(0, INT64_MAX)


@given(COUNTERS)
def test_a_whole_number_up_to_int64_is_itself(number: int):
    assert counter(number) == number


@given(st.integers(INT64_MAX))
def test_a_larger_number_saturates(number: int):
    assert counter(number) == INT64_MAX


@given(st.integers(max_value=-1))
def test_a_negative_number_is_not_told(number: int):
    assert counter(number) is None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_float_counts_only_if_it_is_a_whole_number_from_zero_up(number: float):
    whole = math.isfinite(number) and number >= 0 and Fraction(number).denominator == 1
    assert counter(number) == (min(int(number), INT64_MAX) if whole else None)


@pytest.mark.parametrize(
    ("told", "expected"), [(12.0, 12), (-0.0, 0), (0, 0), (1e300, INT64_MAX), (12.5, None)]
)
def test_examples_of_numbers(told: float, expected: int | None):
    assert counter(told) == expected
    assert type(counter(told)) is type(expected)


@pytest.mark.parametrize("told", [True, False, None, "12", "", [1], {"a": 1}, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_told(told: object):
    assert counter(told) is None


@given(st.lists(COUNTERS))
def test_a_sum_is_exact_until_it_saturates(numbers: list[int]):
    assert saturating_add(*numbers) == min(sum(numbers), INT64_MAX)


@given(COUNTERS, COUNTERS, COUNTERS)
def test_addition_is_associative_and_never_shrinks(a: int, b: int, c: int):
    assert saturating_add(saturating_add(a, b), c) == saturating_add(a, saturating_add(b, c))
    assert saturating_add(a, b) >= max(a, b)


def test_the_sum_of_nothing_is_zero():
    assert saturating_add() == 0
