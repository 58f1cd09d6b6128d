"""What a call consumed: sums, subsets, and the difference between zero and untold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.usage import AdditionalUsage, Usage, total_spend_tokens, with_cache_beside_input

COUNTS = st.integers(0, INT64_MAX)
TOLD = st.none() | COUNTS
USAGE = st.builds(
    Usage, input_tokens=TOLD, output_tokens=TOLD, cache_write_tokens=TOLD, cache_read_tokens=TOLD
)


@given(TOLD, TOLD)
def test_usage_is_seen_once_a_counter_above_zero_was_told(input: int | None, output: int | None):
    assert Usage(input_tokens=input, output_tokens=output).is_seen == any(
        count or 0 for count in (input, output)
    )


def test_a_request_billed_apiece_is_usage_seen_and_none_of_them_is_not():
    assert Usage(input_tokens=0, hosted_tool_requests={"web_search": 3}).is_seen
    assert not Usage(input_tokens=0, hosted_tool_requests={"web_search": 0}).is_seen


@given(USAGE)
def test_spend_is_input_and_output_flat_and_saturates(usage: Usage):
    assert usage.spend_tokens == min(INT64_MAX, (usage.input_tokens or 0) + (usage.output_tokens or 0))


@given(USAGE)
def test_the_uncached_input_is_what_neither_cache_had_and_never_negative(usage: Usage):
    cached = (usage.cache_write_tokens or 0) + (usage.cache_read_tokens or 0)
    assert usage.uncached_input_tokens == max(0, (usage.input_tokens or 0) - cached)


@given(TOLD, TOLD, TOLD)
def test_cached_tokens_beside_the_input_are_added_to_it(
    uncached: int | None, write: int | None, read: int | None
):
    told = [count for count in (uncached, write, read) if count is not None]
    assert with_cache_beside_input(uncached, write, read) == (min(INT64_MAX, sum(told)) if told else None)


def test_nothing_told_is_not_zero():
    assert Usage() != Usage(input_tokens=0, output_tokens=0)
    assert (Usage().input_tokens, Usage().spend_tokens) == (None, 0)


@given(st.none() | USAGE, st.lists(USAGE, max_size=3))
def test_the_tokens_of_a_call_include_what_was_billed_beside_it(usage: Usage | None, beside: list[Usage]):
    additional = tuple(AdditionalUsage(kind="advisor", usage=each) for each in beside)
    parts = [each.spend_tokens for each in (*beside, *([usage] if usage else []))]
    assert total_spend_tokens(usage, additional) == min(INT64_MAX, sum(parts))


def test_two_usages_never_share_their_requests():
    first, second = Usage(), Usage()
    first.hosted_tool_requests["web_search"] = 1
    assert second.hosted_tool_requests == {}
