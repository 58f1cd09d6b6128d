"""Gemini's figures: what is in the input and in the output, and which told value holds (R-U2, R-U5, R-U6, R-U7)."""

from __future__ import annotations

from typing import Any

import pytest

from modelmeter_server.core.accumulators import GeminiAccumulator
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.outcomes import Certainty, End
from modelmeter_server.core.usage import Usage
from tests.support import gemini_chunks as wire
from tests.support.accumulator_laws import figures
from tests.support.wire_bytes import answer, failed

PLAIN = wire.chunk(wire.text("a"))


def known(*told: dict[str, Any]) -> Usage | None:
    accumulator = GeminiAccumulator()
    for each in told:
        accumulator.feed(wire.sse(wire.chunk(wire.text("a"), told=each)))
    return accumulator.snapshot().usage


def told(*usages: dict[str, Any]) -> Any:
    return figures(known(*usages))


def certainty(*chunks: dict[str, Any]) -> Certainty:
    return answer(GeminiAccumulator(), wire.sse(*chunks)).certainty


def test_usage_is_taken_from_the_last_chunk_not_summed():
    assert told(wire.usage(10, 1), wire.usage(10, 4), wire.usage(10, 9)) == (10, 9, None, None, None)


def test_a_field_that_a_later_chunk_leaves_out_keeps_its_value():
    first = wire.usage(220, 2, cachedContentTokenCount=96, thoughtsTokenCount=9)
    assert told(first, wire.usage(220, 7)) == (220, 16, 96, None, 9)
    assert told(first, wire.usage(None, 7)) == (220, 16, 96, None, 9)


def test_thoughts_are_output_beside_the_candidates():
    assert told(wire.usage(10, 20, thoughtsTokenCount=5, totalTokenCount=35)) == (10, 25, None, None, 5)
    assert told(wire.usage(10, 20, thoughtsTokenCount=5)) == (10, 25, None, None, 5)
    assert told(wire.usage(10, None, thoughtsTokenCount=5)) == (10, 5, None, None, 5)


def test_thoughts_that_the_total_shows_inside_the_candidates_are_not_added():
    inside = wire.usage(60, 40, thoughtsTokenCount=25, totalTokenCount=100)
    assert told(inside) == (60, 40, None, None, 25)
    assert told(inside, wire.usage(60, 45)) == (60, 45, None, None, 25)
    assert told(inside, wire.usage(60, 45, totalTokenCount=130)) == (60, 70, None, None, 25)


def test_a_total_of_another_object_shows_nothing_about_later_candidates():
    beside = wire.usage(60, 15, thoughtsTokenCount=25, totalTokenCount=100)
    assert told(beside, wire.usage(None, 40)) == (60, 65, None, None, 25)


def test_more_thoughts_than_candidates_cannot_lie_inside_them():
    assert told(wire.usage(10, 18, thoughtsTokenCount=137, totalTokenCount=28)) == (10, 155, None, None, 137)


def test_the_prompt_of_tools_is_added_and_the_cached_part_is_not():
    usage = known(wire.usage(1000, 20, cachedContentTokenCount=400, toolUsePromptTokenCount=50))
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.tool_prompt_tokens) == (1050, 400, 50)


def test_sound_and_images_are_read_from_the_details():
    details = {
        "promptTokensDetails": [
            {"modality": "AUDIO", "tokenCount": 7},
            {"modality": "TEXT", "tokenCount": 3},
        ],
        "toolUsePromptTokensDetails": [{"modality": "IMAGE", "tokenCount": 2}],
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 5}, {"modality": "AUDIO"}],
    }
    usage = known(wire.usage(10, 6, **details), wire.usage(10, 8))
    assert usage is not None
    assert (usage.input_audio_tokens, usage.input_image_tokens) == (7, 2)
    assert (usage.output_audio_tokens, usage.output_image_tokens) == (None, 5)


def test_a_lower_figure_replaces_a_higher_one_and_zeros_after_more_say_nothing():
    assert told(wire.usage(50, 9), wire.usage(20, 4)) == (20, 4, None, None, None)
    assert told(wire.usage(50, 9), wire.usage(0, 0)) == (50, 9, None, None, None)
    assert told(wire.usage(0, 0), wire.usage(5)) == (5, 0, None, None, None)


@pytest.mark.parametrize("odd", [-1, 1.5, True, "7", [], {}, "raw"])
def test_an_odd_counter_never_costs_the_others(odd: object):
    assert told(wire.usage(12, odd, thoughtsTokenCount=3)) == (12, 3, None, None, 3)
    assert told(wire.usage(odd, 5)) == (None, 5, None, None, None)


def test_a_whole_float_counts_and_sums_saturate():
    assert told(wire.usage(12.0, 3)) == (12, 3, None, None, None)
    assert told(wire.usage(INT64_MAX, 1, toolUsePromptTokenCount=5)) == (INT64_MAX, 1, None, None, None)
    assert told(wire.usage(2**70, 1)) == (INT64_MAX, 1, None, None, None)


def test_nothing_told_is_no_usage():
    assert known(wire.usage(trafficType="ON_DEMAND")) is None
    assert known({}) is None


def test_figures_told_with_the_finish_or_after_it_are_exact():
    assert certainty(wire.chunk(wire.text("a"), finish="STOP", told=wire.usage(3, 2))) is Certainty.EXACT
    last = wire.chunk(wire.text("a"), finish="STOP")
    assert certainty(last, {"usageMetadata": wire.usage(3, 2)}) is Certainty.EXACT
    repeated = wire.chunk(wire.text("a"), told=wire.usage(3, 2))
    assert certainty(repeated, last, {"usageMetadata": wire.usage(3, 2)}) is Certainty.EXACT


def test_output_told_only_before_the_finish_is_a_lower_bound():
    early = wire.chunk(wire.text("a"), told=wire.usage(3, 2))
    assert certainty(early, wire.chunk(finish="STOP")) is Certainty.AT_LEAST
    assert certainty(early, wire.chunk(finish="STOP", told=wire.usage(3))) is Certainty.AT_LEAST


def test_an_output_that_was_left_out_is_none_only_when_the_total_says_so():
    last = wire.chunk(wire.text("a"), finish="STOP", told=wire.usage(3, totalTokenCount=3))
    assert certainty(last) is Certainty.EXACT
    assert certainty(wire.chunk(wire.text("a"), finish="STOP", told=wire.usage(3))) is Certainty.AT_LEAST


def test_another_usage_raises_the_flag_and_the_same_one_does_not():
    accumulator = GeminiAccumulator()
    raised = []
    for each in (wire.usage(3, 1), wire.usage(3, 1), wire.usage(3, 2), wire.usage(3, 2)):
        accumulator.usage_changed = False
        accumulator.feed(wire.sse(wire.chunk(wire.text("a"), told=each)))
        raised.append(accumulator.usage_changed)
    assert raised == [True, False, True, False]


@pytest.mark.parametrize(
    ("fields", "tier"), [({"serviceTier": "flex"}, "flex"), ({"trafficType": "ON_DEMAND"}, "ON_DEMAND")]
)
def test_the_tier_that_changes_the_price_is_told(fields: dict[str, Any], tier: str):
    data = wire.stream(wire.text("a"), told={**wire.USAGE, **fields})
    assert answer(GeminiAccumulator(), data).service_tier == tier
    assert failed(GeminiAccumulator(), data, End.RESET).service_tier == tier
