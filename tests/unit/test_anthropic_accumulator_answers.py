"""Which Anthropic answers can be used: tools, structured output, refusals, stops; streamed and as one body."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, Finish
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import anthropic_events as wire
from tests.support.wire_bytes import Json, answer, failed, joined_calls, joined_text, read, sse


def needs_city(document: object) -> str | None:
    """Stand for a compiled schema that requires `city`."""
    return None if isinstance(document, dict) and "city" in document else "`city` is missing"


NATIVE = Expectation(schema_check=needs_city)
FORCED = Expectation(schema_check=needs_city, forced_tool=True)
ANY_FORCED = Expectation(schema_check=lambda document: None, forced_tool=True, enforce=False)

CITY = '{"city": "Paris"}'


def both(*blocks: list[Json], reason: str | None = "end_turn") -> list[bytes]:
    """Return the answer as a stream, and as the one body that says the same."""
    contents = []
    for block in blocks:
        content = dict(block[0]["content_block"])
        for event in block[1:-1]:
            piece = event["delta"]
            for name, into in (("text", "text"), ("thinking", "thinking"), ("signature", "signature")):
                if name in piece:
                    content[into] += piece[name]
        fragments = "".join(event["delta"].get("partial_json", "") for event in block[1:-1])
        if fragments:
            content["input"] = json.loads(fragments)
        contents.append(content)
    return [wire.stream(*blocks, reason=reason), wire.document(*contents, reason=reason)]


def outcomes(*blocks: list[Json], reason: str | None = "end_turn", expect: Expectation = FREE_TEXT):
    return [read(AnthropicAccumulator(expect), data) for data in both(*blocks, reason=reason)]


# Tools


def test_the_argument_pieces_joined_are_the_arguments_also_where_the_model_gave_none():
    for data in both(wire.tool_block(0, "look"), wire.tool_block(1, "find", '{"a":1}'), reason="tool_use"):
        accumulator = AnthropicAccumulator(deltas=True)
        outcome = answer(accumulator, data)
        assert [call.arguments_json for call in outcome.tool_calls] == ["{}", '{"a":1}']
        assert joined_calls(accumulator.drain()) == [
            (call.id, call.name, call.arguments_json) for call in outcome.tool_calls
        ]


def test_a_thinking_tool_turn_with_no_text_is_an_answer_not_an_empty_one():
    for outcome in outcomes(
        wire.thinking_block(0, "hm"), wire.tool_block(1, "look", "{}"), reason="tool_use"
    ):
        assert isinstance(outcome, Answer)
        assert (outcome.text, outcome.finish) == ("", Finish.TOOL_CALLS)
        assert [call.name for call in outcome.tool_calls] == ["look"]


def test_an_answer_with_neither_text_nor_tool_calls_is_unusable():
    for blocks in ([], [wire.thinking_block(0, "hm")], [wire.text_block(0)]):
        for outcome in outcomes(*blocks):
            assert not isinstance(outcome, Answer)
            assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


def test_the_forced_tool_is_found_by_name_not_by_position():
    blocks = [
        wire.tool_block(0, "look", '{"q":1}'),
        wire.text_block(1, "so"),
        wire.tool_block(2, FORCED_TOOL, CITY),
    ]
    for outcome in outcomes(*blocks, reason="tool_use", expect=FORCED):
        assert isinstance(outcome, Answer)
        assert json.loads(outcome.structured_json or "") == {"city": "Paris"}
        assert outcome.text == outcome.structured_json
        assert outcome.finish is Finish.TOOL_CALLS  # the caller's tool was called besides


def test_an_answer_by_the_forced_tool_alone_finished():
    for outcome in outcomes(wire.tool_block(0, FORCED_TOOL, CITY), reason="tool_use", expect=FORCED):
        assert isinstance(outcome, Answer)
        assert (outcome.finish, outcome.stop_reason) == (Finish.STOP, "tool_use")


def test_text_is_never_the_answer_in_forced_mode():
    for outcome in outcomes(wire.text_block(0, CITY), expect=FORCED):
        assert not isinstance(outcome, Answer)
        assert outcome.kind is Kind.UNUSABLE
        assert "did not call" in outcome.message


def test_the_first_of_two_calls_of_the_forced_tool_is_the_answer():
    blocks = wire.tool_block(0, FORCED_TOOL, CITY), wire.tool_block(1, FORCED_TOOL, '{"city":"Rome"}')
    accumulator = AnthropicAccumulator(FORCED, deltas=True)
    assert answer(accumulator, wire.stream(*blocks, reason="tool_use")).text == CITY
    assert joined_text(accumulator.drain()) == CITY


@pytest.mark.parametrize("fields", [{"id": ""}, {"id": None}, {"name": ""}, {"id": ["x"]}, {"name": {}}])
def test_a_malformed_buffered_tool_call_is_loud(fields: Json):
    block = [wire.opened(0, "tool_use", **fields), wire.closed(0)]
    for outcome in outcomes(block, reason="tool_use"):
        assert not isinstance(outcome, Answer)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert "no id or no name" in outcome.message


def test_an_ordinary_tool_without_arguments_is_called_with_an_empty_object():
    for block in (wire.tool_block(0, "look"), wire.tool_block(0, "look", "", "")):
        for outcome in outcomes(block, reason="tool_use"):
            assert isinstance(outcome, Answer)
            assert outcome.tool_calls[0].arguments_json == "{}"


def test_without_fragments_the_input_of_the_blocks_start_is_the_argument():
    for name, expect in (("look", Expectation()), (FORCED_TOOL, FORCED)):
        block = [wire.opened(0, "tool_use", name=name, input={"city": "Zürich"}), wire.closed(0)]
        accumulator = AnthropicAccumulator(expect, deltas=True)
        outcome = answer(accumulator, wire.stream(block, reason="tool_use"))
        told = outcome.structured_json or outcome.tool_calls[0].arguments_json
        assert told == '{"city":"Zürich"}'
        deltas = accumulator.drain()
        assert told in (joined_text(deltas), *(arguments for _, _, arguments in joined_calls(deltas)))


def test_fragments_win_over_the_input_of_the_blocks_start():
    block = [wire.opened(0, "tool_use", input={"a": 1}), wire.json_piece(0, '{"b":2}'), wire.closed(0)]
    outcome = answer(AnthropicAccumulator(), wire.stream(block, reason="tool_use"))
    assert outcome.tool_calls[0].arguments_json == '{"b":2}'


def test_the_forced_tool_without_arguments_is_unusable_unless_the_schema_allows_it():
    block = wire.tool_block(0, FORCED_TOOL)
    for outcome in outcomes(block, reason="tool_use", expect=FORCED):
        assert not isinstance(outcome, Answer)
        assert outcome.kind is Kind.UNUSABLE
    unenforced = Expectation(schema_check=needs_city, forced_tool=True, enforce=False)
    for outcome in outcomes(block, reason="tool_use", expect=unenforced):
        assert not isinstance(
            outcome, Answer
        )  # `{}` is our reading, so that only the schema can make it an answer
    for outcome in outcomes(block, reason="tool_use", expect=ANY_FORCED):
        assert isinstance(outcome, Answer)
        assert outcome.structured_json == "{}"


def test_an_index_used_twice_or_never_loses_no_block():
    first, second = wire.text_block(0, "Hello"), wire.tool_block(0, "look", '{"a":1}')
    indexless = [
        {name: value for name, value in event.items() if name != "index"} for event in first + second
    ]
    for blocks in ([first, second], [indexless]):
        outcome = answer(AnthropicAccumulator(), wire.stream(*blocks, reason="tool_use"))
        assert (outcome.text, len(outcome.tool_calls)) == ("Hello", 1)
        assert outcome.tool_calls[0].arguments_json == '{"a":1}'


def test_text_without_its_blocks_start_is_not_lost_and_thinking_never_enters_it():
    mixed = [wire.text(0, "a"), wire.thinking(0, "hm"), wire.text(0, "b")]
    accumulator = AnthropicAccumulator()
    assert answer(accumulator, wire.stream(mixed)).text == "ab"
    assert accumulator.snapshot().reasoning == "hm"


def test_hosted_tools_are_named_and_never_the_callers_calls():
    hosted = [wire.opened(0, "server_tool_use", id="s", name="web_search", input={}), wire.closed(0)]
    for outcome in outcomes(hosted, wire.text_block(1, "found")):
        assert isinstance(outcome, Answer)
        assert outcome.hosted_tools == (HostedTool(type="web_search", id="s"),)
        assert outcome.tool_calls == ()


def test_the_continuation_holds_every_block_as_the_provider_sent_it():
    redacted = [wire.opened(0, "redacted_thinking", data="b3BhcXVl"), wire.closed(0)]
    thoughts = [wire.opened(1, "thinking", thinking="so", signature="c2ln"), wire.closed(1)]
    cited = [
        wire.opened(2, citations=[]),
        wire.delta(2, citation={"url": "u"}),
        wire.text(2, "see"),
        wire.closed(2),
    ]
    hosted = [wire.opened(3, "server_tool_use", id="s", name="web_search", input={}), wire.closed(3)]
    caller = wire.tool_block(4, "look", '{"a": 1.0}')
    outcome = answer(
        AnthropicAccumulator(), wire.stream(redacted, thoughts, cited, hosted, caller, reason="tool_use")
    )
    assert outcome.continuation is not None
    assert '"input":{"a": 1.0}' in outcome.continuation.state_json  # the very text that was generated
    content = json.loads(outcome.continuation.state_json)[0]["content"]
    assert content[0] == {"type": "redacted_thinking", "data": "b3BhcXVl"}
    assert content[1] == {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    assert content[2] == {"type": "text", "text": "see", "citations": [{"url": "u"}]}
    assert content[3] == {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


def test_a_turn_that_cannot_be_sent_back_has_no_continuation():
    broken = [wire.opened(0, "server_tool_use", id="s", name="w"), wire.json_piece(0, '{"q'), wire.closed(0)]
    outcome = answer(
        AnthropicAccumulator(), wire.stream(broken, wire.tool_block(1, "look"), reason="tool_use")
    )
    assert outcome.continuation is None
    assert len(outcome.tool_calls) == 1


# Structured output


def test_a_native_answer_is_text_that_satisfies_the_schema():
    for outcome in outcomes(wire.text_block(0, '{"city": ', '"Paris"}'), expect=NATIVE):
        assert isinstance(outcome, Answer)
        assert (outcome.text, outcome.structured_json) == (CITY, CITY)


@pytest.mark.parametrize(
    "text",
    ["```json\n{}\n```", '{"city": NaN}', '{"city": 1e999}', '{"city"', "Sure!", "", '{"town":1}', "[" * 200],
)
def test_nothing_is_repaired(text: str):
    for outcome in outcomes(wire.text_block(0, text), expect=NATIVE):
        assert not isinstance(outcome, Answer)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert text == "" or text not in outcome.message


def test_where_the_provider_enforces_the_schema_parsing_is_enough():
    lax = Expectation(schema_check=needs_city, enforce=False)
    for outcome in outcomes(wire.text_block(0, '{"town":1}'), expect=lax):
        assert isinstance(outcome, Answer)


def test_a_structured_answer_that_was_cut_and_parses_is_truncated():
    for outcome in outcomes(wire.text_block(0, CITY), reason="max_tokens", expect=NATIVE):
        assert isinstance(outcome, Answer)
        assert (outcome.truncated, outcome.finish) == (True, Finish.LENGTH)


def test_a_structured_answer_that_was_cut_and_does_not_parse_says_what_cut_it():
    for outcome in outcomes(wire.text_block(0, '{"ci'), reason="max_tokens", expect=NATIVE):
        assert not isinstance(outcome, Answer)
        assert "max_tokens" in outcome.message


def test_a_turn_that_calls_a_tool_is_not_held_to_the_schema():
    blocks = wire.text_block(0, "Let me look."), wire.tool_block(1, "look", "{}")
    for outcome in outcomes(*blocks, reason="tool_use", expect=NATIVE):
        assert isinstance(outcome, Answer)
        assert (outcome.structured_json, len(outcome.tool_calls)) == (None, 1)


# Refusals and stops


def test_a_refusal_is_unusable_with_its_bill_and_category():
    events = wire.message(wire.text_block(0, "I "), reason="refusal")
    events[-2]["delta"]["stop_details"] = {
        "type": "refusal",
        "category": "cyber",
        "explanation": "secret words",
    }
    outcome = failed(AnthropicAccumulator(), sse(*events))
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert (outcome.provider_code, outcome.partial_text) == ("refusal", "I ")
    assert "cyber" in outcome.message
    assert "secret" not in outcome.message


@pytest.mark.parametrize(
    "details", [None, {}, {"category": None}, {"category": ["x"]}, "x", {"category": "x" * 999}]
)
def test_odd_details_of_a_refusal_change_nothing_else(details: object):
    outcome = failed(
        AnthropicAccumulator(), sse(wire.start(), wire.ended("refusal", stop_details=details), wire.STOP)
    )
    assert outcome.kind is Kind.UNUSABLE
    assert len(outcome.message) < 120


EMPTY = [
    ("max_tokens", True, Finish.LENGTH),
    ("model_context_window_exceeded", True, Finish.LENGTH),
    ("stop_sequence", False, Finish.STOP),
]


@pytest.mark.parametrize(("reason", "truncated", "finish"), EMPTY)
def test_an_empty_answer_is_one_after_a_length_or_sequence_stop(reason: str, truncated: bool, finish: Finish):
    for outcome in outcomes(reason=reason):
        assert isinstance(outcome, Answer)
        assert (outcome.text, outcome.truncated, outcome.finish) == ("", truncated, finish)
    for outcome in outcomes(reason=reason, expect=NATIVE):
        assert not isinstance(outcome, Answer)


@pytest.mark.parametrize(
    ("reason", "finish", "truncated"),
    [
        ("pause_turn", Finish.CONTINUE, True),
        ("compaction", Finish.CONTINUE, True),
        ("a_word_of_next_year", Finish.UNRECOGNIZED, False),
        (None, Finish.UNRECOGNIZED, False),
    ],
)
def test_other_stop_reasons_pass_untouched(reason: str | None, finish: Finish, truncated: bool):
    for outcome in outcomes(wire.text_block(0, "so far"), reason=reason):
        assert isinstance(outcome, Answer)
        assert (outcome.stop_reason, outcome.finish, outcome.truncated) == (reason or "", finish, truncated)


def test_a_pause_goes_on_from_the_turn_with_its_hosted_tools():
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rust"}}
    block = [wire.opened(0, **{**use, "input": {}}), wire.json_piece(0, '{"query":"rust"}'), wire.closed(0)]  # type: ignore[arg-type]
    for outcome in outcomes(block, wire.text_block(1, "so far"), reason="pause_turn"):
        assert isinstance(outcome, Answer)
        assert outcome.continuation is not None
        ((turn),) = json.loads(outcome.continuation.state_json)
        assert turn == {"role": "assistant", "content": [use, {"type": "text", "text": "so far"}]}


# One JSON body


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b'{"type":"message"}', b'{"content":"x"}', b'{"content":null}', b"[1]"]
)
def test_a_document_that_is_no_answer_is_unusable(data: bytes):
    outcome = failed(AnthropicAccumulator(), data)
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.UNKNOWN)


def test_a_document_that_is_no_answer_keeps_the_bill_it_names():
    outcome = failed(AnthropicAccumulator(), wire.document().replace(b'"content": []', b'"content": 5'))
    assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


def test_an_error_document_with_status_200_goes_by_its_type():
    data = b' \r\n\xef\xbb\xbf{"type":"error","error":{"type":"overloaded_error"}}'
    assert failed(AnthropicAccumulator(), data[3:]).kind is Kind.RATE_LIMITED
    assert failed(AnthropicAccumulator(), b'{"error":"no"}').kind is Kind.UNAVAILABLE


def test_joined_deltas_are_the_answer_in_both_forms():
    for data in both(
        wire.thinking_block(0, "hm"), wire.text_block(1, "Hello", " you"), wire.tool_block(2, "look", CITY)
    ):
        accumulator = AnthropicAccumulator(deltas=True)
        outcome = answer(accumulator, data)
        deltas = accumulator.drain()
        assert joined_text(deltas) == outcome.text == "Hello you"
        assert joined_calls(deltas) == [
            (call.id, call.name, call.arguments_json) for call in outcome.tool_calls
        ]
