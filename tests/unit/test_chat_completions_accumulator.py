"""What a Chat Completions stream says: its text, its calls, its end (R-C1, R-T1)."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.accumulators import ChatCompletionsAccumulator
from modelmeter_server.core.accumulators.accumulator import MAX_PARTS
from modelmeter_server.core.answers import Finish
from modelmeter_server.core.outcomes import Certainty, Kind
from tests.support import chat_events as wire
from tests.support.wire_bytes import Json, answer, body, failed, frame, joined_calls, joined_text, read, sse


def calls_of(*chunks: Json) -> list[tuple[str, str, str]]:
    """Return the calls of an answer, and make sure that its deltas say the same."""
    accumulator = ChatCompletionsAccumulator(deltas=True)
    outcome = answer(accumulator, sse(wire.role(), *chunks, *wire.ended("tool_calls")))
    calls = [(call.id, call.name, call.arguments_json) for call in outcome.tool_calls]
    assert [(id, name, text or "{}") for id, name, text in joined_calls(accumulator.drain())] == calls
    return calls


def test_deltas_reassemble_the_text_exactly():
    accumulator = ChatCompletionsAccumulator(deltas=True)
    outcome = answer(accumulator, wire.stream("Hel", "lo", " wörld"))
    assert outcome.text == joined_text(accumulator.drain()) == "Hello wörld"
    assert (outcome.finish, outcome.stop_reason, outcome.certainty) == (Finish.STOP, "stop", Certainty.EXACT)
    assert (outcome.model_served, outcome.provider_response_id) == ("m-1", "chatcmpl-1")


def test_tool_call_fragments_reassemble_under_their_index():
    chunks = [
        *wire.call(0, '{"a"'),
        *wire.call(1, '{"b"', name="find"),
        wire.fragment(index=0, arguments=":1}"),
    ]
    assert calls_of(*chunks, wire.fragment(index=1, arguments=":2}")) == [
        ("call_0", "look", '{"a":1}'),
        ("call_1", "find", '{"b":2}'),
    ]


def test_an_empty_stream_reports_nothing_generated():
    for data in (
        b"",
        sse(wire.role()),
        sse(wire.role(), wire.DONE),
        sse(wire.chunk(prompt_filter_results=[{}])),
    ):
        outcome = failed(ChatCompletionsAccumulator(), data)
        assert (outcome.kind, outcome.certainty) == (Kind.UNAVAILABLE, Certainty.UNKNOWN)


def test_a_repeated_id_and_name_are_kept_not_concatenated():
    again = wire.fragment(index=0, id="call_0", name="look", arguments="}")
    assert calls_of(*wire.call(0, "{"), again) == [("call_0", "look", "{}")]


def test_a_new_id_with_a_name_opens_a_call_even_at_a_used_index():
    chunks = [*wire.call(0, '{"a":1}', id="x"), *wire.call(0, '{"b":2}', id="y")]
    assert calls_of(*chunks) == [("x", "look", '{"a":1}'), ("y", "look", '{"b":2}')]


def test_calls_that_are_all_numbered_0_and_have_no_id_are_told_apart_by_their_names():
    chunks = [wire.fragment(index=0, id="", name=name, arguments="{}") for name in ("look", "find")]
    assert calls_of(*chunks) == [("", "look", "{}"), ("", "find", "{}")]


def test_whole_calls_without_ids_are_told_apart_by_where_their_arguments_begin():
    """Gemini's compatible endpoint: one tool twice in one turn, no id, and every call numbered 0."""
    paris, rome = '{"city": "Paris"}', '{"city": "Rome"}'
    for extra in ({"index": 0}, {}, {"index": 0, "id": ""}):
        told = [{**extra, "function": {"name": "look", "arguments": each}} for each in (paris, rome)]
        for events in ([wire.said(tool_calls=told)], [wire.said(tool_calls=[each]) for each in told]):
            accumulator = ChatCompletionsAccumulator(deltas=True)
            outcome = answer(accumulator, sse(*events, *wire.ended("tool_calls")))
            assert [call.arguments_json for call in outcome.tool_calls] == [paris, rome]
            assert [arguments for _, _, arguments in joined_calls(accumulator.drain())] == [paris, rome]
    pieces = [wire.fragment(index=0, name="look", arguments=piece) for piece in ('{"a": ', '{"b": 1}', "}")]
    (call,) = answer(ChatCompletionsAccumulator(), sse(*pieces, *wire.ended("tool_calls"))).tool_calls
    assert call.arguments_json == '{"a": {"b": 1}}'


@pytest.mark.parametrize("id", [{}, {"id": ""}, {"id": "call_1"}, {"id": None}])
def test_calls_of_a_whole_message_are_no_fragments_of_each_other(id: Json):
    texts = ['{"at": 1}', '{"at": 1}', '{"at": 2}', ""]
    calls = [{**id, "type": "function", "function": {"name": "look", "arguments": text}} for text in texts]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    for data in (
        body(wire.document(message, reason="tool_calls")),
        sse({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}, wire.usage()),
    ):
        outcome = answer(ChatCompletionsAccumulator(), data)
        assert [call.arguments_json for call in outcome.tool_calls] == [*texts[:3], "{}"]


def test_a_missing_index_means_the_current_call():
    chunks = [
        wire.fragment(id="x", name="look"),
        wire.fragment(arguments='{"a"'),
        wire.fragment(arguments=":1}"),
    ]
    assert calls_of(*chunks) == [("x", "look", '{"a":1}')]


def test_a_fragment_without_a_name_never_opens_a_call_beside_an_open_one():
    chunks = [*wire.call(0, '{"a"'), wire.fragment(index=1, id="z", arguments=":1}")]
    assert calls_of(*chunks) == [("call_0", "look", '{"a":1}')]


def test_null_arguments_are_nothing_and_an_object_is_written_out():
    chunks = [wire.fragment(index=0, id="x", name="look", arguments=None)]
    assert calls_of(*chunks, wire.fragment(index=0, arguments={"a": [1]})) == [("x", "look", '{"a":[1]}')]
    assert calls_of(*chunks) == [("x", "look", "{}")]


def test_a_call_whose_name_or_id_comes_late_is_told_whole():
    late_name = [
        wire.fragment(index=0, id="x", arguments="{"),
        wire.fragment(index=0, name="look", arguments="}"),
    ]
    assert calls_of(*late_name) == [("x", "look", "{}")]
    late_id = [
        wire.fragment(index=0, name="look"),
        wire.fragment(index=0, id="x", name="look", arguments="{}"),
    ]
    assert calls_of(*late_id) == [("x", "look", "{}")]


def test_a_call_beside_the_finish_stop_is_a_call():
    outcome = answer(ChatCompletionsAccumulator(), sse(*wire.call(0, "{}"), *wire.ended("stop")))
    assert (outcome.finish, outcome.stop_reason) == (Finish.TOOL_CALLS, "stop")


def test_text_and_reasoning_are_kept_apart_whatever_the_reasoning_is_called():
    for name in ("reasoning_content", "reasoning"):
        accumulator = ChatCompletionsAccumulator()
        outcome = answer(accumulator, sse(wire.said(**{name: "hm"}), wire.text("21"), *wire.ended()))
        assert (outcome.text, accumulator.snapshot().reasoning) == ("21", "hm")


def test_reasoning_that_is_sent_under_two_names_counts_once():
    accumulator = ChatCompletionsAccumulator()
    read(accumulator, sse(wire.said(reasoning="hm", reasoning_content="hm"), *wire.ended()))
    assert accumulator.snapshot().reasoning == "hm"


def test_typed_content_is_text_and_thinking():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    chunks = [wire.text([thinking]), wire.text([thinking, {"type": "text", "text": "1"}]), wire.text("44")]
    accumulator = ChatCompletionsAccumulator(deltas=True)
    assert answer(accumulator, sse(*chunks, *wire.ended())).text == "144"
    assert accumulator.snapshot().reasoning == "hmhm"
    assert joined_text(accumulator.drain()) == "144"


def test_only_choice_0_is_the_answer_and_another_one_proves_generation():
    other = wire.chunk(wire.choice({"content": "no"}, index=1))
    outcome = answer(ChatCompletionsAccumulator(), sse(other, wire.text("yes"), other, *wire.ended()))
    assert outcome.text == "yes"
    assert failed(ChatCompletionsAccumulator(), sse(other)).kind is Kind.UNACCOUNTED


def test_the_finish_of_another_choice_is_no_end():
    ended = wire.chunk(wire.choice({}, "stop", index=1))
    assert failed(ChatCompletionsAccumulator(), sse(wire.text("so"), ended)).kind is Kind.UNACCOUNTED


def test_chunks_are_read_whatever_their_event_is_called():
    chunks = [wire.text("Hello"), *wire.ended()[:2]]
    data = b"".join(frame(each, "completion.chunk") for each in chunks)
    assert answer(ChatCompletionsAccumulator(), data).text == "Hello"


def test_a_whole_message_in_one_chunk_is_an_answer_and_repeats_no_delta():
    message = {"role": "assistant", "content": "Hello"}
    pretended = wire.chunk({"index": 0, "message": message, "finish_reason": "stop"}, usage=wire.USAGE)
    assert answer(ChatCompletionsAccumulator(), sse(pretended)).text == "Hello"
    assert answer(ChatCompletionsAccumulator(), sse(wire.text("Hello"), pretended)).text == "Hello"


def test_the_first_id_and_model_that_are_told_stand():
    first, second = wire.chunk(), wire.text("Hello")
    first |= {"id": "", "model": ""}
    outcome = answer(ChatCompletionsAccumulator(), sse(first, second, *wire.ended()))
    assert (outcome.provider_response_id, outcome.model_served) == ("chatcmpl-1", "m-1")


def test_the_service_tier_is_told():
    tail = [wire.finish(), wire.usage(service_tier="flex"), wire.DONE]
    assert answer(ChatCompletionsAccumulator(), sse(wire.text("Hello"), *tail)).service_tier == "flex"


def test_the_turn_goes_back_in_the_servers_own_words():
    signature = {"google": {"thought_signature": "c2ln"}}
    details = [
        {"type": "reasoning.text", "index": 0, "text": "h"},
        {"type": "reasoning.text", "index": 0, "text": "m"},
    ]
    chunks = [
        wire.said(reasoning="hm", reasoning_details=details[:1]),
        wire.said(reasoning_details=details[1:]),
        wire.said(reasoning_details=[{"type": "reasoning.text", "index": 0, "signature": "c2ln"}]),
        wire.fragment(index=0, id="x", type="function", name="look", arguments="{}", extra_content=signature),
    ]
    outcome = answer(ChatCompletionsAccumulator(), sse(*chunks, *wire.ended("tool_calls")))
    assert outcome.continuation is not None
    (turn,) = json.loads(outcome.continuation.state_json)
    assert (turn["role"], turn["content"], turn["reasoning"]) == ("assistant", None, "hm")
    assert turn["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "c2ln"}
    ]
    (call,) = turn["tool_calls"]
    assert call["extra_content"] == signature
    assert (call["id"], call["function"]) == ("x", {"name": "look", "arguments": "{}"})


def test_a_body_and_a_stream_carry_unknown_fields_of_a_call_into_the_same_turn():
    call = {
        "id": "x",
        "type": "function",
        "new": [1],
        "function": {"name": "look", "arguments": "{}", "also": 2},
    }
    message = {"role": "assistant", "content": "So", "tool_calls": [call], "thought_signature": "c2ln"}
    streamed = sse(wire.said(**message), *wire.ended("tool_calls"))
    both = [
        answer(ChatCompletionsAccumulator(), data).continuation
        for data in (streamed, wire.whole(message, reason="tool_calls"))
    ]
    assert both[0] == both[1]
    assert both[0] is not None
    assert json.loads(both[0].state_json) == [message]


def test_typed_content_goes_back_typed():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    other = {"type": "reference", "reference_ids": [1]}
    chunks = [
        wire.text("A"),
        wire.text([thinking]),
        wire.text([thinking, other]),
        wire.text("B"),
        *wire.call(0, "{}"),
    ]
    outcome = answer(ChatCompletionsAccumulator(), sse(*chunks, *wire.ended("tool_calls")))
    assert outcome.continuation is not None
    assert json.loads(outcome.continuation.state_json)[0]["content"] == [
        {"type": "text", "text": "A"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hmhm"}]},
        other,
        {"type": "text", "text": "B"},
    ]


@pytest.mark.parametrize(
    "hostile", [{"tool_calls": 1}, {"annotations": [{}]}, {"content": [{"type": "image"}]}]
)
def test_a_hostile_number_of_parts_ends_the_call(hostile: Json):
    accumulator = ChatCompletionsAccumulator()
    for number in range(MAX_PARTS + 1):
        each = (
            {"tool_calls": [{"id": str(number), "function": {"name": "look"}}]}
            if hostile.get("tool_calls")
            else hostile
        )
        accumulator.feed(frame(wire.said(**each)))
    assert accumulator.done
    assert failed(accumulator, b"").kind is Kind.UNACCOUNTED
