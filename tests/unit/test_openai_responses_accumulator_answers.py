"""Which responses can be used: text, tools, structured output, refusals, stops; streamed and as one body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, Finish
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import responses_events as wire
from tests.support.wire_bytes import Json, answer, failed, joined_calls, joined_text, read, sse


def needs_city(document: object) -> str | None:
    """Stand for a compiled schema that requires `city`."""
    return None if isinstance(document, dict) and "city" in document else "`city` is missing"


NATIVE = Expectation(schema_check=needs_city)
FORCED = Expectation(schema_check=needs_city, forced_tool=True)
CITY = '{"city": "Paris"}'


def outcomes(*output: Json, expect: Expectation = FREE_TEXT, **fields: Any) -> list[Answer | Failure]:
    """Return what the items come to as a terminal event and as one body."""
    datas = [sse(wire.created(), wire.ended(*output, **fields)), wire.document(*output, **fields)]
    return [read(OpenAIResponsesAccumulator(expect), data) for data in datas]


def answers(*output: Json, expect: Expectation = FREE_TEXT, **fields: Any) -> list[Answer]:
    results = outcomes(*output, expect=expect, **fields)
    got = [result for result in results if isinstance(result, Answer)]
    assert len(got) == len(results), results
    return got


def failures(*output: Json, expect: Expectation = FREE_TEXT, **fields: Any) -> list[Failure]:
    results = outcomes(*output, expect=expect, **fields)
    got = [result for result in results if isinstance(result, Failure)]
    assert len(got) == len(results), results
    return got


CUT: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def stopped(reason: str) -> Json:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


# Text


def test_text_is_all_parts_of_all_messages_in_order():
    items = wire.message("Hel", "lo"), wire.reasoning("hm"), wire.message(" you")
    for outcome in answers(*items):
        assert outcome.text == "Hello you"


def test_text_is_taken_once():
    events = [*wire.text_events(0, "Hello", " there"), wire.ended(wire.message("Hello there"))]
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    assert answer(accumulator, sse(*events)).text == joined_text(accumulator.drain()) == "Hello there"


def test_the_terminal_object_is_the_authority():
    events = [wire.added(0, wire.message()), wire.text(0, "streamed"), wire.ended(wire.message("final"))]
    assert answer(OpenAIResponsesAccumulator(), sse(*events)).text == "final"


BLANK_CALLS = [wire.call(arguments=""), wire.call(arguments=None), wire.call(arguments="", id="call_9")]


@pytest.mark.parametrize("blank", BLANK_CALLS)
def test_streamed_arguments_stand_in_for_blank_ones_of_the_terminal_item(blank: Json):
    streamed = [wire.added(1, wire.call(arguments="")), wire.arguments(1, '{"at":1}')]
    unannounced = [wire.arguments(1, '{"at":1}')]
    for events in (streamed, unannounced, wire.call_events(1, wire.call(), '{"at":1}')):
        ended = wire.ended(wire.reasoning("hm"), blank)
        (call,) = answer(OpenAIResponsesAccumulator(), sse(*events, ended)).tool_calls
        assert (call.id, call.arguments_json) == (blank["call_id"], '{"at":1}')


def test_blank_calls_in_another_order_get_their_own_arguments():
    first, second = wire.call(id="a"), wire.call(id="b")
    events = [*wire.call_events(0, first, "[1]"), *wire.call_events(1, second, "[2]")]
    blank = [{**call, "arguments": ""} for call in (second, first)]
    calls = answer(OpenAIResponsesAccumulator(), sse(*events, wire.ended(*blank))).tool_calls
    assert [(call.id, call.arguments_json) for call in calls] == [("b", "[2]"), ("a", "[1]")]


def test_streamed_input_of_a_custom_tool_stands_in_for_a_blank_one():
    blank = wire.custom_call(text="")
    for announced in ([], [wire.added(0, blank)]):
        events = [*announced, wire.custom_input(0, "ls"), wire.ended(blank)]
        (call,) = answer(OpenAIResponsesAccumulator(), sse(*events)).tool_calls
        assert (call.arguments_json, call.free_text) == ("ls", True)


@pytest.mark.parametrize("blank", [wire.message(), wire.message(""), {"type": "message"}])
def test_streamed_text_stands_in_for_a_blank_message_beside_a_call(blank: Json):
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    events = [wire.text(0, "Hello"), *wire.call_events(1, wire.call(), "{}"), wire.ended(blank, wire.call())]
    assert answer(accumulator, sse(*events)).text == joined_text(accumulator.drain()) == "Hello"


def test_nothing_streamed_stands_in_for_another_kind_of_item():
    remark = wire.added(0, {"type": "message", "phase": "commentary"})
    for events in ([remark, wire.text(0, "hm")], wire.call_events(0, wire.call(), "{}"), []):
        ended = wire.ended(wire.message(), wire.call(name="run", id="call_9", arguments="[2]"))
        outcome = answer(OpenAIResponsesAccumulator(), sse(*events, ended))
        assert (outcome.text, [call.id for call in outcome.tool_calls]) == ("", ["call_9"])


def test_streamed_arguments_of_the_forced_tool_stand_in_for_blank_ones():
    blank = wire.call(FORCED_TOOL, "")
    events = [wire.added(0, blank), wire.arguments(0, CITY), wire.ended(blank)]
    assert answer(OpenAIResponsesAccumulator(FORCED), sse(*events)).structured_json == CITY


@pytest.mark.parametrize("output", [[], [wire.reasoning("hm")], [wire.message()], [5]], ids=str)
def test_what_was_streamed_stands_in_for_an_empty_output(output: list[Json]):
    events = [
        *wire.text_events(0, "Hello"),
        *wire.call_events(1, wire.call(), '{"a"', ":1}"),
        wire.ended(*output),
    ]
    outcome = answer(OpenAIResponsesAccumulator(), sse(*events))
    assert (outcome.text, outcome.tool_calls[0].arguments_json) == ("Hello", '{"a":1}')
    lost_done = [event for event in events if not event["type"].endswith(".done")]
    assert answer(OpenAIResponsesAccumulator(), sse(*lost_done)).text == "Hello"


def test_items_may_interleave_and_change_their_ids():
    events = [
        wire.added(1, wire.call("two", "", "b")),
        wire.added(0, wire.call("one", "", "a")),
        wire.arguments(1, '{"b":'),
        wire.arguments(0, '{"a":1'),
        wire.arguments(1, "2}"),
        wire.arguments(0, "}"),
        wire.item_done(0, wire.call("one", '{"a":1}', "a") | {"id": "changed"}),
        wire.ended(),
    ]
    outcome = answer(OpenAIResponsesAccumulator(), sse(*events))
    assert [(call.id, call.arguments_json) for call in outcome.tool_calls] == [
        ("a", '{"a":1}'),
        ("b", '{"b":2}'),
    ]


# Tools


def test_a_tool_call_with_no_text_is_a_usable_answer():
    for outcome in answers(wire.reasoning("hm"), wire.call("look", '{"at": 1}')):
        (call,) = outcome.tool_calls
        assert (call.id, call.name, call.arguments_json) == ("call_1", "look", '{"at": 1}')
        assert (outcome.text, outcome.finish, outcome.stop_reason) == ("", Finish.TOOL_CALLS, "completed")


def test_an_answer_with_neither_text_nor_a_tool_call_is_unusable():
    for items in (
        [],
        [wire.reasoning("hm")],
        [wire.message("")],
        [{"type": "image_generation_call", "result": "x"}],
    ):
        for outcome in failures(*items):
            assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


@pytest.mark.parametrize("arguments", ['{"at":', "at 1", "[1,]", "NaN", '{"at": 1} '[:-2]])
def test_malformed_tool_arguments_are_a_metered_provider_failure(arguments: str):
    for outcome in failures(wire.call(arguments=arguments)):
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert outcome.usage is not None
    for outcome in failures(wire.call(arguments=arguments), **CUT):
        assert "length" in outcome.message


@pytest.mark.parametrize("fields", [{"call_id": None}, {"call_id": ""}, {"name": None}, {"name": [1]}])
def test_a_call_that_cannot_be_answered_is_unusable(fields: Json):
    for outcome in failures(wire.call() | fields):
        assert "no id or no name" in outcome.message


def test_missing_arguments_of_an_ordinary_tool_are_an_empty_object():
    for arguments in ("", None):
        for outcome in answers(wire.call(arguments=arguments)):
            assert outcome.tool_calls[0].arguments_json == "{}"


def test_arguments_sent_as_an_object_are_spelled():
    for outcome in answers(wire.call(arguments={"at": [1, "ü"]})):
        assert outcome.tool_calls[0].arguments_json == '{"at":[1,"ü"]}'


def test_a_custom_tools_input_is_text_and_never_parsed():
    for text in ("ls -l {", ""):
        for outcome in answers(wire.custom_call("run", text)):
            (call,) = outcome.tool_calls
            assert (call.arguments_json, call.free_text) == (text, True)
    events = [
        wire.added(0, wire.custom_call("run", "")),
        wire.custom_input(0, "ls"),
        wire.custom_input(0, " -l"),
    ]
    streamed = answer(OpenAIResponsesAccumulator(), sse(*events, wire.ended()))
    assert (streamed.tool_calls[0].arguments_json, streamed.tool_calls[0].free_text) == ("ls -l", True)


@pytest.mark.parametrize("done", [wire.arguments_done(0, CITY), wire.item_done(0, wire.call("look", CITY))])
def test_arguments_that_come_only_when_they_are_done_are_streamed_too(done: Json):
    for name, expect in (("look", FREE_TEXT), (FORCED_TOOL, FORCED)):
        event = json.loads(json.dumps(done).replace("look", name))
        accumulator = OpenAIResponsesAccumulator(expect, deltas=True)
        events = [wire.added(0, wire.call(name, "")), event, wire.ended(wire.call(name, CITY))]
        outcome = answer(accumulator, sse(*events))
        deltas = accumulator.drain()
        assert (outcome.text or outcome.tool_calls[0].arguments_json) == CITY
        assert CITY in (joined_text(deltas), *(arguments for _, _, arguments in joined_calls(deltas)))


def test_the_forced_tool_is_found_by_name_and_not_reported_as_a_call():
    for outcome in answers(
        wire.message("so"), wire.call("look"), wire.call(FORCED_TOOL, CITY, "f"), expect=FORCED
    ):
        assert (outcome.text, outcome.structured_json) == (CITY, CITY)
        assert [call.name for call in outcome.tool_calls] == ["look"]


def test_the_first_of_two_calls_of_the_forced_tool_is_the_answer():
    first, second = wire.call(FORCED_TOOL, CITY, "a"), wire.call(FORCED_TOOL, '{"city":"Rome"}', "b")
    events = [*wire.call_events(0, first, CITY), *wire.call_events(1, second, second["arguments"])]
    accumulator = OpenAIResponsesAccumulator(FORCED, deltas=True)
    assert answer(accumulator, sse(*events, wire.ended(first, second))).text == CITY
    assert joined_text(accumulator.drain()) == CITY


def test_text_is_never_the_answer_in_forced_mode():
    for outcome in failures(wire.message(CITY), expect=FORCED):
        assert "did not call" in outcome.message
    for outcome in failures(wire.call(FORCED_TOOL, '{"town":1}'), expect=FORCED):
        assert "schema" in outcome.message


def test_hosted_tools_are_named_and_never_the_callers_calls():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    for outcome in answers(search, wire.message("found")):
        assert outcome.hosted_tools == (HostedTool(type="web_search", id="ws_1", status="completed"),)
        assert outcome.tool_calls == ()


def test_encrypted_reasoning_and_assistant_phase_round_trip_unchanged():
    items = [wire.reasoning("hm"), wire.message("Looking.", phase="commentary"), wire.call()]
    for outcome in answers(*items):
        assert outcome.continuation is not None
        assert json.loads(outcome.continuation.state_json) == items
        assert outcome.continuation.provider == "openai_responses"
    assert all(outcome.continuation is None for outcome in answers(wire.message("Hello")))


# Structured output


def test_a_native_answer_is_text_that_satisfies_the_schema():
    for outcome in answers(wire.message(CITY), expect=NATIVE):
        assert outcome.structured_json == CITY
    for text in ('{"town":1}', "```json\n{}\n```", "", '{"city": NaN}'):
        for failure in failures(wire.message(text), expect=NATIVE):
            assert (failure.kind, failure.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


def test_a_turn_that_calls_a_tool_is_not_held_to_the_schema():
    for outcome in answers(wire.message("Let me look."), wire.call(), expect=NATIVE):
        assert (outcome.structured_json, len(outcome.tool_calls)) == (None, 1)


def test_what_length_cut_is_truncated_if_it_parses_and_says_so_if_not():
    for outcome in answers(wire.message(CITY), expect=NATIVE, **CUT):
        assert (outcome.truncated, outcome.finish) == (True, Finish.LENGTH)
    for failure in failures(wire.message('{"ci'), expect=NATIVE, **CUT):
        assert "incomplete:max_output_tokens" in failure.message


# Refusals and stops


def test_a_refusal_part_is_unusable_with_its_bill_and_is_not_repeated():
    for outcome in failures(wire.message("Well, "), wire.refusal("SECRET")):
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert "SECRET" not in outcome.message


@pytest.mark.parametrize("event", ["refusal.delta", "refusal.done"])
def test_a_refusal_that_was_only_streamed_is_one(event: str):
    told = wire.event(event, output_index=0, content_index=0, delta="I", refusal="I cannot")
    assert failed(OpenAIResponsesAccumulator(), sse(told, wire.ended())).kind is Kind.UNUSABLE
    done = wire.item_done(0, wire.refusal())
    outcome = failed(OpenAIResponsesAccumulator(), sse(done, *wire.text_events(1, "Hi"), wire.ended()))
    assert "refused" in outcome.message


def test_a_filter_withdraws_the_answer():
    for outcome in failures(wire.message("par"), **stopped("content_filter")):
        assert (outcome.kind, outcome.provider_code) == (Kind.UNUSABLE, "incomplete:content_filter")


@pytest.mark.parametrize(
    ("reason", "finish", "truncated"),
    [
        ("max_output_tokens", Finish.LENGTH, True),
        ("max_messages", Finish.CONTINUE, True),
        ("steered", Finish.CONTINUE, True),
        ("a_reason_of_next_year", Finish.UNRECOGNIZED, False),
    ],
)
def test_reasons_of_an_incomplete_response(reason: str, finish: Finish, truncated: bool):
    for outcome in answers(wire.message("so far"), **stopped(reason)):
        assert outcome.stop_reason == f"incomplete:{reason}"
        assert (outcome.finish, outcome.truncated) == (finish, truncated)


def test_an_empty_answer_is_one_after_a_length_stop_only():
    for outcome in answers(wire.reasoning("hm"), **CUT):
        assert (outcome.text, outcome.truncated) == ("", True)
    assert failures(wire.reasoning("hm"), **stopped("steered"))
    assert failures(wire.reasoning("hm"), expect=NATIVE, **CUT)


def test_an_unknown_status_passes_untouched():
    for outcome in outcomes(wire.message("x"), status="paused")[1:]:
        assert isinstance(outcome, Answer)
        assert (outcome.stop_reason, outcome.finish) == ("paused", Finish.UNRECOGNIZED)
        assert outcome.certainty is Certainty.EXACT


def test_joined_deltas_are_the_answer_in_both_forms():
    events = [*wire.text_events(0, "Hel", "lo"), *wire.call_events(1, wire.call(), '{"a"', ":1}")]
    items = wire.message("Hello"), wire.call(arguments='{"a":1}')
    for data in (sse(*events, wire.ended(*items)), sse(wire.ended(*items)), wire.document(*items)):
        accumulator = OpenAIResponsesAccumulator(deltas=True)
        outcome = answer(accumulator, data)
        deltas = accumulator.drain()
        assert joined_text(deltas) == outcome.text == "Hello"
        assert joined_calls(deltas) == [
            (call.id, call.name, call.arguments_json) for call in outcome.tool_calls
        ]


@pytest.mark.parametrize("told", ["", '{"at":1}'])
def test_joined_arguments_are_the_answers_when_they_come_with_the_end_or_not_at_all(told: str):
    blank, whole = wire.call(arguments=""), wire.call(arguments=told)
    closed = [wire.added(0, blank), wire.arguments_done(0, ""), wire.item_done(0, blank), wire.ended(whole)]
    for events in (closed, [wire.added(0, blank), wire.ended(whole)], [wire.ended(whole)]):
        accumulator = OpenAIResponsesAccumulator(deltas=True)
        (call,) = answer(accumulator, sse(*events)).tool_calls
        assert joined_calls(accumulator.drain()) == [("call_1", "look", call.arguments_json)]
        assert call.arguments_json == (told or "{}")


def test_arguments_that_come_before_their_call_is_announced_are_streamed_with_it():
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    accumulator.feed(
        sse(wire.arguments(0, '{"at"'), wire.added(0, wire.call(arguments="")), wire.arguments(0, ":1}"))
    )
    assert joined_calls(accumulator.drain()) == [("call_1", "look", '{"at":1}')]
    forced = OpenAIResponsesAccumulator(FORCED, deltas=True)
    announced = wire.added(0, wire.call(FORCED_TOOL, ""))
    forced.feed(sse(wire.arguments(0, CITY[:5]), announced, announced, wire.arguments(0, CITY[5:])))
    assert joined_text(forced.drain()) == CITY


def without(events: list[Json], *names: str) -> list[Json]:
    """Return the events without some of their members."""
    return [{name: value for name, value in event.items() if name not in names} for event in events]


def items_of_llamacpp() -> list[Json]:
    """Return the events of a server that tells no index and names items by the id of their call."""
    calls = [wire.call("look", '{"at":1}', "fc_a"), wire.call("look", '{"at":2}', "fc_b")]
    events: list[Json] = [
        wire.added(0, {"type": "reasoning", "id": "rs_1", "summary": []}),
        {**wire.event("reasoning_text.delta"), "item_id": "rs_1", "delta": "hm"},
        wire.added(1, {"type": "message", "id": "msg_1", "role": "assistant", "content": []}),
        {**wire.text(1, "Hello"), "item_id": "msg_1"},
    ]
    for index, call in enumerate(calls):
        blank = {"type": "function_call", "call_id": call["call_id"], "name": "look", "arguments": ""}
        events.append(wire.added(2 + index, blank))
    for index, call in reversed([*enumerate(calls)]):
        events.append({**wire.arguments(2 + index, call["arguments"]), "item_id": call["call_id"]})
    events += [wire.item_done(2 + index, call) for index, call in enumerate(calls)]
    return without(events, "output_index", "content_index")


@pytest.mark.parametrize("is_told_again", [True, False])
def test_items_without_an_index_are_told_apart_by_their_ids(is_told_again: bool):
    calls = [wire.call("look", '{"at":1}', "fc_a"), wire.call("look", '{"at":2}', "fc_b")]
    output = [wire.reasoning("hm"), wire.message("Hello"), *calls] if is_told_again else []
    accumulator = OpenAIResponsesAccumulator(deltas=True)
    outcome = answer(accumulator, sse(wire.created(), *items_of_llamacpp(), wire.ended(*output)))
    deltas = accumulator.drain()
    assert [(call.id, call.arguments_json) for call in outcome.tool_calls] == [
        ("fc_a", '{"at":1}'),
        ("fc_b", '{"at":2}'),
    ]
    assert joined_calls(deltas) == [(call.id, call.name, call.arguments_json) for call in outcome.tool_calls]
    assert joined_text(deltas) == outcome.text == "Hello"


def test_fragments_without_an_index_belong_to_the_item_that_they_name():
    calls = [wire.call("look", '{"at":1}', "c1"), wire.call("look", '{"at":2}', "c2")]
    blank = [{**call, "id": f"fc_{index}", "arguments": ""} for index, call in enumerate(calls)]
    pieces = [{**wire.arguments(0, call["arguments"]), "item_id": f"fc_{i}"} for i, call in enumerate(calls)]
    events = [wire.added(0, blank[0]), wire.added(1, blank[1]), *without(pieces, "output_index")]
    outcome = answer(OpenAIResponsesAccumulator(), sse(wire.created(), *events, wire.ended()))
    assert [call.arguments_json for call in outcome.tool_calls] == ['{"at":1}', '{"at":2}']


def test_items_that_come_whole_and_without_an_index_are_one_each():
    for ids in (("m1", "m2"), ("", "")):
        items = [{**wire.message(text), "id": id} for text, id in zip(("Hel", "lo"), ids, strict=True)]
        events = without([wire.item_done(0, item) for item in items], "output_index")
        assert (
            answer(OpenAIResponsesAccumulator(), sse(wire.created(), *events, wire.ended())).text == "Hello"
        )


@pytest.mark.parametrize("content", ["Hello", [{"type": "text", "text": "Hello"}]])
def test_text_is_text_however_a_compatible_server_writes_it(content: object):
    item: Json = {"type": "message", "role": "assistant", "content": content}
    assert [each.text for each in answers(item)] == ["Hello", "Hello"]
