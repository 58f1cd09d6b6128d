"""What several attempts of one call come to: one bill, and the verdict that hides none of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer, Finish
from modelmeter_server.core.errors import TABLE, Failure, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.tally import add_certainty, add_costs, add_usage, ended_between, together
from modelmeter_server.core.usage import Usage

NONE, EXACT, AT_LEAST, UNKNOWN = Certainty.NONE, Certainty.EXACT, Certainty.AT_LEAST, Certainty.UNKNOWN
ANSWER = Answer(
    text="Hi",
    usage=Usage(input_tokens=10, output_tokens=5),
    certainty=EXACT,
    cost=Cost(nano_units=20, currency="USD", source=CostSource.PRICE_TABLE, certainty=EXACT),
    finish=Finish.STOP,
)


def made(kind: Kind, certainty: Certainty | None = None, read: int | None = None, **more: Any) -> Failure:
    usage = None if read is None else Usage(input_tokens=read, output_tokens=1)
    return failure(kind, f"{kind.name} came", certainty=certainty, usage=usage, stage=Stage.OUTPUT, **more)


LIMITED, REFUSED, AWAY = made(Kind.RATE_LIMITED), made(Kind.REFUSED), made(Kind.UNAVAILABLE)
CUT, LOST = made(Kind.INTERRUPTED, AT_LEAST, 7), made(Kind.UNACCOUNTED)
UNUSABLE = made(Kind.UNUSABLE, EXACT, 3)
FAILURES = (LIMITED, REFUSED, AWAY, CUT, LOST, UNUSABLE, made(Kind.UNREACHABLE), made(Kind.REFUSED, EXACT, 2))

chains = st.lists(st.sampled_from(FAILURES), min_size=1, max_size=6)


def folded(chain: list[Failure], last: Answer | None = None) -> Answer | Failure:
    past = chain[0]
    for each in chain[1:]:
        verdict = together(past, each)
        assert isinstance(verdict, Failure)
        past = verdict
    return past if last is None else together(past, last)


def test_an_answer_after_a_refusal_for_now_is_as_certain_as_it_was():
    assert together(LIMITED, ANSWER) == ANSWER


def test_an_answer_after_an_error_that_may_be_billed_is_a_lower_bound_of_the_same_figures():
    answer = together(AWAY, ANSWER)
    assert (answer.usage, answer.certainty) == (ANSWER.usage, AT_LEAST)
    assert answer.cost is not None
    assert answer.cost.certainty is AT_LEAST


def test_an_answer_after_an_attempt_that_landed_has_the_bill_of_both():
    answer = together(UNUSABLE, ANSWER)
    assert isinstance(answer, Answer)
    assert answer.usage == Usage(input_tokens=13, output_tokens=6)
    assert (answer.text, answer.certainty) == ("Hi", EXACT)


@pytest.mark.parametrize(
    ("past", "newest", "kind", "certainty"),
    [
        (LIMITED, REFUSED, Kind.REFUSED, NONE),
        (AWAY, LIMITED, Kind.UNAVAILABLE, UNKNOWN),
        (AWAY, REFUSED, Kind.UNAVAILABLE, UNKNOWN),
        (LIMITED, AWAY, Kind.UNAVAILABLE, UNKNOWN),
        (CUT, LIMITED, Kind.INTERRUPTED, AT_LEAST),
        (CUT, LOST, Kind.INTERRUPTED, AT_LEAST),
        (LOST, CUT, Kind.INTERRUPTED, AT_LEAST),
        (LOST, LIMITED, Kind.UNACCOUNTED, UNKNOWN),
        (UNUSABLE, AWAY, Kind.UNUSABLE, AT_LEAST),
        (UNUSABLE, UNUSABLE, Kind.UNUSABLE, EXACT),
    ],
)
def test_the_last_failure_is_the_verdict_unless_an_earlier_one_costs_more(past, newest, kind, certainty):
    verdict = together(past, newest)
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.certainty) == (kind, certainty)
    assert newest.message in verdict.message


def test_a_verdict_is_worth_repeating_only_if_its_last_attempt_was():
    verdict = together(AWAY, REFUSED)
    assert isinstance(verdict, Failure)
    assert not verdict.retryable
    later = together(AWAY, made(Kind.RATE_LIMITED, retry_after=4.0))
    assert isinstance(later, Failure)
    assert (later.retryable, later.retry_after) == (True, 4.0)


def test_an_error_after_silence_is_not_worth_repeating_and_no_refusal_of_the_whole_call():
    silence = made(Kind.UNAVAILABLE, retryable=False)
    verdict = together(silence, AWAY)
    assert isinstance(verdict, Failure)
    assert (AWAY.retryable, AWAY.is_refused_by_provider) == (True, True)
    assert (verdict.retryable, verdict.is_refused_by_provider) == (False, False)


def test_what_was_turned_away_before_does_not_speak_against_a_repetition():
    verdict = together(REFUSED, AWAY)
    assert isinstance(verdict, Failure)
    assert verdict.retryable


@given(chains, st.none() | st.just(ANSWER))
def test_no_order_of_failures_loses_a_token_or_hides_that_one_landed(chain, last):
    outcome = folded(chain, last)
    parts = [*chain, *([] if last is None else [last])]
    read = sum((each.usage.input_tokens or 0) for each in parts if each.usage is not None)
    assert (0 if outcome.usage is None else outcome.usage.input_tokens) == read
    if isinstance(outcome, Failure):
        has_landed = any(each.disposition is Disposition.LANDED for each in chain)
        assert (outcome.disposition is Disposition.LANDED) == has_landed
        assert outcome.may_have_generated == any(each.may_have_generated for each in chain)
        assert outcome.certainty in TABLE[outcome.kind].certainties
        assert (outcome.usage is not None) == (outcome.certainty in (EXACT, AT_LEAST))


@given(chains)
def test_the_bill_does_not_depend_on_the_order(chain):
    one, other = folded(chain), folded(chain[::-1])
    assert (one.usage, one.certainty) == (other.usage, other.certainty)


def test_certainties_add_up_to_the_less_certain_one():
    table = {(one, other): add_certainty(one, other) for one in Certainty for other in Certainty}
    assert all(table[one, NONE] is table[NONE, one] is one for one in Certainty)
    assert table[EXACT, EXACT] is EXACT
    assert table[UNKNOWN, UNKNOWN] is UNKNOWN
    rest = {pair: each for pair, each in table.items() if NONE not in pair and pair[0] is not pair[1]}
    assert set(rest.values()) == {AT_LEAST}


def test_a_figure_that_one_attempt_never_told_is_what_the_other_told():
    one = Usage(input_tokens=4, hosted_tool_requests={"search": 1})
    other = Usage(output_tokens=2, reasoning_tokens=1, hosted_tool_requests={"search": 2, "run": 1})
    assert add_usage(one, other) == Usage(
        input_tokens=4, output_tokens=2, reasoning_tokens=1, hosted_tool_requests={"search": 3, "run": 1}
    )
    assert add_usage(None, one) is one
    assert add_usage(one, None) is one


def test_costs_in_two_currencies_are_never_added():
    euro = Cost(nano_units=9, currency="EUR", source=CostSource.PROVIDER, certainty=EXACT)
    assert ANSWER.cost is not None
    assert add_costs(ANSWER.cost, euro) == msgspec.structs.replace(euro, certainty=AT_LEAST)
    both = add_costs(euro, euro)
    assert both == msgspec.structs.replace(euro, nano_units=18)


# A call that is ended while it waits


@pytest.mark.parametrize(
    ("cause", "code"), [(Cause.CALLER, Code.CANCELLED), (Cause.DEADLINE, Code.DEADLINE_EXCEEDED)]
)
def test_a_wait_that_is_ended_keeps_the_verdict_and_takes_the_cause(cause: Cause, code: Code):
    ended = ended_between(CUT, failure(Kind.UNREACHABLE, "gone", cause=cause))
    assert (ended.kind, ended.cause, ended.code, ended.usage) == (Kind.INTERRUPTED, cause, code, CUT.usage)


def test_a_halt_is_the_verdict_only_where_nothing_was_bought():
    word = failure(Kind.HALTED, "stopped", cause=Cause.LIMIT)
    assert ended_between(LIMITED, word) is word
    assert ended_between(UNUSABLE, word).kind is Kind.UNUSABLE
    assert not ended_between(AWAY, word).retryable
