"""A rate in whole numbers: what passes in a minute, what comes back, and what is owed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.rate import MINUTE, Bucket

SECOND = MINUTE // 60

amounts = st.integers(1, 10_000)
steps = st.lists(st.tuples(st.integers(0, 3 * MINUTE), st.integers(0, 5_000)), max_size=40)


def test_a_full_bucket_gives_a_minutes_worth_at_once_and_then_what_flows_in():
    bucket = Bucket(60, 0)
    for _ in range(60):
        assert bucket.wait(1, 0) == 0
        bucket.take(1, 0)
    assert bucket.wait(1, 0) == SECOND
    assert bucket.wait(1, SECOND - 1) == 1
    assert bucket.wait(1, SECOND) == 0
    assert bucket.left(10 * SECOND) == 10


def test_a_rate_that_divides_no_second_is_exact_over_time():
    bucket = Bucket(7, 0)
    bucket.take(7, 0)
    moment = 0
    for _ in range(700):
        moment += bucket.wait(1, moment)
        bucket.take(1, moment)
    # A wait is rounded up to a nanosecond, and what is there too early is kept: no more than one is lost in all.
    assert 100 * MINUTE <= moment <= 100 * MINUTE + 1


def test_a_wait_that_is_no_whole_number_is_long_enough():
    bucket = Bucket(7, 0)
    bucket.take(7, 0)
    wait = bucket.wait(1, 0)
    assert wait == MINUTE // 7 + 1
    assert (bucket.wait(1, wait - 1), bucket.wait(1, wait)) == (1, 0)


def test_more_than_a_minutes_worth_passes_when_it_is_full_and_is_paid_back():
    bucket = Bucket(100, 0)
    assert bucket.wait(250, 0) == 0
    bucket.take(250, 0)
    assert bucket.left(0) == -150
    assert bucket.wait(1, 0) == 151 * MINUTE // 100
    bucket.take(1, 0)
    assert bucket.wait(250, 0) == 251 * MINUTE // 100


def test_what_is_given_back_never_makes_it_more_than_full():
    bucket = Bucket(10, 0)
    bucket.take(4, 0)
    bucket.give(400, 0)
    assert bucket.left(0) == 10


def test_another_rate_leaves_the_bucket_as_full_as_it_was():
    bucket = Bucket(100, 0)
    bucket.take(75, 0)
    bucket.change(1_000, 0)
    assert bucket.left(0) == 250
    bucket.change(4, 0)
    assert (bucket.left(0), bucket.wait(4, 0)) == (1, 3 * MINUTE // 4)


def test_a_clock_that_stands_still_or_is_late_fills_nothing():
    bucket = Bucket(60, MINUTE)
    bucket.take(60, MINUTE)
    assert bucket.left(MINUTE) == bucket.left(0) == 0


@given(amounts, steps)
def test_who_waits_as_told_gets_it_then_and_not_a_nanosecond_before(rate, told):
    bucket, moment = Bucket(rate, 0), 0
    for later, amount in told:
        moment += later
        wait = bucket.wait(amount, moment)
        if wait:
            assert bucket.wait(amount, moment + wait - 1) > 0
            moment += wait
        assert bucket.wait(amount, moment) == 0
        bucket.take(amount, moment)


@given(amounts, steps)
def test_no_more_passes_than_a_full_bucket_and_what_flowed_in(rate, told):
    bucket, moment, passed = Bucket(rate, 0), 0, 0
    for later, amount in told:
        moment += later
        amount = min(amount, rate)
        if bucket.wait(amount, moment) == 0:
            bucket.take(amount, moment)
            passed += amount
        assert passed * MINUTE <= rate * MINUTE + moment * rate
