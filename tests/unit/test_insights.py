"""Aggregates of the latest calls, in integers."""

from __future__ import annotations

import statistics

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.insights import GROUPS, Distribution, Sample, distribution, insights

SAMPLE = Sample(at=1, tenant="default", model="claude", certainty="EXACT", total=1_000)
times = st.lists(st.integers(0, 10**9), min_size=1, max_size=60)


def changed(**fields) -> Sample:
    return msgspec.structs.replace(SAMPLE, **fields)


@given(times)
def test_quantiles_are_nearest_rank_and_times_that_were_measured(measured):
    found = distribution(measured)
    quantiles = [found.p50, found.p90, found.p95, found.p99]
    assert set(quantiles) <= set(measured)
    assert quantiles == sorted(quantiles)
    assert (found.count, found.least, found.most) == (len(measured), min(measured), max(measured))
    assert found.mean == int(statistics.mean(measured))


@given(times, st.sampled_from([50, 90, 95, 99]))
def test_at_least_the_named_share_is_no_longer_than_a_quantile(measured, percent):
    quantile = getattr(distribution(measured), f"p{percent}")
    assert sum(each <= quantile for each in measured) * 100 >= percent * len(measured)
    assert sum(each < quantile for each in measured) * 100 < percent * len(measured)


def test_nothing_measured_is_all_zeros():
    assert distribution([]) == Distribution()


def test_calls_are_told_apart_by_how_they_ended():
    found = insights(
        [
            changed(),
            changed(error_kind="RATE_LIMITED", certainty="NONE"),
            changed(error_kind="UNACCOUNTED", certainty="UNKNOWN"),
            changed(replayed=True, certainty="UNKNOWN"),
        ]
    )
    assert (found.calls, found.answered, found.failed, found.replayed, found.untold) == (4, 2, 2, 1, 1)
    assert found.errors == {"RATE_LIMITED": 1, "UNACCOUNTED": 1}
    assert found.latency.count == 1


def test_failed_calls_count_with_what_they_consumed_and_replayed_ones_do_not():
    bill = {"input_tokens": 10, "output_tokens": 5, "nano_units": 7, "currency": "USD", "run_id": "r"}
    found = insights(
        [changed(**bill), changed(**bill, error_kind="INTERRUPTED"), changed(**bill, replayed=True)]
    )
    (total,) = found.total
    (run,) = found.by_run
    assert (total.calls, total.input_tokens, total.output_tokens, total.nano_units) == (2, 20, 10, 14)
    assert (run.name, run.nano_units) == ("r", 14)


def test_every_sum_has_the_doubts_of_its_own_calls_alone():
    told = {"nano_units": 7, "currency": "USD"}
    found = insights(
        [
            changed(**told, conversation_id="exact", run_id="r"),
            changed(**told, conversation_id="cut", run_id="r", certainty="AT_LEAST"),
            changed(**told, conversation_id="cut", certainty="AT_LEAST"),
            changed(conversation_id="cut", certainty="UNKNOWN"),
            changed(conversation_id="exact", certainty="UNKNOWN", replayed=True),
        ]
    )
    doubts = {(each.name, each.currency): (each.at_least, each.untold) for each in found.by_conversation}
    assert doubts == {("exact", "USD"): (0, 0), ("cut", "USD"): (2, 0), ("cut", ""): (0, 1)}
    assert [(each.name, each.at_least, each.untold) for each in found.by_run] == [("r", 1, 0)]


@given(
    st.lists(
        st.builds(
            changed,
            model=st.sampled_from("ab"),
            currency=st.sampled_from(["", "EUR", "USD"]),
            certainty=st.sampled_from(["EXACT", "NONE", "AT_LEAST", "UNKNOWN"]),
            replayed=st.booleans(),
        )
    )
)
def test_the_doubts_of_the_sums_are_those_of_the_whole(samples):
    found = insights(samples)
    for sums in (found.total, found.by_model):
        assert sum(each.at_least for each in sums) == found.at_least
        assert sum(each.untold for each in sums) == found.untold


def test_currencies_are_never_added_up():
    found = insights([changed(nano_units=1, currency="USD"), changed(nano_units=2, currency="EUR")])
    assert [(each.currency, each.nano_units) for each in found.total] == [("EUR", 2), ("USD", 1)]


def test_the_dearest_come_first_and_not_more_than_are_told():
    found = insights([changed(conversation_id=f"c{n}", nano_units=n, currency="USD") for n in range(300)])
    told = [each.nano_units for each in found.by_conversation]
    assert told == sorted(told, reverse=True)
    assert (len(told), told[0]) == (GROUPS, 299)


def test_sums_saturate():
    found = insights([changed(input_tokens=INT64_MAX), changed(input_tokens=1)])
    assert found.total[0].input_tokens == INT64_MAX
