"""Hypothesis strategies for the core's values, ordinary and hostile: what a provider could make us hold."""

from __future__ import annotations

from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer, Finish, ToolCall
from modelmeter_server.core.calls import Attempt, CallOutcome, Timings
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.errors import TABLE, Failure, FieldViolation, failure
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.requests import Continuation
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.rpc.convert_usage import COUNTERS

MODEL = ModelSpec(name="claude", provider="scripted", provider_kind="scripted", provider_model="scripted-1")

# JSON can carry halves of characters and zeros; left to chance they are too rare to matter. A list, because
# `st.text` of two alphabets hardly ever draws from the second.
characters = st.characters() | st.sampled_from("\ud800\udbff\udc00\udfff\x00%\n")
texts = st.lists(characters, max_size=12).map("".join)
long_texts = st.builds(
    lambda piece, times: "".join(piece) * times,
    st.lists(characters, min_size=1, max_size=4),
    st.integers(1, 200),
)
any_texts = texts | long_texts
maybe_texts = st.none() | any_texts
counts = st.integers(0, INT64_MAX)
tools = st.dictionaries(texts, counts, max_size=6)
usages = st.builds(Usage, **{name: st.none() | counts for name in COUNTERS}, hosted_tool_requests=tools)
bills = st.builds(AdditionalUsage, kind=texts, model=maybe_texts, usage=usages)
costs = st.builds(
    Cost,
    nano_units=counts,
    currency=st.sampled_from(["USD", "EUR"]),
    source=st.sampled_from(CostSource),
    certainty=st.sampled_from(Certainty),
)
attempts = st.builds(
    Attempt,
    number=st.integers(1, 9),
    target=any_texts,
    stage=st.sampled_from(Stage),
    certainty=st.sampled_from(Certainty),
    elapsed=st.floats(0, 1e6),
    kind=st.none() | st.sampled_from(Kind),
    cause=st.none() | st.sampled_from(Cause),
    usage=st.none() | usages,
    http_status=st.none() | st.integers(100, 599),
    provider_code=maybe_texts,
    provider_request_id=maybe_texts,
)
violations = st.builds(FieldViolation, field=any_texts, description=any_texts)
timings = st.builds(
    Timings, queue=st.floats(0, 1e6), first_token=st.none() | st.floats(0, 1e6), total=st.floats(0, 1e6)
)

answers = st.builds(
    Answer,
    text=texts,
    tool_calls=st.lists(
        st.builds(ToolCall, id=texts, name=texts, arguments_json=texts, free_text=st.booleans()), max_size=3
    ).map(tuple),
    usage=st.none() | usages,
    additional_usage=st.lists(bills, max_size=3).map(tuple),
    certainty=st.sampled_from(Certainty),
    cost=st.none() | costs,
    stop_reason=texts,
    finish=st.sampled_from(Finish),
    truncated=st.booleans(),
    structured_json=st.none() | texts,
    model_served=maybe_texts,
    provider_response_id=maybe_texts,
    provider_request_id=maybe_texts,
    hosted_tools=st.lists(
        st.builds(
            HostedTool,
            type=texts,
            id=texts,
            status=texts,
            name=texts,
            server=texts,
            arguments_json=texts,
            result_json=texts,
            error=texts,
            omitted=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    continuation=st.none() | st.builds(Continuation, texts, texts),
    service_tier=maybe_texts,
    estimated_output_tokens=st.none() | counts,
)


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    """Draw a failure that the table allows."""
    kind = draw(st.sampled_from(Kind))
    certainty = draw(st.sampled_from(TABLE[kind].certainties))
    told = certainty in (Certainty.EXACT, Certainty.AT_LEAST)
    return failure(
        kind,
        draw(any_texts),
        cause=draw(st.sampled_from(Cause)),
        stage=draw(st.sampled_from(Stage)),
        certainty=certainty,
        usage=draw(usages) if told else None,
        additional_usage=tuple(draw(st.lists(bills, max_size=5))),
        estimated_output_tokens=draw(st.none() | counts),
        cost=draw(st.none() | costs),
        model_served=draw(maybe_texts),
        service_tier=draw(maybe_texts),
        http_status=draw(st.none() | st.integers(100, 599)),
        provider_code=draw(maybe_texts),
        provider_request_id=draw(maybe_texts),
        provider_response_id=draw(maybe_texts),
        retry_after=draw(st.none() | st.floats(0, allow_nan=False, allow_infinity=True)),
        violations=tuple(draw(st.lists(violations, max_size=12))),
        resource=draw(maybe_texts),
    )


@st.composite
def outcomes(draw: st.DrawFn, results: st.SearchStrategy) -> CallOutcome:
    """Draw an outcome with one of these results."""
    return CallOutcome(
        call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c",
        model_asked=draw(any_texts),
        result=draw(results),
        model=draw(st.none() | st.just(MODEL)),
        attempts=tuple(draw(st.lists(attempts, max_size=3))),
        attempts_total=draw(st.integers(0, 2**40)),
        timings=draw(timings),
        settled=draw(st.booleans()),
        replayed=draw(st.booleans()),
    )
