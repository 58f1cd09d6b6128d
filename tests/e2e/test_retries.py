"""How often a provider is asked and what the call ends with: a table of faults and policies, through the front door."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

import modelmeter
from modelmeter import Certainty, ErrorKind, ModelmeterError, RetryPolicy
from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from tests.conformance.asking import Face, Heard, ask
from tests.e2e.retry_service import MODEL, WIRE_KINDS, requests_of, tried

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("retries.toml").read_text("utf-8"))
CASES = [
    pytest.param(row, wire, face, id=f"{row['policy']}-{'+'.join(row['faults'])}-{wire}-{face}")
    for row in TABLE["rows"]
    for wire in row.get("wires", WIRE_KINDS)
    for face in row.get("faces", ("unary", "stream"))
]
LANDED = {ErrorKind.INTERRUPTED, ErrorKind.UNACCOUNTED, ErrorKind.UNUSABLE}


def seen(heard: Heard) -> tuple[str, str, int]:
    return heard.kind, heard.result.certainty.name, heard.result.attempts_total


@pytest.mark.parametrize(("row", "wire", "face"), CASES)
async def test_a_provider_is_asked_as_often_as_the_table_says(row: dict[str, Any], wire: str, face: Face):
    async with tried(wire, row["faults"], **TABLE["policies"][row["policy"]]) as service:
        heard = await ask(service.client, face, MODEL, "Hi")
        assert requests_of(service) == row["requests"]
    assert seen(heard) == (row["ends"], row["certainty"], row["requests"])
    assert [each.number for each in heard.result.attempts] == list(range(1, row["requests"] + 1))
    if face == "stream" and heard.kind == "COMPLETION":
        assert heard.text == "Hello."


def test_the_table_has_forty_rows_and_more_in_every_format():
    assert len(TABLE["rows"]) >= 40
    assert {wire for row in TABLE["rows"] for wire in row.get("wires", WIRE_KINDS)} == set(WIRE_KINDS)


@pytest.mark.parametrize("wire", WIRE_KINDS)
@pytest.mark.parametrize("fault", ["cut", "blank"])
async def test_what_has_landed_is_not_sent_again_unless_it_is_asked_for(wire: str, fault: str):
    async with tried(wire, [fault], max_attempts=20, ambiguous=True) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi")
        assert isinstance(heard.result, ModelmeterError)
        assert heard.result.kind in LANDED
        assert requests_of(service) == 1


# A list of faults, drawn by a seed: six attempts find an answer among the first six outcomes, or there is none

HARMLESS = ("limited", "away", "failing", "overloaded", "timed_out", "answer")


def drawn(seed: int) -> list[str]:
    """Return the outcomes of the next provider requests; none of these can have landed but an answer."""
    draw = random.Random(seed)
    return [draw.choices(HARMLESS, weights=(4, 4, 4, 4, 4, 3))[0] for _ in range(8)]


@pytest.mark.parametrize("wire", WIRE_KINDS)
@pytest.mark.parametrize("seed", range(12))
async def test_six_attempts_succeed_exactly_where_the_first_six_outcomes_have_an_answer(wire: str, seed: int):
    outcomes = drawn(seed)
    expected = outcomes.index("answer") + 1 if "answer" in outcomes[:6] else None
    async with tried(wire, outcomes, max_attempts=6) as service:
        heard = await ask(service.client, "unary" if seed % 2 else "stream", MODEL, "Hi")
        assert requests_of(service) == heard.result.attempts_total == (expected or 6)
        once = await ask(service.client, "unary", wire, "Hi") if expected else None
    assert (heard.kind == "COMPLETION") == (expected is not None)
    if expected and once is not None and not outcomes[expected:]:
        assert heard.result.usage == once.result.usage


def test_the_drawn_lists_have_both_kinds():
    found = {"answer" in drawn(seed)[:6] for seed in range(12)}
    assert found == {True, False}


# What one call may ask for


async def test_a_call_may_ask_for_fewer_attempts_than_its_model_allows():
    async with tried("anthropic", ["limited"] * 3, max_attempts=5) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi", retry_policy=RetryPolicy(2))
        assert (heard.kind, requests_of(service)) == ("RATE_LIMITED", 2)


async def test_a_call_that_has_a_policy_of_its_own_opts_in_by_itself():
    async with tried("anthropic", ["silence"], max_attempts=5, ambiguous=True) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi", retry_policy=RetryPolicy())
        assert (heard.kind, requests_of(service)) == ("UNAVAILABLE", 1)
        service.provider.script([])
        heard = await ask(service.client, "unary", MODEL, "Hi", retry_policy=RetryPolicy(ambiguous=True))
        assert heard.kind == "COMPLETION"


async def test_what_a_call_asks_for_beyond_its_model_is_refused_by_name_and_nothing_is_sent():
    asked = RetryPolicy(4, ambiguous=True, landed=True)
    async with tried("anthropic", [], max_attempts=3) as service:
        heard = await ask(service.client, "stream", MODEL, "Hi", retry_policy=asked)
        assert isinstance(heard.result, ModelmeterError)
        named = {each.field.rpartition("retry_policy.")[2] for each in heard.result.violations}
        assert named == {"max_attempts", "ambiguous", "landed"}
        assert requests_of(service) == 0


# What is told of the attempts


async def test_each_attempt_is_told_with_its_end_its_figures_its_cost_and_the_wait_before_it():
    async with tried("anthropic", ["blank", "limited"], max_attempts=3, landed=True) as service:
        completion = await service.client.complete(MODEL, "Hi")
    assert isinstance(completion, modelmeter.Completion)
    first, second, third = completion.attempts
    assert (first.kind, second.kind, third.kind) == (
        ErrorKind.UNUSABLE,
        ErrorKind.RATE_LIMITED,
        ErrorKind.UNSPECIFIED,
    )
    assert (first.usage.output_tokens, second.usage.told, third.usage.output_tokens) == (20, False, 20)
    assert first.cost is not None
    assert second.cost is None
    assert third.cost is not None
    assert completion.cost is not None
    assert completion.cost.nano_units == first.cost.nano_units + third.cost.nano_units
    assert first.wait == 0
    assert second.wait > 0
    assert completion.certainty is Certainty.EXACT


async def test_an_error_tells_its_last_eight_attempts_and_how_many_there_were():
    async with tried("anthropic", ["limited"] * 10, max_attempts=10) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi")
    assert [each.number for each in heard.result.attempts] == list(range(3, 11))
    assert heard.result.attempts_total == 10


async def test_a_stream_tells_the_usage_of_all_its_attempts_together():
    async with (
        tried("anthropic", ["started"], max_attempts=2, landed=True) as service,
        service.client.stream(MODEL, "Hi", flush_interval=0) as stream,
    ):
        events = [event async for event in stream]
        completion = stream.completion
    assert completion is not None
    assert completion.usage.input_tokens == 24
    told = [each.usage.input_tokens or 0 for each in events if isinstance(each, modelmeter.UsageSnapshot)]
    assert told == sorted(told)
    assert set(told) <= {12, 24}


@pytest.mark.parametrize("wire", WIRE_KINDS)
@pytest.mark.parametrize("face", ["unary", "stream"])
@pytest.mark.parametrize(("faults", "is_held"), [(["silence", "away"], True), (["away", "away"], False)])
async def test_a_rate_gets_nothing_back_of_a_call_that_fell_silent_once(wire, face, faults, is_held):
    limits = AdmissionLimits(queued=0, models={MODEL: CallLimits(tokens_per_minute=20_000)})
    async with tried(wire, faults, max_attempts=2, ambiguous=True, max_output_tokens=15_000) as service:
        service.engine.admission.reconfigure(limits)
        failed = await ask(service.client, face, MODEL, "Hi")
        assert isinstance(failed.result, ModelmeterError)
        assert failed.result.retryable is not is_held
        again = await ask(service.client, face, MODEL, "Hi")
    assert again.kind == ("OVERLOADED" if is_held else "COMPLETION")
