"""Which events are shown: a stable share of the calls, pairs together, failures always."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Finish
from modelmeter_server.core.events import (
    BreakerChanged,
    Family,
    HaltChanged,
    HostedToolCompleted,
    HostedToolInvoked,
    PromptCompleted,
    PromptStarted,
    Retried,
    SessionEnded,
    is_failure,
)
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.sampling import Sampling, bounded, fraction
from tests.support.event_values import events

ENVELOPE: dict[str, Any] = {"version": 1, "occurred_at": 1, "tick": 1, "tenant": "default"}


def pair(call_id: str) -> tuple[PromptStarted, PromptCompleted]:
    return (
        PromptStarted(**ENVELOPE, call_id=call_id, model_asked="m"),
        PromptCompleted(
            **ENVELOPE, call_id=call_id, model_asked="m", certainty=Certainty.EXACT, finish=Finish.STOP
        ),
    )


@given(events)
def test_everything_is_shown_unless_a_rate_says_otherwise(event):
    assert Sampling().keeps(event)


@given(events, st.floats(0, 1))
def test_failures_are_always_shown(event, rate):
    if is_failure(event):
        assert Sampling(rate=rate).keeps(event)


@given(st.text(max_size=40), st.floats(0, 1))
def test_both_ends_of_a_call_have_the_same_verdict(call_id, rate):
    started, completed = pair(call_id)
    assert Sampling(rate=rate).keeps(started) == Sampling(rate=rate).keeps(completed)


@given(st.text(max_size=40), st.floats(0, 1))
def test_both_ends_of_a_hosted_tool_have_the_same_verdict(call_id, rate):
    sampling = Sampling(rate=1.0, rates={Family.TOOL: rate})
    fields: dict[str, Any] = {**ENVELOPE, "call_id": call_id, "tool": "web_search", "tool_call_id": "t"}
    assert sampling.keeps(HostedToolInvoked(**fields)) == sampling.keeps(HostedToolCompleted(**fields))


def test_a_rate_of_zero_shows_nothing_that_went_well():
    started, completed = pair("c")
    assert not Sampling(rate=0).keeps(started)
    assert not Sampling(rate=0).keeps(completed)


def test_what_an_operator_did_and_how_targets_fare_is_always_shown():
    assert Sampling(rate=0).keeps(HaltChanged(**ENVELOPE, scope="TENANT"))
    assert Sampling(rate=0).keeps(BreakerChanged(**ENVELOPE, target="a/m", before="CLOSED", state="OPEN"))


def test_what_follows_from_a_failure_is_always_shown():
    sampling = Sampling(rate=0)
    assert sampling.keeps(Retried(**ENVELOPE, number=2, target="a"))
    ends = [SessionEnded(**ENVELOPE, session_id="s", reason=reason) for reason in ("transport_error", "idle")]
    assert [sampling.keeps(end) for end in ends] == [True, False]


@pytest.mark.parametrize(("rate", "told"), [(-1, 0), (2, 1), (math.nan, 1), (0.25, 0.25)])
def test_a_rate_outside_of_its_range_is_cut(rate, told):
    assert bounded(rate) == told


@given(st.floats(0, 1), st.floats(0, 1), st.text(max_size=20))
def test_a_higher_rate_shows_all_that_a_lower_one_shows(one, other, call_id):
    started, _ = pair(call_id)
    low, high = sorted((one, other))
    assert Sampling(rate=high).keeps(started) or not Sampling(rate=low).keeps(started)


def test_a_rate_shows_about_its_share():
    sampling = Sampling(rate=0.3)
    shown = sum(sampling.keeps(pair(f"call-{number}")[0]) for number in range(5_000))
    assert 0.27 < shown / 5_000 < 0.33


def test_the_verdict_is_the_same_in_every_process_and_other_with_another_key():
    code = "from modelmeter_server.core.sampling import fraction; print(fraction('call-1', b'k'))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(told) == fraction("call-1", b"k")
    assert fraction("call-1", b"k") != fraction("call-1", b"other")
