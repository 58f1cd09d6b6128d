"""R-U1, R-U2, R-U6, R-U7, R-U8: what an Anthropic stream's figures come to."""

from __future__ import annotations

from typing import Any

import pytest

from modelmeter_server.core.accumulators import AnthropicAccumulator, Snapshot
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.pricing import CostSource
from modelmeter_server.core.usage import AdditionalUsage, Usage
from tests.support import anthropic_events as wire
from tests.support.wire_bytes import answer, failed, read, sse

TEXT = wire.text_block(0, "Hello")
CACHED = {"input_tokens": 10, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 300}
SPLIT = {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 400}


def known(*usages: object) -> Snapshot:
    """Return what is known after `message_start` with the first usage and a `message_delta` for each other."""
    accumulator = AnthropicAccumulator()
    accumulator.feed(sse(wire.start(usages[0]), *(wire.ended(None, usage) for usage in usages[1:])))
    return accumulator.snapshot()


def told(*usages: object) -> Usage:
    usage = known(*usages).usage
    assert usage is not None
    return usage


def whole(first: object, last: object, **ended: Any) -> Answer:
    """Return the answer of a whole stream with these two usage objects."""
    return answer(
        AnthropicAccumulator(), sse(wire.start(first), *TEXT, wire.ended(usage=last, **ended), wire.STOP)
    )


def test_every_counter_is_replaced_and_never_added():
    usage = told(
        {**CACHED, "output_tokens": 1}, {**CACHED, "output_tokens": 7}, {**CACHED, "output_tokens": 7}
    )
    assert (usage.input_tokens, usage.output_tokens, usage.cache_write_tokens) == (1310, 7, 1000)


def test_the_split_of_cache_writes_is_not_added_to_them():
    usage = told({**CACHED, "cache_creation": SPLIT})
    assert (usage.input_tokens, usage.cache_write_tokens) == (1310, 1000)
    assert (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens) == (600, 400)


def test_a_lower_figure_told_later_wins():
    usage = told({"input_tokens": 55_000, "output_tokens": 1}, {"input_tokens": 181, "output_tokens": 90})
    assert (usage.input_tokens, usage.output_tokens) == (181, 90)
    assert told({**CACHED}, {"cache_read_input_tokens": 0}).cache_read_tokens == 300  # alone it says nothing
    assert told({**CACHED}, {"input_tokens": 10, "cache_read_input_tokens": 0}).cache_read_tokens == 0


def test_an_input_group_of_zeros_after_more_says_nothing():
    zeros = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    usage = told(CACHED, {**zeros, "output_tokens": 9})
    assert (usage.input_tokens, usage.output_tokens) == (1310, 9)


def test_the_split_beside_a_group_that_says_nothing_says_nothing_either():
    zeros = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    usage = told({**CACHED, "cache_creation": SPLIT}, {"input_tokens": 0, "cache_creation": zeros})
    assert (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens) == (600, 400)


def test_an_output_of_zero_after_more_says_nothing_and_is_not_final():
    thought = {"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}}
    nothing = {"output_tokens": 0, "output_tokens_details": {"thinking_tokens": 0}}
    outcome = whole({"input_tokens": 5, **thought}, nothing)
    assert outcome.usage is not None
    assert (outcome.usage.output_tokens, outcome.usage.reasoning_tokens) == (50, 30)
    assert outcome.certainty is Certainty.AT_LEAST


@pytest.mark.parametrize("silence", [None, {}, {"input_tokens": None, "output_tokens": None}, [], "n/a", 5])
def test_null_and_missing_say_nothing(silence: object):
    first = {**CACHED, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3}, "cost": 0.5}
    assert told(first, silence) == told(first)


def test_zeros_alone_are_known_and_not_seen():
    seen = known({"input_tokens": 0, "output_tokens": 0})
    assert seen.usage == Usage(input_tokens=0, output_tokens=0)
    assert seen.certainty is Certainty.UNKNOWN
    outcome = failed(AnthropicAccumulator(), sse(wire.start({"input_tokens": 0, "output_tokens": 0})))
    assert (outcome.kind, outcome.usage) == (Kind.UNACCOUNTED, None)


def test_a_whole_answer_without_figures_is_a_completion_of_unknown_cost():
    outcome = whole(None, None)
    assert (outcome.usage, outcome.certainty, outcome.text) == (None, Certainty.UNKNOWN, "Hello")
    assert outcome.estimated_output_tokens == 2


def test_output_told_with_or_after_the_stop_reason_is_exact():
    assert whole({"input_tokens": 5}, {"output_tokens": 9}).certainty is Certainty.EXACT
    after = [wire.start(), *TEXT, wire.ended(), wire.ended(None, {"output_tokens": 9}), wire.STOP]
    assert answer(AnthropicAccumulator(), sse(*after)).certainty is Certainty.EXACT


def test_output_told_only_before_the_stop_reason_is_a_lower_bound():
    early = [wire.start(), *TEXT, wire.ended(None, {"output_tokens": 9}), wire.ended(), wire.STOP]
    outcome = answer(AnthropicAccumulator(), sse(*early))
    assert outcome.certainty is Certainty.AT_LEAST
    assert outcome.estimated_output_tokens == 2
    assert whole({"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 6}).certainty is Certainty.AT_LEAST


def test_an_input_that_was_never_told_leaves_a_lower_bound():
    outcome = whole(None, {"output_tokens": 9})
    assert outcome.usage == Usage(output_tokens=9)
    assert outcome.certainty is Certainty.AT_LEAST


def test_the_input_may_come_in_the_final_delta_only():
    outcome = whole({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 44, "output_tokens": 9})
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.certainty) == (44, Certainty.EXACT)


@pytest.mark.parametrize("odd", [-1, 1.5, True, "7", [3], {"n": 3}])
def test_an_odd_counter_is_not_told_and_never_costs_the_others(odd: object):
    usage = told(
        {**CACHED, "output_tokens": 3},
        {"input_tokens": 88, "cache_read_input_tokens": odd, "cache_creation": odd, "output_tokens": 19},
    )
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (1388, 19, 300)


def test_counters_saturate():
    usage = told({"input_tokens": 10**30, "cache_read_input_tokens": 5, "output_tokens": 12.0})
    assert (usage.input_tokens, usage.output_tokens) == (2**63 - 1, 12)


def test_thinking_tokens_are_a_part_of_the_output():
    details = {"output_tokens": 90, "output_tokens_details": {"thinking_tokens": 60}}
    usage = told({"input_tokens": 5}, details)
    assert (usage.output_tokens, usage.reasoning_tokens) == (90, 60)


def test_requests_of_hosted_tools_are_replaced_one_by_one():
    usage = told(
        {"input_tokens": 5, "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 2}},
        {"server_tool_use": {"web_search_requests": 3, "web_fetch_requests": None}},
        {"server_tool_use": None},
    )
    assert usage.hosted_tool_requests == {"web_search": 3, "web_fetch": 2}
    assert told({"input_tokens": 5, "server_tool_use": {"web_search_requests": 0}}).hosted_tool_requests == {}


ITERATIONS = [
    {"type": "compaction", "input_tokens": 500, "cache_read_input_tokens": 20, "output_tokens": 8},
    {"type": "message", "input_tokens": 31, "output_tokens": 6},
    {"type": "advisor_message", "model": "m-adv", "input_tokens": 90, "output_tokens": 4},
    {"type": "fallback_message", "model": "m-2", "input_tokens": 7, "output_tokens": 7},
    "odd",
    {"type": 5},
]


def test_work_beside_the_top_level_is_additional_and_names_its_model():
    outcome = whole({"input_tokens": 31}, {"output_tokens": 6, "iterations": ITERATIONS})
    assert outcome.additional_usage == (
        AdditionalUsage(
            kind="compaction", usage=Usage(input_tokens=520, output_tokens=8, cache_read_tokens=20)
        ),
        AdditionalUsage(kind="advisor_message", model="m-adv", usage=Usage(input_tokens=90, output_tokens=4)),
    )
    assert outcome.usage == Usage(input_tokens=31, output_tokens=6)


def test_additional_work_stands_on_failures_too():
    cut = sse(wire.start(), wire.ended(None, {"output_tokens": 6, "iterations": ITERATIONS}))
    assert len(failed(AnthropicAccumulator(), cut).additional_usage) == 2


def test_the_providers_own_cost_stands_on_answers_and_failures():
    bill = {"output_tokens": 9, "cost": 0.0123}
    outcome = whole({"input_tokens": 5}, bill)
    assert outcome.cost is not None
    assert (outcome.cost.nano_units, outcome.cost.source) == (12_300_000, CostSource.PROVIDER)
    assert outcome.cost.certainty is Certainty.EXACT
    cut = failed(AnthropicAccumulator(), sse(wire.start(), wire.ended("end_turn", bill)))
    assert cut.cost == outcome.cost
    null_later = sse(wire.start(), wire.ended("end_turn", bill), wire.ended(None, {"cost": None}))
    assert failed(AnthropicAccumulator(), null_later).cost == outcome.cost


def test_a_change_of_any_figure_is_flagged_once():
    accumulator = AnthropicAccumulator()

    def flags(*usage: object) -> list[bool]:
        raised = []
        for each in usage:
            accumulator.usage_changed = False
            accumulator.feed(sse(wire.ended(None, each)))
            raised.append(accumulator.usage_changed)
        return raised

    assert flags({"output_tokens": 4}, {"output_tokens": 4}, {"output_tokens": 5}) == [True, False, True]
    fetched, beside = {"server_tool_use": {"web_fetch_requests": 1}}, {"iterations": ITERATIONS}
    thought = {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}}
    assert flags(fetched, fetched, beside, beside, thought, thought) == [True, False] * 3
    assert flags(None, {}, {"output_tokens": None}) == [False] * 3


def test_the_figures_of_one_body_are_those_of_the_stream():
    bill = {**CACHED, "cache_creation": SPLIT, "output_tokens": 20, "service_tier": "batch"}
    streamed = whole(bill, {"output_tokens": 20})
    buffered = read(AnthropicAccumulator(), wire.document({"type": "text", "text": "Hello"}, usage=bill))
    assert buffered == streamed
    assert isinstance(buffered, Answer)
    assert buffered.service_tier == "batch"


def test_a_cost_told_only_before_the_stop_reason_is_a_lower_bound():
    early = whole({"input_tokens": 5, "cost": 0.000001}, {"output_tokens": 9}).cost
    late = whole({"input_tokens": 5, "cost": 0.000001}, {"output_tokens": 9, "cost": 0.002}).cost
    assert early is not None
    assert late is not None
    assert (early.nano_units, early.certainty) == (1_000, Certainty.AT_LEAST)
    assert (late.nano_units, late.certainty) == (2_000_000, Certainty.EXACT)


def test_requests_to_hosted_tools_alone_are_figures():
    for first in ({"input_tokens": 0, "output_tokens": 0}, {}):
        usage = {**first, "server_tool_use": {"web_search_requests": 3}}
        outcome = failed(AnthropicAccumulator(), sse(wire.start(usage), *TEXT))
        assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)
        assert outcome.usage is not None
        assert outcome.usage.hosted_tool_requests == {"web_search": 3}


def test_a_failure_says_in_which_tier_it_was_served():
    start = wire.start({"input_tokens": 5, "service_tier": "priority"})
    severed = failed(AnthropicAccumulator(), sse(start, *TEXT))
    refused = failed(
        AnthropicAccumulator(), sse(start, *TEXT, wire.ended("refusal", {"output_tokens": 9}), wire.STOP)
    )
    assert (severed.kind, severed.service_tier) == (Kind.INTERRUPTED, "priority")
    assert (refused.kind, refused.service_tier) == (Kind.UNUSABLE, "priority")


@pytest.mark.parametrize(
    ("told", "factor"),
    [
        ({"inference_geo": "us"}, "inference_geo=us"),
        ({"speed": "fast"}, "speed=fast"),
        ({"inference_geo": "not_available", "speed": "standard"}, None),
        ({"inference_geo": "global", "speed": None}, None),
        ({"inference_geo": ["us"]}, None),
    ],
)
def test_what_else_changes_the_price_is_told(told: dict[str, Any], factor: str | None):
    assert whole({"input_tokens": 5, **told}, {"output_tokens": 9}).price_factor == factor


def test_live_usage_holds_no_configured_key():
    """A gateway that echoes the key as a word of its usage must not hand it to a caller in mid-stream."""
    accumulator = AnthropicAccumulator(scrub=lambda text: text.replace("sk-key", "[redacted]"))
    usage = {
        "input_tokens": 5,
        "output_tokens": 1,
        "server_tool_use": {"sk-key_requests": 2},
        "iterations": [{"type": "compaction-sk-key", "model": "m-sk-key", "input_tokens": 3}],
    }
    accumulator.feed(sse(wire.start(usage)))
    known_usage, (beside,), certainty = accumulator.told_usage()
    assert known_usage is not None
    assert dict(known_usage.hosted_tool_requests) == {"[redacted]": 2}
    assert (beside.kind, beside.model) == ("compaction-[redacted]", "m-[redacted]")
    assert certainty is Certainty.AT_LEAST
