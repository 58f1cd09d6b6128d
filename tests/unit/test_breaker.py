"""A breaker opens for a target that fails, tries it again in time, and closes when it works."""

from __future__ import annotations

import pytest

from modelmeter_server.core.routing import Verdict
from modelmeter_server.engine.breaker import Breaker, BreakerRules, State

RULES = BreakerRules(
    failures=3, least_calls=10, window=10.0, open_seconds=5.0, most_open_seconds=20.0, probes=2
)
GOOD, BAD, NEUTRAL = Verdict.GOOD, Verdict.BAD, Verdict.NEUTRAL


@pytest.fixture
def breaker():
    return Breaker(RULES)


def ended(breaker, now, *verdicts, rest=0.0):
    """Begin and end one call after another."""
    for verdict in verdicts:
        breaker.end(breaker.begin(now), verdict, now, rest)


def opened(breaker, now=0.0):
    ended(breaker, now, BAD, BAD, BAD)
    assert breaker.state(now) is State.OPEN
    return breaker


def test_failures_in_a_row_open_it_and_one_less_does_not(breaker):
    ended(breaker, 0.0, BAD, BAD)
    assert breaker.is_free(0.0)
    ended(breaker, 0.0, BAD)
    assert breaker.state(0.0) is State.OPEN
    assert not breaker.is_free(0.0)


def test_a_success_between_failures_begins_the_count_anew(breaker):
    ended(breaker, 0.0, BAD, BAD, GOOD, BAD, BAD)
    assert breaker.state(0.0) is State.CLOSED


def test_what_says_nothing_of_the_target_neither_counts_nor_breaks_a_row(breaker):
    ended(breaker, 0.0, *[NEUTRAL] * 100, BAD, NEUTRAL, BAD, NEUTRAL)
    assert breaker.state(0.0) is State.CLOSED
    ended(breaker, 0.0, BAD)
    assert breaker.state(0.0) is State.OPEN


def test_a_share_of_failures_opens_it_though_no_row_does(breaker):
    ended(breaker, 0.0, *[GOOD, BAD] * 4, GOOD)
    assert breaker.state(0.0) is State.CLOSED  # 4 of 9
    ended(breaker, 0.0, BAD)
    assert breaker.state(0.0) is State.OPEN  # 5 of 10


def test_a_share_below_the_limit_never_opens_it(breaker):
    ended(breaker, 0.0, *[GOOD, GOOD, BAD] * 100)
    assert breaker.state(0.0) is State.CLOSED


def test_failures_older_than_the_window_are_forgotten(breaker):
    ended(breaker, 0.0, *[GOOD, BAD] * 4)
    ended(breaker, 10.0, GOOD, BAD, GOOD, BAD)
    assert breaker.state(10.0) is State.CLOSED


def test_it_is_open_until_its_time_is_over_and_then_half_open(breaker):
    opened(breaker, 1.0)
    assert breaker.free_at(2.0) == 6.0
    assert breaker.state(5.999) is State.OPEN
    assert breaker.state(6.0) is State.HALF_OPEN
    assert breaker.free_at(7.0) == 7.0


def test_half_open_lets_as_many_in_as_it_has_probes_and_closes_when_all_succeed(breaker):
    opened(breaker)
    first, second = breaker.begin(5.0), breaker.begin(5.0)
    assert not breaker.is_free(5.0)
    breaker.end(first, GOOD, 6.0)
    assert breaker.state(6.0) is State.HALF_OPEN
    assert breaker.is_free(6.0)
    breaker.end(second, GOOD, 6.0)
    assert breaker.state(6.0) is State.CLOSED


def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_the_longest(breaker):
    opened(breaker)
    now, lengths = 0.0, []
    for _ in range(4):
        lengths.append(breaker.free_at(now) - now)
        now = breaker.free_at(now)
        ended(breaker, now, BAD)
    assert lengths == [5.0, 10.0, 20.0, 20.0]


def test_once_it_was_closed_it_begins_with_the_shortest_time_again(breaker):
    opened(breaker)
    ended(breaker, 5.0, BAD)
    ended(breaker, 15.0, GOOD, GOOD)
    assert breaker.state(15.0) is State.CLOSED
    opened(breaker, 16.0)
    assert breaker.free_at(16.0) == 21.0


def test_a_probe_that_its_caller_cut_gives_its_place_back_and_decides_nothing(breaker):
    opened(breaker)
    first, second = breaker.begin(5.0), breaker.begin(5.0)
    breaker.end(first, NEUTRAL, 5.0)
    breaker.end(second, NEUTRAL, 5.0)
    assert breaker.state(5.0) is State.HALF_OPEN
    assert breaker.is_free(5.0)
    ended(breaker, 5.0, GOOD, GOOD)
    assert breaker.state(5.0) is State.CLOSED


@pytest.mark.parametrize("verdict", list(Verdict))
def test_calls_that_began_before_the_change_say_nothing_after_it(breaker, verdict):
    early = [breaker.begin(0.0) for _ in range(10)]
    opened(breaker)
    for permit in early[:5]:
        breaker.end(permit, verdict, 1.0)
    assert breaker.state(1.0) is State.OPEN
    assert breaker.free_at(1.0) == 5.0
    probe = breaker.begin(5.0)
    for permit in early[5:]:
        breaker.end(permit, verdict, 5.0)
    assert breaker.state(5.0) is State.HALF_OPEN
    assert breaker.is_free(5.0)
    breaker.end(probe, GOOD, 5.0)
    assert breaker.state(5.0) is State.HALF_OPEN


def test_a_call_that_had_no_better_target_proves_as_much_as_a_probe(breaker):
    opened(breaker)
    ended(breaker, 1.0, GOOD)
    assert breaker.state(1.0) is State.HALF_OPEN
    ended(breaker, 1.0, GOOD)
    assert breaker.state(1.0) is State.CLOSED


def test_a_call_that_had_no_better_target_and_fails_keeps_it_open_no_longer(breaker):
    opened(breaker)
    ended(breaker, 4.0, *[BAD] * 10)
    assert breaker.free_at(4.0) == 5.0


def test_a_target_that_named_a_wait_rests_for_it_and_stays_closed(breaker):
    ended(breaker, 0.0, NEUTRAL, rest=7.0)
    assert breaker.state(0.0) is State.CLOSED
    assert not breaker.is_free(6.999)
    assert breaker.free_at(1.0) == 7.0
    assert breaker.is_free(7.0)


def test_a_longer_rest_stands_and_no_rest_is_longer_than_the_longest_opening(breaker):
    ended(breaker, 0.0, NEUTRAL, rest=10.0)
    ended(breaker, 0.0, NEUTRAL, rest=1.0)
    assert breaker.free_at(0.0) == 10.0
    ended(breaker, 1.0, NEUTRAL, rest=86_400.0)
    assert breaker.free_at(1.0) == 21.0


def test_every_change_is_told_once_with_both_states():
    told = []
    breaker = Breaker(RULES, lambda before, after: told.append((before.name, after.name)))
    opened(breaker)
    ended(breaker, 5.0, BAD)
    ended(breaker, 15.0, GOOD, GOOD)
    assert told == [
        ("CLOSED", "OPEN"),
        ("OPEN", "HALF_OPEN"),
        ("HALF_OPEN", "OPEN"),
        ("OPEN", "HALF_OPEN"),
        ("HALF_OPEN", "CLOSED"),
    ]


def test_other_rules_hold_at_once_and_the_state_stays(breaker):
    opened(breaker)
    breaker.reconfigure(BreakerRules(failures=1, probes=1))
    assert breaker.state(1.0) is State.OPEN
    assert breaker.free_at(1.0) == 5.0
    ended(breaker, 5.0, GOOD)
    assert breaker.state(5.0) is State.CLOSED
    ended(breaker, 5.0, BAD)
    assert breaker.state(5.0) is State.OPEN
