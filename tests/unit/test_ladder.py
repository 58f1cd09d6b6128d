"""What it means when a stream dies: every rung, and what stands on it."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.errors import TABLE, Failure
from modelmeter_server.core.ladder import Evidence, severed
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, End, Ending, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.usage import Usage
from tests.support.accumulator_laws import check_bill

COUNTS = st.none() | st.integers(0, 9)
SEEN = st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS).filter(lambda usage: usage.is_seen)
EVIDENCE = st.builds(
    Evidence,
    generated=st.booleans(),
    usage=st.none() | SEEN,
    usage_is_final=st.booleans(),
    estimated_output_tokens=st.none() | st.integers(1, 9),
    reported_nanos=st.none() | st.integers(0, 9),
    partial_text=st.sampled_from(["", "so far"]),
)
ENDINGS = st.builds(
    Ending,
    end=st.sampled_from(list(End)),
    cause=st.sampled_from(list(Cause)),
    stage=st.sampled_from([stage for stage in Stage if stage < Stage.OUTPUT]),
    retryable=st.none() | st.booleans(),
)
BILL = Usage(input_tokens=5, output_tokens=2)


def dead(
    evidence: Evidence, stage: Stage = Stage.BODY, cause: Cause = Cause.NETWORK, **ending: object
) -> Failure:
    return severed(evidence, Ending(end=End.RESET, cause=cause, stage=stage, **ending), "gone")  # type: ignore[arg-type]


def test_final_usage_is_interrupted_and_exact():
    outcome = dead(Evidence(generated=True, usage=BILL, usage_is_final=True))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)


def test_some_usage_is_interrupted_and_a_lower_bound():
    outcome = dead(Evidence(generated=True, usage=BILL, estimated_output_tokens=40))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)
    assert (outcome.usage, outcome.estimated_output_tokens) == (BILL, 40)


def test_final_output_without_an_input_is_a_lower_bound():
    assert dead(Evidence(usage=Usage(output_tokens=2), usage_is_final=True)).certainty is Certainty.AT_LEAST


def test_output_without_usage_is_unaccounted():
    outcome = dead(Evidence(generated=True, estimated_output_tokens=40, partial_text="so far"))
    assert (outcome.kind, outcome.certainty, outcome.usage) == (Kind.UNACCOUNTED, Certainty.UNKNOWN, None)
    assert (outcome.estimated_output_tokens, outcome.partial_text) == (40, "so far")


def test_no_evidence_is_unavailable():
    for stage in (Stage.WRITTEN, Stage.HEADERS, Stage.BODY):
        outcome = dead(Evidence(), stage)
        assert (outcome.kind, outcome.certainty, outcome.stage) == (
            Kind.UNAVAILABLE,
            Certainty.UNKNOWN,
            stage,
        )
        assert outcome.may_have_generated


def test_a_request_that_was_not_wholly_written_cannot_have_generated():
    for stage in (Stage.NOT_WRITTEN, Stage.WRITING):
        outcome = dead(Evidence(), stage)
        assert (outcome.kind, outcome.certainty, outcome.stage) == (Kind.UNREACHABLE, Certainty.NONE, stage)
        assert (outcome.retryable, outcome.may_have_generated) == (True, False)


def test_evidence_wins_over_a_request_that_was_still_being_written():
    outcome = dead(Evidence(generated=True), Stage.WRITING)
    assert (outcome.kind, outcome.stage) == (Kind.UNACCOUNTED, Stage.OUTPUT)


def test_usage_is_evidence_by_itself():
    assert dead(Evidence(usage=BILL)).kind is Kind.INTERRUPTED


def test_silence_after_writing_is_never_repeated_by_default_and_a_providers_word_is():
    assert dead(Evidence(), Stage.WRITTEN).retryable is False
    assert dead(Evidence(), Stage.BODY, Cause.IDLE_TIMEOUT).retryable is False
    assert dead(Evidence(), Stage.BODY, Cause.PROVIDER).retryable is True


def test_a_lasting_fault_is_not_repeated():
    assert dead(Evidence(), Stage.NOT_WRITTEN, retryable=False).retryable is False


def test_what_the_caller_or_a_fault_of_ours_ended_is_not_repeated():
    for cause in (Cause.CALLER, Cause.BUG):
        assert dead(Evidence(), Stage.NOT_WRITTEN, cause).retryable is False


def test_a_fault_of_ours_keeps_the_bill():
    outcome = dead(Evidence(generated=True, usage=BILL), cause=Cause.BUG)
    assert (outcome.kind, outcome.code, outcome.certainty) == (Kind.BUG, Code.INTERNAL, Certainty.AT_LEAST)
    assert (outcome.usage, outcome.disposition) == (BILL, Disposition.LANDED)
    unwritten = dead(Evidence(), Stage.NOT_WRITTEN, Cause.BUG)
    assert (unwritten.certainty, unwritten.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
    silent = dead(Evidence(), Stage.WRITTEN, Cause.BUG)
    assert (silent.certainty, silent.disposition) == (Certainty.UNKNOWN, Disposition.DID_NOT_HAPPEN)


def test_the_providers_own_cost_is_as_certain_as_its_usage():
    evidence = Evidence(generated=True, usage=BILL, reported_nanos=7, cost_is_final=True)
    expected = Cost(nano_units=7, currency="USD", source=CostSource.PROVIDER, certainty=Certainty.AT_LEAST)
    assert dead(evidence).cost == evidence.cost == expected
    exact = msgspec.structs.replace(evidence, usage_is_final=True).cost
    assert exact is not None
    assert exact.certainty is Certainty.EXACT
    assert Evidence(usage=BILL).cost is None


def test_a_cost_told_before_the_end_or_without_usage_is_a_lower_bound():
    early = Evidence(generated=True, usage=BILL, usage_is_final=True, reported_nanos=7)
    alone = Evidence(generated=True, usage_is_final=True, reported_nanos=7, cost_is_final=True)
    for evidence in (early, alone):
        cost = dead(evidence).cost
        assert cost is not None
        assert cost.certainty is Certainty.AT_LEAST


def test_a_failure_keeps_what_decides_its_price():
    outcome = dead(Evidence(generated=True, usage=BILL, service_tier="priority", price_factor="speed=fast"))
    assert (outcome.service_tier, outcome.price_factor) == ("priority", "speed=fast")


@given(EVIDENCE, ENDINGS)
def test_every_end_of_every_stream_has_a_bill_that_fits_its_kind(evidence: Evidence, ending: Ending):
    outcome = severed(evidence, ending, "gone")
    check_bill(outcome)
    assert outcome.usage == evidence.usage
    generated = evidence.generated or evidence.usage is not None
    assert (outcome.disposition is Disposition.LANDED) == generated
    assert not (generated and outcome.certainty is Certainty.NONE)
    if generated:
        assert (outcome.stage, outcome.retryable) == (Stage.OUTPUT, False)


@given(EVIDENCE, ENDINGS)
def test_the_cause_changes_the_code_and_never_the_bill(evidence: Evidence, ending: Ending):
    outcome = severed(evidence, ending, "gone")
    plain = severed(evidence, Ending(end=ending.end, stage=ending.stage), "gone")
    assert (outcome.certainty, outcome.usage, outcome.disposition) == (
        plain.certainty,
        plain.usage,
        plain.disposition,
    )
    by_cause = {Cause.DEADLINE: Code.DEADLINE_EXCEEDED, Cause.CALLER: Code.CANCELLED}
    assert outcome.code is by_cause.get(ending.cause, TABLE[outcome.kind].code)
