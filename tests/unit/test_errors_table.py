"""The one table of failures against the contract, row by row, and what `failure` makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.errors import TABLE, Failure, effect_outcome, failure, with_cause
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.usage import Usage
from tests.support.accumulator_laws import check_bill

NO, YES = Disposition.DID_NOT_HAPPEN, Disposition.LANDED
NONE, EXACT, AT_LEAST, UNKNOWN = Certainty.NONE, Certainty.EXACT, Certainty.AT_LEAST, Certainty.UNKNOWN

# kind, disposition, certainties, code, retryable, effect outcome, pushback: the contract's section 4.
CONTRACT: list[tuple[Kind, Disposition | None, set[Certainty], Code, bool, str, bool]] = [
    (Kind.UNREACHABLE, NO, {NONE}, Code.UNAVAILABLE, True, "rejected", False),
    (Kind.REFUSED, NO, {NONE, EXACT, AT_LEAST}, Code.INVALID_ARGUMENT, False, "rejected", False),
    (Kind.RATE_LIMITED, NO, {NONE}, Code.RESOURCE_EXHAUSTED, True, "rejected", False),
    (Kind.UNAVAILABLE, NO, {UNKNOWN, NONE}, Code.UNAVAILABLE, True, "rejected", False),
    (Kind.INTERRUPTED, YES, {AT_LEAST, EXACT}, Code.ABORTED, False, "interrupted", False),
    (Kind.UNACCOUNTED, YES, {UNKNOWN}, Code.ABORTED, False, "performed", False),
    (Kind.UNUSABLE, YES, {EXACT, AT_LEAST, UNKNOWN}, Code.ABORTED, False, "performed", False),
    (Kind.CEILING, NO, {NONE}, Code.RESOURCE_EXHAUSTED, False, "rejected", True),
    (Kind.OVERLOADED, NO, {NONE}, Code.RESOURCE_EXHAUSTED, True, "rejected", False),
    (Kind.DRAINING, NO, {NONE}, Code.UNAVAILABLE, True, "rejected", False),
    (Kind.LEDGER_DOWN, NO, {NONE}, Code.UNAVAILABLE, True, "rejected", False),
    (Kind.HALTED, NO, {NONE}, Code.FAILED_PRECONDITION, False, "rejected", True),
    (Kind.DIVERGED, NO, {NONE}, Code.FAILED_PRECONDITION, False, "rejected", True),
    (Kind.OUTCOME_GONE, NO, {NONE}, Code.FAILED_PRECONDITION, False, "rejected", False),
    (Kind.REPLAY_MISS, NO, {NONE}, Code.NOT_FOUND, False, "rejected", False),
    (Kind.CALL_ID_CONFLICT, NO, {NONE}, Code.ALREADY_EXISTS, False, "rejected", False),
    (Kind.BUG, None, {UNKNOWN, NONE, AT_LEAST, EXACT}, Code.INTERNAL, False, "interrupted", False),
]

KINDS = st.sampled_from(list(Kind))
BILL = Usage(input_tokens=5, output_tokens=2)


@pytest.mark.parametrize("row", CONTRACT, ids=lambda row: row[0].name)
def test_the_table_is_the_contracts(row: tuple[Any, ...]):
    kind, disposition, certainties, code, retryable, outcome, pushback = row
    ours = TABLE[kind]
    assert (ours.disposition, set(ours.certainties), ours.code) == (disposition, certainties, code)
    assert (ours.retryable, ours.effect_outcome, ours.pushback) == (retryable, outcome, pushback)


def test_every_kind_has_a_row_a_class_of_its_own_and_a_meaning():
    assert set(TABLE) == set(Kind) == {row[0] for row in CONTRACT}
    classes = [row.client_class for row in TABLE.values()]
    assert len(set(classes)) == len(classes)
    assert all(name.endswith("Error") and name not in dir(__builtins__) for name in classes)
    assert all(row.meaning.endswith(".") for row in TABLE.values())


def test_internal_means_a_bug_and_nothing_else():
    assert [kind for kind, row in TABLE.items() if row.code is Code.INTERNAL] == [Kind.BUG]


def test_what_landed_is_aborted_so_that_no_interceptor_repeats_it():
    landed = [row for row in TABLE.values() if row.disposition is YES]
    assert {row.code for row in landed} == {Code.ABORTED}
    assert not any(row.retryable for row in landed)


def made(kind: Kind, **details: Any) -> Failure:
    return failure(kind, "a message", **details)


@given(KINDS, st.sampled_from(list(Cause)), st.sampled_from(list(Stage)))
def test_a_failure_takes_what_follows_from_its_kind(kind: Kind, cause: Cause, stage: Stage):
    row = TABLE[kind]
    certainty = row.certainties[0]
    usage = BILL if certainty in (EXACT, AT_LEAST) else None
    outcome = made(kind, cause=cause, stage=stage, usage=usage)
    assert (outcome.certainty, outcome.retryable) == (certainty, row.retryable)
    check_bill(outcome)


@given(KINDS, st.sampled_from(list(Certainty)), st.none() | st.just(BILL))
def test_a_failure_cannot_contradict_itself(kind: Kind, certainty: Certainty, usage: Usage | None):
    denied = certainty not in TABLE[kind].certainties
    denied = denied or (usage is not None and certainty in (NONE, UNKNOWN))
    if denied:
        with pytest.raises(ValueError, match="certainty"):
            made(kind, certainty=certainty, usage=usage)
    else:
        assert made(kind, certainty=certainty, usage=usage).certainty is certainty


@pytest.mark.parametrize("kind", list(Kind))
def test_a_deadline_and_a_leaving_caller_change_the_code_whatever_the_kind(kind: Kind):
    for cause, code in ((Cause.DEADLINE, Code.DEADLINE_EXCEEDED), (Cause.CALLER, Code.CANCELLED)):
        assert made(kind, cause=cause, code=Code.NOT_FOUND).code is code
        renamed = with_cause(made(kind), cause)
        assert (renamed.cause, renamed.code, renamed.kind) == (cause, code, kind)
    kept = with_cause(made(kind), Cause.DRAIN)
    assert (kept.cause, kept.code) == (Cause.DRAIN, TABLE[kind].code)


def test_the_grounds_of_a_refusal_choose_its_code():
    assert made(Kind.REFUSED).code is Code.INVALID_ARGUMENT
    assert made(Kind.REFUSED, code=Code.PERMISSION_DENIED).code is Code.PERMISSION_DENIED


def test_a_refusal_that_names_usage_is_spend():
    outcome = made(Kind.REFUSED, certainty=EXACT, usage=BILL)
    assert (outcome.disposition, outcome.may_have_generated) == (NO, True)


def test_a_bug_landed_only_after_output():
    assert made(Kind.BUG, stage=Stage.WRITTEN).disposition is NO
    assert made(Kind.BUG, stage=Stage.OUTPUT).disposition is YES
    assert made(Kind.BUG, stage=Stage.OUTPUT, certainty=NONE).disposition is NO


@given(KINDS, st.sampled_from(list(Disposition)))
def test_told_spend_is_metered_and_the_rest_goes_by_the_table(kind: Kind, disposition: Disposition):
    assert effect_outcome(kind, disposition, spend_told=True) == "metered"
    if kind is not Kind.BUG:
        assert effect_outcome(kind, disposition, spend_told=False) == TABLE[kind].effect_outcome


def test_a_bug_is_booked_by_what_became_of_its_call():
    booked = {where: effect_outcome(Kind.BUG, where, spend_told=False) for where in (NO, YES)}
    assert booked == {NO: "rejected", YES: "performed"}
