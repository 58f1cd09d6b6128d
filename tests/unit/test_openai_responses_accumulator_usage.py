"""R-U3, R-U6, R-U7: what the figures of a response come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from modelmeter_server.core.accumulators import OpenAIResponsesAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.usage import Usage
from tests.support import responses_events as wire
from tests.support.wire_bytes import answer, failed, read, sse


def whole(usage: object, **fields: object) -> Answer:
    """Return the answer whose terminal event tells this usage."""
    return answer(OpenAIResponsesAccumulator(), wire.stream("Hello", usage=usage, **fields))


def told(usage: object, **fields: object) -> Usage:
    """Return the usage of that answer."""
    usage = whole(usage, **fields).usage
    assert isinstance(usage, Usage)
    return usage


def test_cached_tokens_are_inside_the_input_and_reasoning_inside_the_output():
    usage = told(wire.USAGE)
    assert (usage.input_tokens, usage.cache_read_tokens, usage.uncached_input_tokens) == (30, 10, 20)
    assert (usage.output_tokens, usage.reasoning_tokens, usage.spend_tokens) == (8, 3, 38)


def test_cache_writes_are_inside_the_input_too():
    usage = told({**wire.USAGE, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 6}})
    assert (usage.input_tokens, usage.cache_write_tokens, usage.uncached_input_tokens) == (30, 6, 20)


@pytest.mark.parametrize("details", [None, {}, [], 5, {"cached_tokens": None}])
def test_detail_objects_may_be_missing(details: object):
    usage = told({"input_tokens": 30, "output_tokens": 8, "input_tokens_details": details})
    assert usage == Usage(input_tokens=30, output_tokens=8)


SILENCE: list[object] = [
    None,
    {},
    [],
    "x",
    {"input_tokens": 5},
    {"input_tokens": 5, "output_tokens": None},
    {"total_tokens": 9},
]


@pytest.mark.parametrize("usage", SILENCE)
def test_null_and_partial_objects_say_nothing(usage: object):
    outcome = whole(usage)
    assert (outcome.usage, outcome.certainty) == (None, Certainty.UNKNOWN)
    assert outcome.estimated_output_tokens == 2
    early = wire.event("in_progress", response=wire.response(status="in_progress", usage=wire.USAGE))
    data = sse(early, *wire.text_events(0, "Hello"), wire.ended(wire.message("Hello"), usage=usage))
    kept = answer(OpenAIResponsesAccumulator(), data)
    assert kept.usage is not None
    assert (kept.usage.input_tokens, kept.certainty) == (30, Certainty.AT_LEAST)


@pytest.mark.parametrize("literal", ["1e999", "-1e+999", "NaN", "Infinity", "-Infinity", "9" * 400 + ".5"])
@pytest.mark.parametrize(
    "make", [lambda: wire.stream("Hello", usage=wire.USAGE), lambda: wire.document(wire.message("Hello"))]
)
def test_a_counter_that_no_double_holds_never_costs_the_other(make: Callable[[], bytes], literal: str):
    data = make().replace(b'"input_tokens": 30', f'"input_tokens": {literal}'.encode())
    outcome = answer(OpenAIResponsesAccumulator(), data)
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (None, 8)
    assert outcome.certainty is Certainty.AT_LEAST


def test_zeros_after_more_say_nothing_as_in_every_format():
    early = wire.event("in_progress", response=wire.response(status="in_progress", usage=wire.USAGE))
    zeros = {"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 0}
    data = sse(early, *wire.text_events(0, "Hello"), wire.ended(wire.message("Hello"), usage=zeros))
    kept = answer(OpenAIResponsesAccumulator(), data)
    assert kept.usage is not None
    assert (kept.usage.input_tokens, kept.usage.cache_read_tokens, kept.usage.output_tokens) == (30, 10, 8)
    assert kept.certainty is Certainty.AT_LEAST


def test_a_null_beside_an_odd_counter_is_still_a_partial_object():
    data = wire.stream('"output_tokens": 1e999', usage={"input_tokens": "odd", "output_tokens": None})
    assert answer(OpenAIResponsesAccumulator(), data.replace(b'"odd"', b"1e999")).usage is None


@pytest.mark.parametrize("odd", [-1, 1.5, True, "30", [3], {"n": 3}])
def test_an_odd_counter_is_not_told_and_never_costs_the_other(odd: object):
    assert told({**wire.USAGE, "output_tokens_details": {"reasoning_tokens": odd}}).reasoning_tokens is None
    without_input = whole({**wire.USAGE, "input_tokens": odd})
    assert without_input.usage is not None
    assert (without_input.usage.input_tokens, without_input.usage.output_tokens) == (None, 8)
    assert without_input.certainty is Certainty.AT_LEAST
    without_output = whole({**wire.USAGE, "output_tokens": odd})
    assert without_output.usage is not None
    assert (without_output.usage.input_tokens, without_output.certainty) == (30, Certainty.AT_LEAST)
    assert whole({"input_tokens": odd, "output_tokens": odd}).usage is None


def test_counters_saturate_and_whole_fractions_count():
    usage = told({"input_tokens": 10**30, "output_tokens": 12.0})
    assert (usage.input_tokens, usage.output_tokens) == (2**63 - 1, 12)


def test_zeros_alone_are_known_and_not_seen():
    outcome = whole({"input_tokens": 0, "output_tokens": 0})
    assert (outcome.usage, outcome.certainty) == (None, Certainty.UNKNOWN)


@pytest.mark.parametrize("name", ["cached_tokens", "prompt_cache_hit_tokens"])
@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}])
def test_cache_reads_beside_the_totals_count_where_the_details_tell_none(name: str, details: object):
    usage = told({**wire.USAGE, "input_tokens_details": details, name: 9})
    assert (usage.input_tokens, usage.cache_read_tokens) == (30, 9)
    assert told({**wire.USAGE, name: 9}).cache_read_tokens == 10


def searched(*actions: str, **fields: Any) -> Answer:
    """Return the answer that lists these steps of web searches, told by its terminal event."""
    steps = [{"type": "web_search_call", "id": "w", "action": {"type": each}} for each in actions]
    return answer(OpenAIResponsesAccumulator(), sse(wire.ended(*steps, wire.message("Hello"), **fields)))


def requests(outcome: Answer) -> dict[str, int]:
    assert outcome.usage is not None
    return outcome.usage.hosted_tool_requests


@pytest.mark.parametrize(
    "tool_usage", [None, {}, [], {"web_search": None}, {"web_search": {"num_requests": -1}}]
)
def test_hosted_work_that_is_listed_is_counted_where_nobody_tells_how_often(tool_usage: object):
    assert requests(searched("search", "open_page", "search", tool_usage=tool_usage)) == {"web_search": 2}
    assert requests(searched("search", tool_usage={"web_search": {"num_requests": 3}})) == {"web_search": 3}
    assert requests(searched("search", tool_usage={"web_search": {"num_requests": 0}})) == {}


def test_hosted_work_that_was_only_streamed_is_counted_too():
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    events = [*wire.text_events(0, "Hello"), wire.item_done(1, search), wire.ended()]
    assert requests(answer(OpenAIResponsesAccumulator(), sse(*events))) == {"web_search": 1}


@pytest.mark.parametrize(
    "type", ["mcp_call", "computer_call", "local_shell_call", "reasoning", "function_call"]
)
def test_calls_that_cost_only_tokens_are_no_hosted_requests(type: str):
    item = {"type": type, "id": "i", "call_id": "c", "name": "look", "arguments": "{}"}
    document = wire.document(item, wire.message("Hello"))
    assert requests(answer(OpenAIResponsesAccumulator(), document)) == {}


@pytest.mark.parametrize(
    ("tools", "model"),
    [
        (None, "image_gen"),
        ([5, {"type": "x"}], "image_gen"),
        ([5, {"type": "image_generation", "model": "image-1"}], "image-1"),
    ],
)
def test_tokens_of_hosted_tools_are_additional_and_never_at_the_price_of_the_calls_model(
    tools: object, model: str
):
    images = {"input_tokens": 50, "output_tokens": 4_000, "output_tokens_details": {"image_tokens": 3_900}}
    item = {"type": "image_generation_call", "id": "i", "result": "AA=="}
    outcome = answer(
        OpenAIResponsesAccumulator(),
        sse(wire.ended(item, wire.message("Hello"), tool_usage={"image_gen": images}, tools=tools)),
    )
    (extra,) = outcome.additional_usage
    assert (extra.kind, extra.model) == ("image_gen", model)
    assert extra.usage == Usage(input_tokens=50, output_tokens=4_000, output_image_tokens=3_900)
    assert requests(outcome) == {}


def test_images_whose_tokens_nobody_tells_are_counted():
    item = {"type": "image_generation_call", "id": "i", "result": "AA=="}
    outcome = answer(OpenAIResponsesAccumulator(), wire.document(item, wire.message("Hello")))
    assert (requests(outcome), outcome.additional_usage) == ({"image_generation": 1}, ())


def test_hosted_requests_that_were_told_are_seen_without_any_token():
    outcome = searched("search", usage=None, tool_usage={"web_search": {"num_requests": 3}})
    assert (requests(outcome), outcome.certainty) == ({"web_search": 3}, Certainty.AT_LEAST)
    assert searched("search", usage=None).usage is None


def test_requests_of_hosted_tools_are_counted_beside_the_tokens():
    usage = told(
        wire.USAGE, tool_usage={"web_search": {"num_requests": 2}, "image_gen": {"input": 0}, "x": 5}
    )
    assert usage.hosted_tool_requests == {"web_search": 2}
    assert told(wire.USAGE, tool_usage=[1]).hosted_tool_requests == {}


def test_the_service_tier_served_is_told():
    outcome = whole(wire.USAGE, service_tier="flex")
    assert outcome.service_tier == "flex"


def test_the_providers_own_cost_wins():
    for told_cost, nanos in (({"cost": 0.00042}, 420_000), ({"cost_in_usd_ticks": 12_345}, 1_235)):
        outcome = whole({**wire.USAGE, **told_cost})
        assert outcome.cost is not None
        assert (outcome.cost.nano_units, outcome.cost.certainty) == (nanos, Certainty.EXACT)


def test_a_cut_after_the_usage_was_told_early_keeps_it_as_a_lower_bound():
    early = wire.event("in_progress", response=wire.response(status="in_progress", usage=wire.USAGE))
    outcome = failed(OpenAIResponsesAccumulator(), sse(early))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_a_change_of_any_figure_is_flagged_once():
    accumulator = OpenAIResponsesAccumulator()
    raised = []
    for usage in (None, wire.USAGE, dict(wire.USAGE), {**wire.USAGE, "output_tokens": 9}):
        accumulator.usage_changed = False
        accumulator.feed(
            sse(wire.event("in_progress", response=wire.response(status="in_progress", usage=usage)))
        )
        raised.append(accumulator.usage_changed)
    assert raised == [False, True, False, True]


def test_the_figures_of_one_body_are_those_of_the_stream():
    buffered = read(OpenAIResponsesAccumulator(), wire.document(wire.message("Hello")))
    assert buffered == whole(wire.USAGE)
