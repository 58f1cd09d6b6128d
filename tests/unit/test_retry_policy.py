"""Which failures are worth another attempt, what one call may ask for, and how its waits are spread."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.errors import TABLE, Failure, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.retry_policy import (
    ONCE,
    RetryAsk,
    RetryPolicy,
    is_worth_another,
    policy_for,
    retry_violations,
    spread,
)
from modelmeter_server.engine.retrying import Retries

LANDED = (Kind.INTERRUPTED, Kind.UNACCOUNTED, Kind.UNUSABLE)
SAFE = (Kind.RATE_LIMITED, Kind.UNREACHABLE, Kind.UNAVAILABLE)
BOLD = RetryPolicy(max_attempts=20, ambiguous=True, landed=True)

asks = st.builds(RetryAsk, max_attempts=st.integers(-5, 30), ambiguous=st.booleans(), landed=st.booleans())
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 20),
    initial_wait=st.floats(0, 30),
    max_wait=st.floats(0, 60),
    ambiguous=st.booleans(),
    landed=st.booleans(),
)


def failed(kind: Kind, cause: Cause = Cause.PROVIDER, **more: Any) -> Failure:
    return failure(kind, "it failed", cause=cause, **more)


def waits(
    policy: RetryPolicy, ended: Failure, call_id: str = "call", left: float | None = None
) -> list[float]:
    """Return every wait of a call whose attempts all end so."""
    retries = Retries(policy, call_id, lambda: left)
    found: list[float] = []
    while (wait := retries.wait_after(ended)) is not None:
        found.append(wait)
    return found


# Whether


@pytest.mark.parametrize("kind", list(Kind))
def test_by_default_nothing_but_what_cannot_have_been_bought_is_tried_again(kind: Kind):
    assert is_worth_another(failed(kind), RetryPolicy(max_attempts=3)) is (kind in SAFE)


@pytest.mark.parametrize("kind", list(Kind))
def test_with_every_opt_in_what_landed_is_tried_again_too(kind: Kind):
    assert is_worth_another(failed(kind), BOLD) is (kind in SAFE + LANDED)


@pytest.mark.parametrize("kind", [Kind.RATE_LIMITED, Kind.UNREACHABLE])
def test_what_no_repetition_mends_is_not_repeated(kind: Kind):
    assert not is_worth_another(failed(kind, retryable=False), BOLD)


@pytest.mark.parametrize("ambiguous", [True, False])
def test_silence_after_a_written_request_is_repeated_only_where_that_is_asked_for(ambiguous: bool):
    silence = failed(Kind.UNAVAILABLE, Cause.NETWORK, retryable=False)
    assert is_worth_another(silence, RetryPolicy(max_attempts=2, ambiguous=ambiguous)) is ambiguous


@pytest.mark.parametrize("kind", SAFE + LANDED)
@pytest.mark.parametrize(
    "cause", [Cause.CALLER, Cause.DEADLINE, Cause.DRAIN, Cause.LIMIT, Cause.BUG, Cause.TOTAL_TIMEOUT]
)
def test_what_was_ended_from_outside_or_by_us_is_not_tried_again(kind: Kind, cause: Cause):
    assert not is_worth_another(failed(kind, cause), BOLD)


@given(st.sampled_from(list(Kind)), st.sampled_from(list(Cause)), policies)
def test_what_landed_is_never_repeated_without_its_own_opt_in(kind: Kind, cause: Cause, policy: RetryPolicy):
    policy = msgspec.structs.replace(policy, landed=False)
    if is_worth_another(failed(kind, cause), policy):
        assert TABLE[kind].disposition is not None
        assert kind in SAFE


# What one call asks for


@given(asks, policies)
def test_what_a_call_asks_for_never_exceeds_its_models_policy(ask: RetryAsk, policy: RetryPolicy):
    given_to = policy_for(ask, policy)
    assert 1 <= given_to.max_attempts <= policy.max_attempts
    assert (given_to.ambiguous, given_to.landed) <= (policy.ambiguous, policy.landed)
    fits = not retry_violations(ask, policy, path="retry_policy")
    if fits:
        assert given_to.max_attempts == (ask.max_attempts or policy.max_attempts)
        assert (given_to.ambiguous, given_to.landed) == (ask.ambiguous, ask.landed)


def test_a_call_that_asks_for_nothing_gets_its_models_policy():
    assert policy_for(None, BOLD) is BOLD
    assert retry_violations(None, ONCE, path="p") == []


def test_a_call_that_asks_for_more_is_told_each_field_and_its_limit():
    found = retry_violations(RetryAsk(max_attempts=2, ambiguous=True, landed=True), ONCE, path="r.p")
    assert {each.field: "1 at most" in each.description for each in found} == {
        "r.p.max_attempts": True,
        "r.p.ambiguous": False,
        "r.p.landed": False,
    }
    (negative,) = retry_violations(RetryAsk(max_attempts=-1), BOLD, path="p")
    assert negative.description == "must be 0 or more"


# How long


def test_waits_double_up_to_the_longest_each_between_half_and_all_of_it():
    found = waits(RetryPolicy(max_attempts=6, initial_wait=1, max_wait=5), failed(Kind.UNREACHABLE))
    assert len(found) == 5
    for wait, whole in zip(found, (1, 2, 4, 5, 5), strict=True):
        assert whole / 2 <= wait <= whole


@given(policies, st.text(max_size=40), st.sampled_from(SAFE))
def test_a_call_waits_one_time_less_than_it_asks_and_never_longer_than_it_may(policy, call_id, kind):
    found = waits(policy, failed(kind), call_id)
    assert len(found) == policy.max_attempts - 1
    assert all(0 <= wait <= policy.max_wait for wait in found)
    assert found == waits(policy, failed(kind), call_id)


@given(policies, st.floats(0, 10_000), st.sampled_from(SAFE))
def test_the_wait_that_a_provider_names_is_kept_up_to_the_longest(policy, named, kind):
    found = waits(policy, failed(kind, retry_after=named))
    assert set(found) <= {min(named, policy.max_wait)}


def test_the_wait_that_a_provider_names_comes_before_our_own():
    limited = failed(Kind.RATE_LIMITED, retry_after=7.5)
    assert waits(RetryPolicy(max_attempts=3, max_wait=30), limited) == [7.5, 7.5]
    assert waits(RetryPolicy(max_attempts=2, max_wait=5), limited) == [5]


@given(st.floats(0, 60), policies)
def test_no_wait_outlives_the_time_that_is_left(left, policy):
    assert all(wait < left for wait in waits(policy, failed(Kind.RATE_LIMITED), left=left))


def test_a_wait_that_ends_at_the_deadline_is_not_begun():
    limited = failed(Kind.RATE_LIMITED, retry_after=3)
    assert waits(RetryPolicy(max_attempts=2), limited, left=3.0) == []
    assert waits(RetryPolicy(max_attempts=2), limited, left=3.1) == [3]


@given(st.text(max_size=40), st.integers(1, 20))
def test_waits_are_spread_between_nothing_and_all(call_id, attempt):
    assert 0 <= spread(call_id, attempt) < 1


def test_the_spread_is_the_same_everywhere_and_differs_from_call_to_call():
    assert round(spread("call", 1), 6) == SPREAD_OF_CALL_1
    assert len({spread(f"call-{number}", 1) for number in range(100)}) == 100
    assert len({spread("call", attempt) for attempt in range(100)}) == 100


SPREAD_OF_CALL_1 = 0.104684
