"""What a chat cost: where it is told, what lies inside the totals and what beside them (R-U3, R-U4, R-U6, R-U7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import ChatCompletionsAccumulator
from modelmeter_server.core.chat_usage import billed
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.dialects import DIALECTS
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.pricing import CostSource
from modelmeter_server.core.usage import Usage
from tests.support import chat_events as wire
from tests.support.accumulator_laws import figures
from tests.support.wire_bytes import Json, answer, body, sse

counts = st.integers(0, 1000)


def told(*objects: object) -> Usage | None:
    """Return the usage after one chunk with each of these objects."""
    accumulator = ChatCompletionsAccumulator()
    accumulator.feed(sse(wire.text("Hello"), *(wire.usage(each) for each in objects)))
    return accumulator.snapshot().usage


def both(prompt: object, completion: object, **fields: Any) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **fields}


def test_cached_tokens_are_inside_the_input_and_reasoning_inside_the_output():
    assert figures(told(wire.USAGE)) == (30, 8, 10, None, 3)


@pytest.mark.parametrize(
    "place",
    [
        wire.chunk(usage=wire.USAGE),
        wire.chunk(wire.choice({}, usage=wire.USAGE)),
        wire.chunk(x_groq={"usage": wire.USAGE}),
        {"usage": wire.USAGE},
        wire.chunk(wire.choice({}, usage={"prompt_tokens": 1}), x_groq={"usage": wire.USAGE}),
    ],
)
def test_usage_is_found_wherever_a_server_puts_it(place: Json):
    outcome = answer(ChatCompletionsAccumulator(), sse(wire.text("Hello"), wire.finish(), place))
    assert (figures(outcome.usage), outcome.certainty) == ((30, 8, 10, None, 3), Certainty.EXACT)


def test_of_two_places_in_one_chunk_the_top_level_wins_and_nothing_is_added():
    chunk = wire.chunk(usage=both(30, 8), x_groq={"usage": both(1, 1)})
    accumulator = ChatCompletionsAccumulator()
    accumulator.feed(sse(chunk))
    assert figures(accumulator.snapshot().usage) == (30, 8, None, None, None)


def test_the_last_object_with_both_counts_wins_and_none_is_summed():
    assert figures(told(both(6179, 0), both(6179, 2), both(6179, 222))) == (6179, 222, None, None, None)
    assert figures(told(both(50, 9), both(40, 8))) == (40, 8, None, None, None)


@pytest.mark.parametrize(
    "nothing", [None, {}, {"prompt_tokens": 5}, both(5, None), [], "x", 5, both(True, "7")]
)
def test_null_and_partial_objects_say_nothing(nothing: object):
    assert figures(told(both(30, 8), nothing)) == (30, 8, None, None, None)
    assert told(nothing) is None


def test_zeros_after_figures_say_nothing():
    assert figures(told(both(30, 8, cached_tokens=4), both(0, 0, cached_tokens=0))) == (30, 8, 4, None, None)


@pytest.mark.parametrize("odd", [-1, 1.5, True, "7", [], None])
def test_an_odd_count_never_costs_the_other(odd: object):
    if odd is not None:
        assert figures(told(both(odd, 8.0))) == (None, 8, None, None, None)
        assert figures(told(both(30, odd))) == (30, None, None, None, None)
    details = both(30, 8, prompt_tokens_details={"cached_tokens": odd})
    assert figures(told(details)) == (30, 8, None, None, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens_details": {"cached_tokens": 7}},
        {"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 23},
        {"cached_tokens": 7},
        {"cache_read_input_tokens": 7},
    ],
)
def test_a_cache_read_is_found_wherever_a_server_puts_it(fields: Json):
    assert figures(told(both(30, 8, **fields))) == (30, 8, 7, None, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens_details": {"cache_write_tokens": 6}},
        {"prompt_tokens_details": {"cache_creation_tokens": 6}},
        {"cache_creation_input_tokens": 6},
        {"prompt_tokens_details": {"cache_write_tokens": 6}, "cache_creation_input_tokens": 5},
    ],
)
def test_a_cache_write_is_found_wherever_a_server_puts_it(fields: Json):
    assert figures(told(both(30, 8, **fields))) == (30, 8, None, 6, None)


@pytest.mark.parametrize("literal", ["1e999", "-1e+999", "NaN", "Infinity", "-Infinity", "9" * 400 + ".5"])
@pytest.mark.parametrize(
    "make",
    [
        lambda usage: sse(wire.text("Hi"), wire.finish(), wire.usage(usage), wire.DONE),
        lambda usage: sse(wire.text("Hi"), wire.finish(x_groq={"usage": usage}), wire.DONE),
        lambda usage: sse(wire.text("Hi"), wire.chunk(wire.choice({}, "stop", usage=usage)), wire.DONE),
        lambda usage: body(wire.document(figures=usage)),
    ],
)
def test_a_count_that_no_double_holds_never_costs_the_other(make: Callable[[Json], bytes], literal: str):
    for usage, kept in ((both("odd", 8), (None, 8)), (both(30, "odd"), (30, None))):
        outcome = answer(ChatCompletionsAccumulator(), make(usage).replace(b'"odd"', literal.encode()))
        assert outcome.usage is not None
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == kept
        assert outcome.certainty is Certainty.AT_LEAST


def test_a_null_beside_an_odd_count_is_still_a_partial_object():
    data = sse(wire.text("Hi"), wire.finish(), wire.usage(both("odd", None))).replace(b'"odd"', b"NaN")
    assert answer(ChatCompletionsAccumulator(), data).usage is None


def test_reasoning_beside_the_completion_is_added_where_the_total_says_so():
    def output(total: object, reasoning: object = 20) -> int | None:
        usage = both(10, 5, total_tokens=total, completion_tokens_details={"reasoning_tokens": reasoning})
        return billed(usage, hidden_output=False)["output"]

    assert [output(total) for total in (35, 15, None, 36, 34)] == [25, 5, 5, 5, 5]


def test_audio_beside_the_prompt_is_added_where_the_total_says_so():
    def prompt(total: int) -> int | None:
        usage = both(11, 15, total_tokens=total, prompt_tokens_details={"audio_tokens": 375})
        return billed(usage, hidden_output=False)["input"]

    assert [prompt(total) for total in (401, 26, 400)] == [386, 11, 11]


def test_hidden_output_is_the_rest_of_the_total_for_a_dialect_that_hides_it():
    gemini = ChatCompletionsAccumulator(dialect=DIALECTS["gemini"])
    tail = [wire.finish(), wire.usage(both(35, 12, total_tokens=109))]
    assert figures(answer(gemini, sse(wire.text("Hi"), *tail)).usage) == (35, 74, None, None, None)
    assert billed(both(35, 12, total_tokens=109), hidden_output=False)["output"] == 12
    assert billed(both(35, 12, total_tokens=40), hidden_output=True)["output"] == 12
    named = both(35, 12, total_tokens=109, completion_tokens_details={"reasoning_tokens": 9})
    assert billed(named, hidden_output=True)["output"] == 12


@given(counts, counts, counts | st.none(), counts | st.none(), counts | st.none(), st.booleans())
def test_the_bill_is_never_below_the_counts_nor_above_the_total(
    prompt, completion, total, reasoning, audio, hidden
):
    usage = both(
        prompt,
        completion,
        total_tokens=total,
        completion_tokens_details={"reasoning_tokens": reasoning},
        prompt_tokens_details={"audio_tokens": audio},
    )
    bill = billed(usage, hidden_output=hidden)
    read, written = bill["input"], bill["output"]
    assert read is not None
    assert written is not None
    assert read >= prompt
    assert written >= completion
    assert read + written in (prompt + completion, total)


def test_sums_saturate():
    usage = both(INT64_MAX, 1, total_tokens=INT64_MAX, prompt_tokens_details={"audio_tokens": INT64_MAX})
    assert billed(usage, hidden_output=True)["input"] == INT64_MAX


def test_usage_told_before_the_finish_only_is_a_lower_bound():
    early = answer(ChatCompletionsAccumulator(), sse(wire.text("Hi"), wire.usage(), wire.finish(), wire.DONE))
    assert (figures(early.usage), early.certainty) == ((30, 8, 10, None, 3), Certainty.AT_LEAST)
    together = wire.finish(usage=wire.USAGE)
    assert answer(ChatCompletionsAccumulator(), sse(wire.text("Hi"), together)).certainty is Certainty.EXACT


def test_zeros_alone_are_no_usage_seen():
    outcome = answer(ChatCompletionsAccumulator(), wire.stream("Hi", figures=both(0, 0)))
    assert (outcome.usage, outcome.certainty) == (None, Certainty.UNKNOWN)


@pytest.mark.parametrize(
    ("fields", "nanos"),
    [
        ({"cost": 0.001156}, 1_156_000),
        ({"cost": {"total_cost": 0.00937, "request_cost": 0.005}}, 9_370_000),
        ({"cost_in_usd_ticks": 3155600}, 315_560),
        ({"cost": 0.95, "is_byok": True, "cost_details": {"upstream_inference_cost": 19}}, 19_950_000_000),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.002}}, 2_000_000),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, 500_000_000),
        ({"cost": 0.5, "cost_details": {"upstream_inference_cost": None}}, 500_000_000),
    ],
)
def test_the_providers_own_cost_is_reported(fields: Json, nanos: int):
    outcome = answer(ChatCompletionsAccumulator(), wire.stream("Hi", figures={**wire.USAGE, **fields}))
    assert outcome.cost is not None
    assert (outcome.cost.nano_units, outcome.cost.source) == (nanos, CostSource.PROVIDER)
    assert outcome.cost.certainty is Certainty.EXACT


@pytest.mark.parametrize(
    "details", [None, {}, {"upstream_inference_cost": None}, {"upstream_inference_cost": -1}]
)
def test_the_fee_for_an_own_key_is_not_the_cost(details: object):
    usage = {**wire.USAGE, "cost": 0.00001, "is_byok": True, "cost_details": details}
    assert answer(ChatCompletionsAccumulator(), wire.stream("Hi", figures=usage)).cost is None


def test_searches_that_are_billed_apiece_are_counted():
    usage = told(
        {**wire.USAGE, "server_tool_use_details": {"web_search_requests": 2, "web_fetch_requests": 0}}
    )
    assert usage is not None
    assert usage.hosted_tool_requests == {"web_search": 2}


def test_a_change_of_usage_is_told_once():
    accumulator = ChatCompletionsAccumulator()
    seen = []
    for each in (both(5, 1), both(5, 1), both(5, 2)):
        accumulator.usage_changed = False
        accumulator.feed(sse(wire.usage(each)))
        seen.append(accumulator.usage_changed)
    assert seen == [True, False, True]
