"""Bedrock's events and bodies: what is known after them, and which answers can be used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelmeter_server.core.accumulators import BedrockAccumulator
from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, Finish
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support import bedrock_events as wire
from tests.support.accumulator_laws import check_bill, figures
from tests.support.wire_bytes import Json, answer, failed, joined_calls, joined_text, read

REDACTED = "c2VjcmV0"


def needs_city(document: object) -> str | None:
    """Stand for a compiled schema that requires `city`."""
    return None if isinstance(document, dict) and "city" in document else "`city` is missing"


NATIVE = Expectation(schema_check=needs_city)
FORCED = Expectation(schema_check=needs_city, forced_tool=True)
CITY = '{"city": "Paris"}'

CALL: Json = {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"a": 1}}}
SIGNED: Json = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2lnbmVk"}}}


def both(*blocks: list[Json], content: list[Json], reason: str = "end_turn", usage: object = wire.USAGE):
    """Return an answer as a stream, and as the one body that says the same."""
    return [
        wire.stream(*blocks, reason=reason, usage=usage),
        wire.document(*content, reason=reason, usage=usage),
    ]


def state_of(outcome: Answer) -> list[Json]:
    assert outcome.continuation is not None
    assert outcome.continuation.provider == "bedrock"
    (turn,) = json.loads(outcome.continuation.state_json)
    assert turn["role"] == "assistant"
    return turn["content"]


# Usage


def test_cache_tokens_are_folded_into_the_input_count():
    usage = {"inputTokens": 5, "cacheReadInputTokens": 40, "cacheWriteInputTokens": 7, "outputTokens": 9}
    for data in both(wire.text_block(0, "ok"), content=[{"text": "ok"}], usage=usage):
        outcome = answer(BedrockAccumulator(), data)
        assert (figures(outcome.usage), outcome.certainty) == ((52, 9, 40, 7, None), Certainty.EXACT)


def test_cache_writes_are_split_by_their_lifetime_and_not_added_to_the_input():
    details = [
        {"ttl": "5m", "inputTokens": 4},
        {"ttl": "1h", "inputTokens": 3},
        {"ttl": "2d", "inputTokens": 9},
    ]
    usage = {"inputTokens": 5, "cacheWriteInputTokens": 7, "outputTokens": 9, "cacheDetails": details}
    told = answer(BedrockAccumulator(), wire.stream(wire.text_block(0, "ok"), usage=usage)).usage
    assert told is not None
    assert (told.input_tokens, told.cache_write_5m_tokens, told.cache_write_1h_tokens) == (12, 4, 3)


def test_the_duplicates_of_the_wire_are_no_second_count():
    usage = {**wire.USAGE, "cacheReadInputTokens": 3, "cacheReadInputTokenCount": 3, "serverToolUsage": {}}
    outcome = answer(BedrockAccumulator(), wire.stream(wire.text_block(0, "ok"), usage=usage))
    assert figures(outcome.usage) == (15, 20, 3, None, None)


def test_a_metadata_event_without_usage_does_not_erase():
    events = [
        *wire.message(wire.text_block(0, "ok"))[:-2],
        wire.metadata(),
        wire.metadata(None),
        wire.stopped(),
    ]
    outcome = answer(BedrockAccumulator(), wire.frames(*events))
    assert (figures(outcome.usage), outcome.certainty) == ((12, 20, None, None, None), Certainty.AT_LEAST)


def test_metadata_without_usage_makes_an_answer_of_unknown_cost():
    accumulator = BedrockAccumulator()
    accumulator.feed(wire.stream(wire.text_block(0, "ok"), usage=None))
    assert (accumulator.done, accumulator.awaits_tail) == (False, True)
    outcome = answer(accumulator, b"")
    assert (outcome.text, outcome.usage, outcome.certainty) == ("ok", None, Certainty.UNKNOWN)


def test_usage_may_still_come_after_metadata_without_it():
    data = wire.stream(wire.text_block(0, "ok"), usage=None) + wire.frames(wire.metadata())
    accumulator = BedrockAccumulator()
    assert answer(accumulator, data).certainty is Certainty.EXACT
    assert accumulator.done


def test_the_tier_and_the_model_that_a_router_chose_are_told():
    router = {"promptRouter": {"invokedModelId": "arn:chosen"}}
    events = wire.message(wire.text_block(0, "ok"))[:-1]
    last = wire.metadata(serviceTier={"type": "flex"}, trace=router)
    outcome = answer(BedrockAccumulator(), wire.frames(*events, last))
    assert (outcome.service_tier, outcome.model_served) == ("flex", "arn:chosen")


@pytest.mark.parametrize(("latency", "factor"), [("optimized", "latency=optimized"), ("standard", None)])
def test_a_latency_out_of_the_usual_is_told_as_a_factor_of_the_price(latency: str, factor: str | None):
    told: dict[str, Any] = {"performanceConfig": {"latency": latency}}
    streamed = wire.frames(*wire.message(wire.text_block(0, "ok"))[:-1], wire.metadata(**told))
    for data in (streamed, wire.document({"text": "ok"}, **told)):
        assert answer(BedrockAccumulator(), data).price_factor == factor


# Answers


def test_text_tools_reasoning_and_usage_are_reassembled():
    blocks = (
        wire.reasoning_block(0, "h", "m"),
        wire.text_block(1, "Let me", " look."),
        wire.tool_block(2, "look", '{"a"', ":1}"),
    )
    accumulator = BedrockAccumulator(deltas=True)
    outcome = answer(accumulator, wire.stream(*blocks, reason="tool_use"))
    deltas = accumulator.drain()
    assert outcome.text == joined_text(deltas) == "Let me look."
    assert joined_calls(deltas) == [("call_2", "look", '{"a":1}')]
    assert accumulator.snapshot().reasoning == "hm"
    assert (outcome.finish, figures(outcome.usage)) == (Finish.TOOL_CALLS, (12, 20, None, None, None))


def test_a_reasoning_tool_turn_with_no_text_is_an_answer_not_an_empty_one():
    blocks = wire.reasoning_block(0, "hm"), wire.tool_block(1, "look", '{"a":1}')
    for data in both(*blocks, content=[SIGNED, CALL], reason="tool_use"):
        outcome = answer(BedrockAccumulator(), data)
        assert (outcome.text, [call.name for call in outcome.tool_calls]) == ("", ["look"])


def test_signed_and_redacted_reasoning_round_trip():
    streamed = [*wire.reasoning_block(0, "hm"), wire.reasoning(1, redactedContent=REDACTED), wire.closed(1)]
    content = [SIGNED, {"reasoningContent": {"redactedContent": REDACTED}}, CALL]
    for data in both(streamed, wire.tool_block(1, "look", '{"a":1}')[:1], content=content, reason="tool_use"):
        assert state_of(answer(BedrockAccumulator(), data))[:2] == content[:2]


def test_redacted_pieces_are_joined_as_bytes():
    pieces = [
        wire.reasoning(0, redactedContent="YQ=="),
        wire.reasoning(0, redactedContent="Yg=="),
        wire.closed(0),
    ]
    outcome = answer(BedrockAccumulator(), wire.stream(pieces, wire.tool_block(1, "look"), reason="tool_use"))
    assert state_of(outcome)[0] == {"reasoningContent": {"redactedContent": "YWI="}}


def test_a_call_goes_back_with_the_very_text_that_was_generated():
    outcome = answer(
        BedrockAccumulator(), wire.stream(wire.tool_block(0, "look", '{"n": ', "1.50}"), reason="tool_use")
    )
    assert outcome.continuation is not None
    assert '"input":{"n": 1.50}' in outcome.continuation.state_json


def test_a_tool_without_arguments_has_an_empty_object():
    for fragments in ([], [""]):
        outcome = answer(
            BedrockAccumulator(), wire.stream(wire.tool_block(0, "look", *fragments), reason="tool_use")
        )
        assert [call.arguments_json for call in outcome.tool_calls] == ["{}"]


def test_an_empty_text_delta_is_no_answer_and_hides_none():
    blocks = [wire.text(0, ""), wire.closed(0)], wire.reasoning_block(1, "hm"), wire.text_block(2, "Hello")
    assert answer(BedrockAccumulator(), wire.stream(*blocks)).text == "Hello"
    assert failed(BedrockAccumulator(), wire.stream(blocks[0])).kind is Kind.UNUSABLE


def test_an_answer_with_neither_text_nor_tool_calls_is_unusable():
    for data in both(wire.reasoning_block(0, "hm"), content=[SIGNED]):
        outcome = failed(BedrockAccumulator(), data)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


def test_a_buffered_guardrail_intervention_is_a_refusal_not_an_answer():
    text = "Sorry, the model cannot answer this question."
    for data in both(wire.text_block(0, text), content=[{"text": text}], reason="guardrail_intervened"):
        outcome = failed(BedrockAccumulator(), data)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert outcome.provider_code == "guardrail_intervened"


def test_a_guardrail_that_tells_zeros_alone_has_told_no_usage():
    zeros = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    for data in both(
        wire.text_block(0, "No."), content=[{"text": "No."}], reason="guardrail_intervened", usage=zeros
    ):
        outcome = failed(BedrockAccumulator(), data)
        check_bill(outcome)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.UNKNOWN)


def test_reasoning_never_enters_the_text_though_it_shares_an_index():
    events = [wire.text(0, "a"), wire.reasoning(0, text="hm"), wire.text(0, "b"), wire.closed(0)]
    outcome = answer(BedrockAccumulator(), wire.stream(events))
    assert outcome.text == "ab"


def test_the_providers_own_tools_are_no_calls_of_the_callers():
    searched = wire.tool_block(0, "nova_grounding", '{"q":1}', type="server_tool_use")
    found = {"toolUseId": "call_0", "type": "nova_grounding_result", "status": "success"}
    start = {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolResult": found}}}
    result = [start, wire.delta(1, toolResult=[{"text": "[HIDDEN]"}]), wire.closed(1)]
    cited = [*wire.text_block(2, "Ruby 4")[:-1], wire.delta(2, citation={"title": "t"}), wire.closed(2)]
    outcome = answer(BedrockAccumulator(), wire.stream(searched, result, cited))
    assert (outcome.text, outcome.tool_calls) == ("Ruby 4", ())
    told: Any = {"arguments_json": '{"q":1}', "result_json": '[{"text":"[HIDDEN]"}]', "status": "success"}
    assert outcome.hosted_tools == (HostedTool(type="nova_grounding", id="call_0", **told),)
    called = answer(
        BedrockAccumulator(),
        wire.stream(searched, result, cited, wire.tool_block(3, "look"), reason="tool_use"),
    )
    assert state_of(called)[1:3] == [
        {"toolResult": {**found, "content": [{"text": "[HIDDEN]"}]}},
        {"citationsContent": {"content": [{"text": "Ruby 4"}], "citations": [{"title": "t"}]}},
    ]


def test_cited_text_of_a_body_is_text():
    cited = {"citationsContent": {"content": [{"text": "Ruby"}, {"text": " 4"}], "citations": [{}]}}
    outcome = answer(BedrockAccumulator(), wire.document(cited, {"text": "!"}, CALL, reason="tool_use"))
    assert outcome.text == "Ruby 4!"
    assert state_of(outcome) == [cited, {"text": "!"}, CALL]


def test_blocks_of_tomorrow_cost_nothing_else():
    video: Json = {"contentBlockStart": {"contentBlockIndex": 0, "start": {"video": {"format": "mp4"}}}}
    blocks = [video, wire.delta(0, video={"bytes": "eA=="}), wire.closed(0)], wire.text_block(1, "Hello")
    assert answer(BedrockAccumulator(), wire.stream(*blocks)).text == "Hello"
    assert answer(BedrockAccumulator(), wire.document({"video": {}}, {"text": "Hello"})).text == "Hello"


# Structured answers


@pytest.mark.parametrize("reason", ["tool_use", "end_turn"])
def test_the_forced_tool_is_found_by_its_name_and_is_no_call(reason: str):
    forced = {"toolUse": {"toolUseId": "call_1", "name": FORCED_TOOL, "input": {"city": "Paris"}}}
    blocks = wire.text_block(0, "Sure."), wire.tool_block(1, FORCED_TOOL, CITY[:5], CITY[5:])
    for data in both(*blocks, content=[{"text": "Sure."}, forced], reason=reason):
        accumulator = BedrockAccumulator(FORCED, deltas=True)
        outcome = answer(accumulator, data)
        assert json.loads(outcome.text) == {"city": "Paris"}
        assert (outcome.structured_json, outcome.tool_calls) == (outcome.text, ())
        assert joined_text(accumulator.drain()) == outcome.text


def test_text_is_never_the_answer_where_a_tool_is_forced():
    assert failed(BedrockAccumulator(FORCED), wire.stream(wire.text_block(0, CITY))).kind is Kind.UNUSABLE


def test_a_native_answer_is_held_to_its_schema_unless_tools_were_called():
    for text, kind in ((CITY, None), ("{}", Kind.UNUSABLE), ("no", Kind.UNUSABLE)):
        outcome = read(BedrockAccumulator(NATIVE), wire.stream(wire.text_block(0, text)))
        assert (None if isinstance(outcome, Answer) else outcome.kind) is kind
    called = answer(BedrockAccumulator(NATIVE), wire.stream(wire.tool_block(0, "look"), reason="tool_use"))
    assert called.structured_json is None


def test_arguments_cut_by_length_are_unusable_and_say_so():
    outcome = failed(
        BedrockAccumulator(FREE_TEXT), wire.stream(wire.tool_block(0, "look", '{"a'), reason="max_tokens")
    )
    assert (outcome.kind, "length" in outcome.message) == (Kind.UNUSABLE, True)
