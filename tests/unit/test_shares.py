"""What each of several processes keeps of a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.shares import Share


def test_a_single_process_keeps_the_whole_limit():
    assert Share().of(1000) == 1000


@pytest.mark.parametrize(
    ("limit", "shares"), [(10, [4, 3, 3]), (9, [3, 3, 3]), (3, [1, 1, 1]), (4, [2, 1, 1])]
)
def test_shares_of_a_limit_differ_by_one_at_most_and_the_first_have_more(limit, shares):
    assert [Share(index, 3).of(limit) for index in range(3)] == shares


def test_no_process_is_left_without_anything():
    assert [Share(index, 4).of(2) for index in range(4)] == [1, 1, 1, 1]


@given(count=st.integers(1, 64), spare=st.integers(0, 100_000))
def test_all_shares_together_are_the_limit(count, spare):
    limit = count + spare
    assert sum(Share(index, count).of(limit) for index in range(count)) == limit
