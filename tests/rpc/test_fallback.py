"""A call that fails at one target goes to another one, exactly where that is safe and can help, and says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import modelmeter
from modelmeter.enums import ErrorKind, PassReason
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.retry_policy import RetryPolicy
from tests.support import routed_service as routed
from tests.support.fault_server import FaultServer, NobodyListens, Reply
from tests.support.routed_service import ANSWER, FAILING, RoutedService, routed_service


@asynccontextmanager
async def two(first: Reply, **options: Any) -> AsyncIterator[tuple[RoutedService, FaultServer, FaultServer]]:
    """Serve from two providers, the second of which answers."""
    async with (
        FaultServer(first) as a,
        FaultServer(ANSWER) as b,
        routed_service({"a": a.url, "b": b.url}, **options) as service,
    ):
        yield service, a, b


HELPS = {
    "503": FAILING,
    "429": routed.LIMITED,
    "429 with a wait": routed.WAIT,
    "our key": routed.BAD_KEY,
    "unknown model": routed.NO_MODEL,
    "our account": routed.NO_MONEY,
}
HELPS_NOT = {"bad input": routed.BAD_INPUT, "silence": routed.SILENT, "cut": routed.CUT}


@pytest.mark.parametrize("case", HELPS)
async def test_another_target_serves_at_once_and_the_answer_says_which_one_failed(case):
    async with two(HELPS[case]) as (service, a, b):
        answer = await service.ask()
    assert (len(a.requests), len(b.requests)) == (1, 1)
    assert answer.target == "b/m"
    assert [(each.number, each.target, each.wait > 0.2) for each in answer.attempts] == [
        (1, "a/m", False),
        (2, "b/m", False),
    ]
    assert answer.attempts[0].kind is not ErrorKind.UNSPECIFIED
    assert answer.attempts[1].kind is ErrorKind.UNSPECIFIED
    assert answer.passed_over == ()


@pytest.mark.parametrize("case", HELPS_NOT)
async def test_what_another_target_could_not_mend_or_would_bill_again_goes_to_none(case):
    async with two(HELPS_NOT[case]) as (service, a, b):
        with pytest.raises(modelmeter.ModelmeterError) as caught:
            await service.ask()
    assert (len(a.requests), len(b.requests)) == (1, 0)
    assert caught.value.target == "a/m"
    assert caught.value.attempts_total == 1


async def test_a_target_that_nobody_listens_at_is_left_for_the_next():
    with NobodyListens() as nobody:
        async with (
            FaultServer(ANSWER) as b,
            routed_service({"a": nobody.url, "b": b.url}) as service,
        ):
            answer = await service.ask()
    assert [each.kind for each in answer.attempts] == [ErrorKind.UNREACHABLE, ErrorKind.UNSPECIFIED]


async def test_silence_goes_elsewhere_where_the_model_accepts_two_bills():
    policy = RetryPolicy(max_attempts=2, ambiguous=True)
    async with two(routed.SILENT, retry=policy) as (service, a, b):
        answer = await service.ask()
    assert (len(a.requests), len(b.requests)) == (1, 1)
    assert answer.target == "b/m"


async def test_the_most_attempts_bound_fallbacks_too():
    async with two(FAILING, retry=RetryPolicy(max_attempts=1)) as (service, _, b):
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await service.ask()
    assert (len(b.requests), caught.value.attempts_total) == (0, 1)


async def test_a_caller_that_asks_for_one_attempt_gets_no_fallback():
    async with two(FAILING) as (service, _, b):
        with pytest.raises(modelmeter.UnavailableError):
            await service.ask(retry_policy=modelmeter.RetryPolicy(max_attempts=1))
    assert len(b.requests) == 0


async def test_when_all_fail_the_error_has_every_attempt_and_each_target_was_asked_once():
    async with two(FAILING) as (service, _, b):
        b.default = FAILING
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await service.ask()
    assert [each.target for each in caught.value.attempts] == ["a/m", "b/m"]
    assert caught.value.target == "b/m"


async def test_more_attempts_than_targets_come_back_to_one_after_a_wait():
    policy = RetryPolicy(max_attempts=3, initial_wait=0.01, max_wait=0.01)
    async with two(FAILING, retry=policy) as (service, _, b):
        b.script([FAILING])
        answer = await service.ask()
    assert [each.target for each in answer.attempts] == ["a/m", "b/m", "b/m"]
    assert answer.attempts[2].wait > 0


async def test_a_stream_goes_elsewhere_before_its_first_delta():
    async with (
        two(FAILING) as (service, *_),
        service.client.stream(routed.ROUTED, "Hi", timeout=20) as stream,
    ):
        events = [event async for event in stream]
    answer = events[-1]
    assert isinstance(answer, modelmeter.Completion)
    assert (answer.target, answer.text) == ("b/m", "Hello.")
    text = "".join(each.text for each in events if isinstance(each, modelmeter.TextDelta))
    assert text == "Hello."


async def test_a_stream_that_has_told_something_goes_to_nobody_else():
    async with (
        two(routed.CUT) as (service, _, b),
        service.client.stream(routed.ROUTED, "Hi", timeout=20) as stream,
    ):
        with pytest.raises(modelmeter.CallInterruptedError):
            async for _ in stream:
                pass
    assert len(b.requests) == 0


async def test_a_target_that_cannot_take_the_request_is_passed_over_and_never_asked():
    lower = {"a": {"max_sensitivity": Sensitivity.PUBLIC}}
    async with two(ANSWER, changes=lower) as (service, a, b):
        answer = await service.ask(sensitivity="internal")
    assert (len(a.requests), len(b.requests)) == (0, 1)
    assert [(each.target, each.reason) for each in answer.passed_over] == [("a/m", PassReason.CANNOT)]
    assert answer.passed_over[0].detail == "the prompt is INTERNAL and the model may see PUBLIC at most"
    assert answer.attempts_total == 1


async def test_when_no_target_can_take_the_request_the_first_ones_refusal_is_told():
    lower = {name: {"max_sensitivity": Sensitivity.PUBLIC} for name in "ab"}
    async with two(ANSWER, changes=lower) as (service, a, b):
        with pytest.raises(modelmeter.RefusedError) as caught:
            await service.ask(sensitivity="internal")
    assert (len(a.requests), len(b.requests)) == (0, 0)
    assert [each.target for each in caught.value.passed_over] == ["a/m", "b/m"]
    assert caught.value.attempts_total == 0


async def test_a_fallback_skips_a_target_that_cannot_take_the_request():
    lower = {"b": {"max_sensitivity": Sensitivity.PUBLIC}}
    async with (
        FaultServer(FAILING) as a,
        FaultServer(ANSWER) as b,
        FaultServer(ANSWER) as c,
        routed_service({"a": a.url, "b": b.url, "c": c.url}, changes=lower) as service,
    ):
        answer = await service.ask(sensitivity="internal")
    assert (len(a.requests), len(b.requests), len(c.requests)) == (1, 0, 1)
    assert (answer.target, [each.target for each in answer.passed_over]) == ("c/m", ["b/m"])


async def test_a_fallback_that_no_one_else_can_take_ends_with_the_first_failure():
    lower = {"b": {"max_sensitivity": Sensitivity.PUBLIC}}
    async with two(FAILING, changes=lower) as (service, _, b):
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await service.ask(sensitivity="internal")
    assert (len(b.requests), caught.value.target) == (0, "a/m")
    assert [each.target for each in caught.value.passed_over] == ["b/m"]


async def test_a_count_goes_elsewhere_too_and_says_nothing_of_the_target():
    async with two(FAILING) as (service, a, b):
        b.default = Reply(chunks=[b'{"input_tokens": 7}'])
        counts = [await service.client.count_tokens(routed.ROUTED, "Hi", timeout=20) for _ in range(7)]
        state = service.targets.find("a/m").state
    assert {(each.input_tokens, each.target) for each in counts} == {(7, "b/m")}
    assert (len(a.requests), state.value) == (7, "CLOSED")
