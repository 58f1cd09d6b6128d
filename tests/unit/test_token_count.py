"""The estimate where nobody counts, and why a count that fails costs nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.calls import Attempt, CallOutcome
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.errors import TABLE, Failure, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.token_count import TokenCount, costless, costless_outcome, estimate
from modelmeter_server.core.usage import Usage
from tests.support.junk import JUNK

DOCUMENTS = ("tools", "response_format")


def of(messages: Any, **members: Any) -> TokenCount:
    body = json.dumps({"model": "m", "messages": messages, **members}, separators=(",", ":"))
    return estimate(body.encode(), "messages", DOCUMENTS)


def test_a_quarter_of_the_bytes_is_the_estimate_and_every_byte_is_the_bound():
    count = of([{"role": "user", "content": "x" * 41}])
    assert (count.input_tokens, count.upper_bound) == (11 + 4 + 3, 41 + 2 * 64)
    assert (count.is_estimate, count.uncounted_media, count.certainty) == (True, (), Certainty.NONE)


def test_tools_and_schema_are_counted_as_they_are_written():
    plain, tools = of([]), [{"type": "function", "function": {"name": "look"}}]
    written = len(json.dumps(tools, separators=(",", ":"))) + len('{"type":"json_schema"}')
    count = of([], tools=tools, response_format={"type": "json_schema"}, stream_options={"x": "y" * 99})
    assert (count.upper_bound or 0) - (plain.upper_bound or 0) == written


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 999}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "A" * 999, "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_data": "A" * 999, "filename": "x.pdf"}}, "document"),
    ],
)
def test_a_medium_is_named_and_not_counted(part, kind):
    with_medium = of([{"role": "user", "content": [{"type": "text", "text": "Hi"}, part, part]}])
    without = of([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    assert with_medium.uncounted_media == (kind,)
    assert with_medium.input_tokens == without.input_tokens


@given(st.lists(st.text(max_size=60), max_size=6))
def test_the_estimate_grows_with_the_text_and_never_exceeds_the_bound(texts):
    count = of([{"role": "user", "content": text} for text in texts])
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    longer = of([{"role": "user", "content": text + "four"} for text in texts])
    assert count.upper_bound == size + 64 * (len(texts) + 1)
    assert count.input_tokens <= (count.upper_bound or 0)
    assert longer.input_tokens >= count.input_tokens + len(texts)


def test_a_deep_prompt_is_no_recursion():
    deep: Any = "x"
    for _ in range(120):
        deep = {"content": [deep]}
    assert of([deep]).upper_bound == 1 + 2 * 64


@given(JUNK)
def test_whatever_a_caller_has_for_messages_is_estimated(junk):
    body = json.dumps({"messages": junk}).encode()
    count = estimate(body, "messages", DOCUMENTS)
    assert 0 < count.input_tokens <= (count.upper_bound or 0) <= INT64_MAX


# Failures


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    kind = draw(st.sampled_from(list(Kind)))
    certainty = draw(st.sampled_from(TABLE[kind].certainties))
    told = certainty in (Certainty.EXACT, Certainty.AT_LEAST)
    return failure(
        kind,
        "it failed",
        cause=draw(st.sampled_from(list(Cause))),
        stage=draw(st.sampled_from(list(Stage))),
        certainty=certainty,
        retryable=draw(st.none() | st.booleans()),
        usage=Usage(input_tokens=3) if told else None,
        http_status=draw(st.none() | st.just(503)),
        retry_after=draw(st.none() | st.just(2.0)),
    )


@given(failures())
def test_a_count_that_fails_never_costs_anything(failed):
    free = costless(failed)
    assert (free.certainty, free.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
    assert (free.usage, free.cost, free.may_have_generated) == (None, None, False)
    assert free.stage < Stage.OUTPUT
    assert (free.message, free.cause, free.http_status) == (failed.message, failed.cause, failed.http_status)
    assert free.retry_after == failed.retry_after
    assert costless(free) == free or free.kind is Kind.UNAVAILABLE


@given(failures())
def test_a_lost_purchase_becomes_an_unavailable_provider_and_every_other_kind_stays(failed):
    lost = failed.kind in (Kind.INTERRUPTED, Kind.UNACCOUNTED, Kind.UNUSABLE)
    assert costless(failed).kind is (Kind.UNAVAILABLE if lost else failed.kind)


@pytest.mark.parametrize(
    ("kind", "cause", "retryable"),
    [
        (Kind.UNAVAILABLE, Cause.NETWORK, True),
        (Kind.UNAVAILABLE, Cause.IDLE_TIMEOUT, True),
        (Kind.UNACCOUNTED, Cause.NETWORK, True),
        (Kind.UNAVAILABLE, Cause.CALLER, False),
        (Kind.UNUSABLE, Cause.PROVIDER, False),
        (Kind.REFUSED, Cause.PROVIDER, False),
        (Kind.RATE_LIMITED, Cause.PROVIDER, True),
    ],
)
def test_repeating_is_safe_and_pointless_only_where_the_answer_was_whole(kind, cause, retryable):
    assert costless(failure(kind, "x", cause=cause, stage=Stage.BODY)).retryable is retryable


def test_the_grounds_of_a_refusal_keep_their_code():
    refused = failure(Kind.REFUSED, "x", code=Code.NOT_FOUND, resource="m")
    assert (costless(refused).code, costless(refused).resource) == (Code.NOT_FOUND, "m")


def test_the_attempts_of_a_count_are_as_free_as_itself():
    attempt = Attempt(
        number=1,
        target="p",
        stage=Stage.OUTPUT,
        certainty=Certainty.UNKNOWN,
        elapsed=0.1,
        kind=Kind.UNACCOUNTED,
    )
    failed = failure(Kind.UNACCOUNTED, "x", stage=Stage.OUTPUT)
    outcome = CallOutcome(call_id="c", model_asked="m", result=failed, attempts=(attempt,), attempts_total=1)
    (free,) = costless_outcome(outcome).attempts
    assert (free.kind, free.certainty, free.stage) == (Kind.UNAVAILABLE, Certainty.NONE, Stage.BODY)


def test_a_count_that_came_is_left_alone():
    outcome = CallOutcome(call_id="c", model_asked="m", result=TokenCount(input_tokens=3))
    assert costless_outcome(outcome) is outcome
