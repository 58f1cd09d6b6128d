"""Whether a whole answer can be used, in the rule book's order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, Finish, ToolCall
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.ladder import Evidence
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.stop_reasons import Stop
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.core.verdict import Draft, judge
from tests.support.accumulator_laws import check_bill

EVIDENCE = Evidence(
    generated=True,
    usage=Usage(input_tokens=5, output_tokens=2),
    usage_is_final=True,
    model_served="m-1",
    response_id="r",
)
CALL = ToolCall(id="c", name="look", arguments_json='{"at":1}')
BROKEN = ToolCall(id="c", name="look", arguments_json='{"at":')


def has_a(document: object) -> str | None:
    """Stand for a compiled schema that requires `a`."""
    return None if isinstance(document, dict) and "a" in document else "`a` is missing"


NATIVE = Expectation(schema_check=has_a)
FORCED = Expectation(schema_check=has_a, forced_tool=True)


def draft(text: str = "Hello", stop: Stop = Stop.FINISHED, **fields: Any) -> Draft:
    return Draft(text=text, stop=stop, stop_reason="word", **{"evidence": EVIDENCE, **fields})


def usable(draft: Draft, expect: Expectation = FREE_TEXT) -> Answer:
    outcome = judge(draft, expect)
    assert isinstance(outcome, Answer), outcome
    return outcome


def unusable(draft: Draft, expect: Expectation = FREE_TEXT) -> Failure:
    outcome = judge(draft, expect)
    assert isinstance(outcome, Failure), outcome
    assert (outcome.kind, outcome.cause, outcome.stage) == (Kind.UNUSABLE, Cause.PROVIDER, Stage.OUTPUT)
    return outcome


def test_an_answer_carries_its_whole_bill():
    beside = (AdditionalUsage(kind="advisor", usage=Usage(input_tokens=1)),)
    evidence = Evidence(
        usage=Usage(input_tokens=5), additional_usage=beside, estimated_output_tokens=3, model_served="m"
    )
    outcome = usable(draft(evidence=evidence, service_tier="batch"))
    assert (outcome.usage, outcome.additional_usage) == (evidence.usage, beside)
    assert (outcome.certainty, outcome.estimated_output_tokens) == (Certainty.AT_LEAST, 3)
    assert (outcome.model_served, outcome.service_tier) == ("m", "batch")


def test_a_failure_carries_its_whole_bill():
    beside = (AdditionalUsage(kind="advisor", usage=Usage(input_tokens=1)),)
    evidence = Evidence(
        usage=Usage(input_tokens=5), additional_usage=beside, reported_nanos=7, response_id="r"
    )
    outcome = unusable(draft(evidence=evidence, refusal="no"))
    assert (outcome.usage, outcome.additional_usage, outcome.certainty) == (
        evidence.usage,
        beside,
        Certainty.AT_LEAST,
    )
    assert outcome.cost == evidence.cost
    assert (outcome.provider_response_id, outcome.partial_text) == ("r", "Hello")


def test_a_withdrawn_answer_is_unusable_before_anything_else_is_asked():
    for expect in (FREE_TEXT, NATIVE, FORCED):
        unusable(draft('{"a":1}', Stop.WITHDRAWN, forced_arguments='{"a":1}', tool_calls=(CALL,)), expect)
        assert unusable(draft('{"a":1}', refusal="the model refused"), expect).message == "the model refused"
    unusable(draft(refusal="no", stop=Stop.OUTSIDE))


def test_the_provider_code_is_its_error_code_or_the_stop_reason():
    assert unusable(draft(refusal="no")).provider_code == "word"
    assert unusable(draft(refusal="no", provider_code="server_error")).provider_code == "server_error"
    assert (
        unusable(Draft(text="", stop=Stop.UNRECOGNIZED, stop_reason="", evidence=EVIDENCE)).provider_code
        is None
    )


def test_what_was_stopped_from_outside_goes_down_the_ladder():
    stopped = judge(draft(stop=Stop.OUTSIDE), FREE_TEXT)
    assert isinstance(stopped, Failure)
    assert (stopped.kind, stopped.certainty, stopped.cause) == (
        Kind.INTERRUPTED,
        Certainty.EXACT,
        Cause.PROVIDER,
    )
    untold = judge(draft(stop=Stop.OUTSIDE, evidence=Evidence()), FREE_TEXT)
    assert isinstance(untold, Failure)
    assert (untold.kind, untold.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)


def test_the_arguments_of_every_ordinary_call_must_be_json():
    assert usable(draft("", Stop.TOOLS, tool_calls=(CALL,))).finish is Finish.TOOL_CALLS
    message = unusable(draft("", Stop.TOOLS, tool_calls=(CALL, BROKEN))).message
    assert "`look`" in message
    assert "length" not in message
    assert "length" in unusable(draft("", Stop.LENGTH, tool_calls=(BROKEN,))).message


def test_the_text_of_a_custom_tool_is_never_parsed():
    free = ToolCall(id="c", name="run", arguments_json="ls {", free_text=True)
    assert usable(draft("", Stop.TOOLS, tool_calls=(free,))).tool_calls == (free,)


@pytest.mark.parametrize(
    "call", [ToolCall(id="", name="x", arguments_json="{}"), ToolCall(id="x", name="", arguments_json="{}")]
)
def test_a_call_that_cannot_be_answered_is_malformed(call: ToolCall):
    assert "no id or no name" in unusable(draft(tool_calls=(call,))).message


def test_a_call_exempts_its_turn_from_the_schema():
    outcome = usable(draft("Let me look.", Stop.TOOLS, tool_calls=(CALL,)), NATIVE)
    assert (outcome.structured_json, outcome.text) == (None, "Let me look.")


def test_a_native_answer_is_its_text():
    outcome = usable(draft('{"a":1}'), NATIVE)
    assert (outcome.text, outcome.structured_json) == ('{"a":1}', '{"a":1}')
    unusable(draft('{"b":1}'), NATIVE)
    usable(draft('{"b":1}'), Expectation(schema_check=has_a, enforce=False))


def test_parseable_but_nonconforming_structured_output_is_unusable():
    for expect in (NATIVE, FORCED):
        outcome = unusable(draft('{"b":1}', forced_arguments='{"b":1}'), expect)
        assert (outcome.usage, outcome.certainty) == (EVIDENCE.usage, Certainty.EXACT)
        assert "schema" in outcome.message


def test_a_schema_that_permits_null_does_not_excuse_a_tool_that_was_not_called():
    lenient = Expectation(schema_check=lambda document: None, forced_tool=True)
    assert "did not call" in unusable(draft("", forced_arguments=None), lenient).message
    assert usable(draft("", forced_arguments="null"), lenient).structured_json == "null"


def test_a_forced_answer_is_its_arguments_whatever_else_was_said():
    outcome = usable(draft("so", Stop.TOOLS, forced_arguments='{"a":1}', tool_calls=(BROKEN,)), FORCED)
    assert (outcome.text, outcome.structured_json, outcome.tool_calls) == ('{"a":1}', '{"a":1}', (BROKEN,))
    assert usable(draft("", Stop.TOOLS, forced_arguments='{"a":1}'), FORCED).finish is Finish.STOP
    assert usable(draft("", Stop.LENGTH, forced_arguments='{"a":1}'), FORCED).truncated
    unusable(draft('{"a":1}'), FORCED)


def test_a_complaint_never_quotes_the_document():
    for text in ('{"secret":1', '{"secret":1}'):
        assert "secret" not in unusable(draft(text), NATIVE).message


def test_an_empty_answer_is_one_after_a_length_or_sequence_stop_only():
    for stop in Stop:
        outcome = judge(draft("", stop), FREE_TEXT)
        assert isinstance(outcome, Answer) == (stop in (Stop.LENGTH, Stop.SEQUENCE))
        assert isinstance(judge(draft("", stop), NATIVE), Failure)


TEXTS = st.sampled_from(["", "Hello", "{}", '{"a":1}', "[", "NaN"])
DRAFTS = st.builds(
    Draft,
    text=TEXTS,
    stop=st.sampled_from(list(Stop)),
    stop_reason=st.sampled_from(["", "word", "x" * 500]),
    evidence=st.builds(
        Evidence,
        generated=st.just(True),
        usage=st.sampled_from([None, Usage(input_tokens=5), Usage(input_tokens=5, output_tokens=2)]),
        usage_is_final=st.booleans(),
        estimated_output_tokens=st.sampled_from([None, 3]),
    ),
    tool_calls=st.sampled_from([(), (CALL,), (BROKEN,)]),
    forced_arguments=st.none() | TEXTS,
    refusal=st.sampled_from([None, "no"]),
)


@given(DRAFTS, st.sampled_from([FREE_TEXT, NATIVE, FORCED]))
def test_every_verdict_keeps_the_bill_and_fits_its_kind(draft: Draft, expect: Expectation):
    outcome = judge(draft, expect)
    check_bill(outcome)
    assert (outcome.usage, outcome.certainty) == (draft.evidence.usage, draft.evidence.certainty)
    if isinstance(outcome, Answer):
        assert outcome.truncated == draft.stop.is_truncated
        assert outcome.text or outcome.tool_calls or draft.stop in (Stop.LENGTH, Stop.SEQUENCE)
        assert expect is not FORCED or outcome.structured_json is not None
    else:
        assert len(outcome.message) < 250
