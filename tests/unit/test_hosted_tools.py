"""Tools that the provider ran itself: told and counted alike in every form, chunking and cut, and never a caller's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer, Expectation, ToolCallDelta
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Certainty, End, Kind
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support import anthropic_events, responses_events
from tests.support.accumulator_laws import check_bill, everything
from tests.support.hosted_answers import CALLERS, FORMS, Form
from tests.support.wire_bytes import Json, answer, chunks_at, ending, sse

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
drawn_forms = st.sampled_from(sorted(FORMS)).map(FORMS.__getitem__)


def requests(outcome: Answer) -> dict[str, int]:
    assert outcome.usage is not None
    return outcome.usage.hosted_tool_requests


@each_form
def test_what_the_provider_ran_is_told_and_counted(form: Form):
    for data in (form.stream, form.document):
        outcome = answer(form.make(), data)
        assert outcome.hosted_tools == form.tools
        assert requests(outcome) == form.requests
        assert (outcome.text, outcome.certainty) == ("Found.", Certainty.EXACT)


@each_form
def test_the_callers_tool_is_the_only_call(form: Form):
    for data in (form.stream, form.document):
        outcome, _, deltas, _ = everything(form.make, [data])
        assert isinstance(outcome, Answer)
        assert [call.name for call in outcome.tool_calls] == [CALLERS]
        assert {each.name for each in deltas if isinstance(each, ToolCallDelta) and each.name} == {CALLERS}


@settings(max_examples=80, deadline=None)
@given(drawn_forms, st.data())
def test_any_chunking_tells_the_same_tools(form: Form, data: st.DataObject):
    cuts = data.draw(st.sets(st.integers(0, len(form.stream)), max_size=30))
    outcome = answer(form.make(), chunks_at(form.stream, cuts))
    assert (outcome.hosted_tools, requests(outcome)) == (form.tools, form.requests)


@settings(max_examples=200, deadline=None)
@given(drawn_forms, st.data())
def test_a_cut_stream_counts_no_more_than_the_whole_one(form: Form, data: st.DataObject):
    accumulator = form.make()
    accumulator.feed(form.stream[: data.draw(st.integers(0, len(form.stream)))])
    outcome = accumulator.finish(ending(data.draw(st.sampled_from([End.CLEAN, End.RESET]))))
    check_bill(outcome)
    counted = {} if outcome.usage is None else outcome.usage.hosted_tool_requests
    # One cited source stands for a search until the usage tells how the server calls it.
    most = {"web_search": 1, **form.requests}
    assert all(number <= most[tool] for tool, number in counted.items())


@settings(max_examples=200, deadline=None)
@given(drawn_forms.filter(lambda form: form.tools), st.data())
def test_a_cut_stream_tells_what_the_provider_ran_until_then(form: Form, data: st.DataObject):
    accumulator = form.make()
    accumulator.feed(form.stream[: data.draw(st.integers(0, len(form.stream)))])
    outcome = accumulator.finish(ending(data.draw(st.sampled_from([End.CLEAN, End.RESET]))))
    kinds = [tool.type for tool in form.tools]
    assert [tool.type for tool in outcome.hosted_tools] == kinds[: len(outcome.hosted_tools)]


@each_form
def test_an_answer_that_cannot_be_used_tells_what_the_provider_ran(form: Form):
    for data in (form.stream, form.document):
        accumulator = WIRE_FORMATS[form.kind].accumulator(Expectation(forced_tool=True))
        accumulator.feed(data)
        outcome = accumulator.finish(ending())
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.hosted_tools) == (Kind.UNUSABLE, form.tools)


def test_a_search_is_billed_although_the_stream_broke_before_the_bill():
    wire = anthropic_events
    use: Json = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
    found: Json = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    told = {**wire.START_USAGE, "server_tool_use": {"web_search_requests": 0}}
    events = [wire.start(told), wire.opened(0, **use), wire.closed(0), wire.opened(1, **found)]
    outcome, _, _, _ = everything(FORMS["anthropic mcp"].make, [sse(*events)], End.RESET)
    assert not isinstance(outcome, Answer)
    assert outcome.usage is not None
    assert outcome.usage.hosted_tool_requests == {"web_search": 1}
    assert outcome.certainty is Certainty.AT_LEAST


def test_what_is_told_with_the_stop_wins_over_the_results_that_came():
    wire = anthropic_events
    found: Json = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    usage = {"output_tokens": 3, "server_tool_use": {"web_search_requests": 0}}
    events = [
        wire.start(),
        *(wire.opened(index, **found) for index in range(3)),
        *wire.text_block(3, "x"),
        wire.ended("end_turn", usage),
        wire.STOP,
    ]
    assert requests(answer(FORMS["anthropic mcp"].make(), sse(*events))) == {}


@pytest.mark.parametrize("environment", [{"type": "container_reference"}, {"type": "local"}, None, []])
def test_a_shell_is_the_providers_in_a_container_of_its_own_only(environment: object):
    item = {"type": "shell_call", "id": "s", "action": {"commands": ["ls"]}, "environment": environment}
    document = responses_events.document(item, responses_events.message("x"))
    outcome = answer(FORMS["responses mcp"].make(), document)
    is_hosted = environment == {"type": "container_reference"}
    assert [tool.type for tool in outcome.hosted_tools] == ["shell"] * is_hosted


def test_a_picture_is_no_text_and_is_left_out_of_the_use_that_made_it():
    item = {"type": "image_generation_call", "id": "i", "status": "completed", "result": "A" * 70_000}
    document = responses_events.document(item, responses_events.message("x"))
    (tool,) = answer(FORMS["responses mcp"].make(), document).hosted_tools
    assert (tool.type, tool.result_json, tool.omitted) == ("image_generation", "", True)
