"""Gemini chunks become a completion: text, thoughts, calls, Google's own tools, and the turn that goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelmeter_server.core.accumulators import GeminiAccumulator
from modelmeter_server.core.answers import Expectation, Finish, ReasoningDelta
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, End, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import gemini_chunks as wire
from tests.support.wire_bytes import answer, ending, failed, joined_calls, joined_text


def make(**options: Any) -> GeminiAccumulator:
    return GeminiAccumulator(deltas=True, **options)


def turn(data: bytes) -> list[Any]:
    """Return the parts that go back to the provider."""
    continuation = answer(make(), data).continuation
    assert continuation is not None
    assert continuation.provider == "gemini"
    (content,) = json.loads(continuation.state_json)
    assert content["role"] == "model"
    parts: list[Any] = content["parts"]
    return parts


def test_a_whole_stream_is_an_answer_with_its_model_and_its_id():
    got = answer(make(), wire.stream(wire.text("Hello"), wire.text(" there")))
    assert (got.text, got.finish, got.stop_reason, got.certainty) == (
        "Hello there",
        Finish.STOP,
        "STOP",
        Certainty.EXACT,
    )
    assert (got.model_served, got.provider_response_id, got.continuation) == ("m-1", "r-1", None)


def test_adjacent_text_is_joined_and_signed_parts_survive():
    signed = wire.text("", thoughtSignature="c2ln")
    called = wire.call("look", {"b": 1, "a": 2}, signature="c2ln", id="c1")
    unknown = {"partOfTomorrow": {"x": [1]}}
    data = wire.stream(wire.text("He"), wire.text("llo"), signed, wire.text("!"), unknown, called)
    assert turn(data) == [wire.text("Hello"), signed, wire.text("!"), unknown, called]


def test_neighbouring_thoughts_are_joined_and_stay_apart_from_text():
    data = wire.stream(
        wire.thought("a"), wire.thought("b"), wire.text("x"), wire.thought("c"), wire.call("look")
    )
    assert turn(data) == [wire.thought("ab"), wire.text("x"), wire.thought("c"), wire.call("look")]


def test_thoughts_are_reasoning_and_never_the_answer():
    accumulator = make()
    got = answer(accumulator, wire.stream(wire.thought("hm"), wire.text("yes")))
    assert got.text == "yes"
    assert accumulator.snapshot().reasoning == "hm"
    assert accumulator.drain()[0] == ReasoningDelta("hm")


def test_the_empty_text_that_closes_a_stream_does_not_go_back():
    assert turn(wire.stream(wire.call("look", id="c1"), wire.text(""))) == [wire.call("look", id="c1")]


def test_a_signature_in_a_later_chunk_of_a_call_stays_with_the_call():
    data = wire.stream(
        wire.pieces(name="look"),
        {**wire.pieces(("$.q", "x"), more=False), "thoughtSignature": "c2ln"},
    )
    assert turn(data) == [wire.call("look", {"q": "x"}, signature="c2ln")]


def test_calls_in_separate_chunks_are_all_there_and_finish_with_calls():
    got = answer(make(), wire.stream(wire.call("a", {"x": 1}, id="c1"), wire.call("b", id="c2")))
    assert [(call.id, call.name, call.arguments_json) for call in got.tool_calls] == [
        ("c1", "a", '{"x":1}'),
        ("c2", "b", "{}"),
    ]
    assert (got.finish, got.stop_reason) == (Finish.TOOL_CALLS, "STOP")


def test_a_call_without_an_id_is_named_after_its_place_in_the_turn():
    got = answer(make(), wire.stream(wire.text("So"), wire.text("..."), wire.call("look"), wire.call("look")))
    assert [call.id for call in got.tool_calls] == ["look-1", "look-2"]


def test_a_call_without_a_name_is_unusable_and_billed():
    got = failed(make(), wire.stream({"functionCall": {"args": {"a": 1}}}))
    assert (got.kind, got.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


def test_streamed_arguments_are_put_together_and_told_when_the_call_ends():
    accumulator = make()
    first = wire.sse(
        wire.chunk(wire.pieces(name="look")),
        wire.chunk(wire.pieces(("$.q", ("Bos",)))),
        wire.chunk(wire.pieces(("$.q", "ton"))),
    )
    accumulator.feed(first)
    assert accumulator.snapshot().tool_calls == (("look-0", "look", '{"q":"Boston"'),)
    accumulator.feed(wire.sse(wire.chunk({"functionCall": {}}), wire.chunk(wire.call("b", id="c2"))))
    accumulator.feed(wire.sse(wire.chunk(finish="STOP", told=wire.USAGE)))
    accumulator.finish(ending())
    calls = [("look-0", "look", '{"q":"Boston"}'), ("c2", "b", "{}")]
    assert [
        (id, name, arguments or "{}") for id, name, arguments in joined_calls(accumulator.drain())
    ] == calls
    assert [
        (id, name, arguments or "{}") for id, name, arguments in accumulator.snapshot().tool_calls
    ] == calls


@pytest.mark.parametrize(
    ("finish", "kind"), [("STOP", None), ("MAX_TOKENS", Kind.UNUSABLE)], ids=["finished", "cut"]
)
def test_arguments_that_were_never_closed_count_only_when_nothing_cut_them(finish: str, kind: Kind | None):
    data = wire.sse(
        wire.chunk(wire.pieces(name="look")),
        wire.chunk(wire.pieces(("$.q", ("Bos",)))),
        wire.chunk(finish=finish, told=wire.USAGE),
    )
    if kind is None:
        assert [call.arguments_json for call in answer(make(), data).tool_calls] == ['{"q":"Bos"}']
    else:
        got = failed(make(), data)
        assert got.kind is kind
        assert "length limit" in got.message


def test_the_forced_tool_is_found_by_its_name_and_other_parts_do_not_disturb_it():
    accumulator = make(expectation=Expectation(forced_tool=True))
    data = wire.stream(wire.text("Sure."), wire.call("other", {"a": 1}), wire.call(FORCED_TOOL, {"v": 2}))
    got = answer(accumulator, data)
    assert (got.text, got.structured_json) == ('{"v":2}', '{"v":2}')
    assert [call.name for call in got.tool_calls] == ["other"]
    assert joined_text(accumulator.drain()) == got.text


def test_code_that_google_ran_is_a_hosted_tool_with_its_outcome():
    data = wire.stream(
        {"executableCode": {"language": "PYTHON", "code": "1", "id": "e1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "e1"}},
        wire.text("one"),
    )
    got = answer(make(), data)
    told: Any = {"arguments_json": '{"language":"PYTHON","code":"1"}', "result_json": '{"output":"1"}'}
    assert got.hosted_tools == (HostedTool(type="code_execution", id="e1", status="OUTCOME_OK", **told),)
    assert (got.text, got.tool_calls) == ("one", ())


def test_searches_are_hosted_tools_and_each_query_is_one_request_however_often_it_is_told():
    grounding = {"groundingMetadata": {"webSearchQueries": ["a", "b"]}}
    pages = {"urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "u", "urlRetrievalStatus": "OK"}]}}
    data = wire.sse(
        wire.chunk(wire.text("x"), groundingMetadata={"webSearchQueries": ["a"]}),
        wire.chunk(wire.text("y"), finish="STOP", told=wire.USAGE, **grounding, **pages),
    )
    got = answer(make(), data)
    assert [tool.type for tool in got.hosted_tools] == ["google_search", "google_search", "url_context"]
    assert got.usage is not None
    assert got.usage.hosted_tool_requests == {"google_search": 2}


def test_a_tool_of_googles_side_is_not_told_twice_and_is_no_call_of_the_callers():
    data = wire.sse(
        wire.chunk({"toolCall": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}}}),
        wire.chunk(
            wire.text("x"), finish="STOP", told=wire.USAGE, groundingMetadata={"webSearchQueries": ["a"]}
        ),
    )
    got = answer(make(), data)
    assert got.hosted_tools == (
        HostedTool(type="google_search", id="s1", arguments_json='{"queries":["a"]}'),
    )
    assert not got.tool_calls


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS"])
def test_an_answer_of_media_only_is_unusable_and_says_why(finish: str):
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    got = failed(make(), wire.stream(image, finish=finish))
    assert (got.kind, got.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
    assert "media" in got.message


def test_other_candidates_are_nobodys_answer():
    extra = {"content": {"role": "model", "parts": [wire.text("no")]}, "index": 1}
    data = wire.sse({"candidates": [extra]}, wire.chunk(wire.text("yes"), finish="STOP", told=wire.USAGE))
    assert answer(make(), data).text == "yes"


@pytest.mark.parametrize("pack", [wire.sse, wire.array], ids=["events", "array"])
def test_a_character_split_over_two_chunks_arrives_whole(pack: Any):
    halves = [
        wire.chunk(wire.text("\ud83d")),
        wire.chunk(wire.text("\ude00!"), finish="STOP", told=wire.USAGE),
    ]
    accumulator = make()
    got = answer(accumulator, pack(*halves))
    assert got.text == "\U0001f600!" == joined_text(accumulator.drain())


def test_half_a_character_at_the_end_becomes_a_replacement_character():
    accumulator = make()
    got = answer(accumulator, wire.stream(wire.text("a\ud83d")))
    assert got.text == "a\ufffd" == joined_text(accumulator.drain())


def test_an_event_that_is_not_json_is_skipped_and_the_rest_stands():
    accumulator = make()
    data = wire.sse(wire.chunk(wire.text("a")), b"{broken", wire.chunk(wire.text("b"), finish="STOP"))
    assert answer(accumulator, data).text == "ab"
    assert accumulator.skipped_events == 1


def test_a_last_chunk_without_its_blank_line_counts_at_a_clean_end_only():
    data = wire.stream(wire.text("Hello"))[:-4]
    assert answer(make(), data).text == "Hello"
    assert failed(make(), data, End.RESET).kind is Kind.UNAVAILABLE
