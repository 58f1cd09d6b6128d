"""How a model with targets chooses among them in a running service: breakers, rests, load, affinity, continuations."""

from __future__ import annotations

import asyncio
import functools
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import modelmeter
from modelmeter.enums import PassReason
from modelmeter_server.core.models import Strategy
from modelmeter_server.engine.breaker import BreakerRules, State
from modelmeter_server.telemetry.observation import Telemetry
from tests.support import anthropic_events
from tests.support import routed_service as routed
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import until
from tests.support.limits import no_more_files
from tests.support.routed_service import ANSWER, FAILING, RoutedService, routed_service

RULES = BreakerRules(failures=3, open_seconds=10.0, probes=1)


class Clock:
    """Time as the test has it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def several(
    *replies: Reply, **options: Any
) -> AsyncIterator[tuple[RoutedService, Clock, dict[str, FaultServer]]]:
    """Serve from one provider for each reply, called `a`, `b` and so on."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(FaultServer(reply))
            for name, reply in zip("abcdef", replies, strict=False)
        }
        urls = {name: server.url for name, server in servers.items()}
        options = {"rules": RULES, "clock": clock, **options}
        yield await stack.enter_async_context(routed_service(urls, **options)), clock, servers


def asked(servers: dict[str, FaultServer]) -> list[int]:
    return [len(server.requests) for server in servers.values()]


def has_come(servers: dict[str, FaultServer], number: int) -> bool:
    return sum(asked(servers)) == number


async def test_an_open_target_is_passed_over_until_its_time_and_then_proven_by_one_call():
    async with several(FAILING, ANSWER) as (service, clock, servers):
        for _ in range(3):
            await service.ask()
        answer = await service.ask()
        assert asked(servers) == [3, 4]
        assert [(each.target, each.reason) for each in answer.passed_over] == [("a/m", PassReason.OPEN)]
        assert answer.passed_over[0].detail == "it is asked again in 10.0 s"
        servers["a"].default = ANSWER
        clock.now += 10
        answer = await service.ask()
        assert (answer.target, service.targets.find("a/m").state) == ("a/m", State.CLOSED)


async def test_a_failed_probe_is_served_elsewhere_and_the_target_stays_out_for_twice_as_long():
    async with several(FAILING, ANSWER) as (service, clock, servers):
        for _ in range(3):
            await service.ask()
        clock.now += 10
        answer = await service.ask()
        assert ([each.target for each in answer.attempts], asked(servers)) == (["a/m", "b/m"], [4, 4])
        clock.now += 19
        await service.ask()
        assert asked(servers) == [4, 5]


async def test_when_all_are_open_the_one_that_is_due_first_is_asked_and_nobody_is_refused_by_us():
    async with several(FAILING, FAILING) as (service, clock, servers):
        for number in range(3):
            clock.now += number
            with pytest.raises(modelmeter.UnavailableError):
                await service.ask()
        assert [service.targets.find(f"{name}/m").state for name in "ab"] == [State.OPEN, State.OPEN]
        servers["a"].default = ANSWER
        answer = await service.ask()
    assert answer.target == "a/m"
    assert asked(servers) == [4, 3]


async def test_a_target_that_named_a_wait_rests_and_its_breaker_stays_closed():
    async with several(routed.WAIT, ANSWER) as (service, clock, servers):
        answers = [await service.ask() for _ in range(5)]
        assert asked(servers) == [1, 5]
        assert [each.reason for each in answers[-1].passed_over] == [PassReason.RESTING]
        assert service.targets.find("a/m").state is State.CLOSED
        clock.now += 60
        await service.ask()
    assert asked(servers) == [2, 6]


async def test_bad_input_of_one_caller_takes_the_target_from_nobody():
    async with several(routed.BAD_INPUT, ANSWER) as (service, _, servers):
        for _ in range(10):
            with pytest.raises(modelmeter.RefusedError):
                await service.ask()
        assert service.targets.find("a/m").state is State.CLOSED
    assert asked(servers) == [10, 0]


async def test_callers_that_leave_and_deadlines_say_nothing_about_a_target():
    async with several(routed.SILENT, ANSWER) as (service, *_):
        for _ in range(5):
            with pytest.raises(modelmeter.ModelmeterError):
                await service.client.complete(routed.ROUTED, "Hi", timeout=0.2)
        await until(lambda: service.engine.calls_in_flight == 0)
        assert service.targets.find("a/m").state is State.CLOSED
        assert service.targets.find("a/m").running == 0


async def test_that_no_connection_can_be_opened_here_says_nothing_about_a_target():
    async with several(ANSWER, ANSWER, rules=BreakerRules(failures=1)) as (service, _, servers):
        await service.client.models()  # the caller's own connection stands
        with (
            no_more_files(),
            pytest.raises(modelmeter.OverloadedError, match="too many open files") as caught,
        ):
            await service.ask()
        assert (caught.value.stage, caught.value.retry_after) == (modelmeter.Stage.NOT_WRITTEN, 1.0)
        assert [each.target for each in caught.value.attempts] == ["a/m", "b/m"]
        assert [service.targets.find(f"{name}/m").state for name in "ab"] == [State.CLOSED] * 2
        assert (await service.ask()).target == "a/m"
    assert asked(servers) == [1, 0]


async def test_the_least_loaded_target_gets_the_next_call():
    gate = asyncio.Event()
    held = Reply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hello."))], gate=gate)
    async with several(held, held, strategy=Strategy.LEAST_LOADED) as (service, _, servers):
        calls = []
        for number in range(1, 7):
            calls.append(asyncio.create_task(service.ask()))
            await until(functools.partial(has_come, servers, number))
        assert asked(servers) == [3, 3]
        gate.set()
        await asyncio.gather(*calls)
        assert [service.targets.find(f"{name}/m").running for name in "ab"] == [0, 0]


async def test_a_conversation_stays_at_its_target_and_moves_only_while_that_is_out():
    async with several(ANSWER, ANSWER, ANSWER, strategy=Strategy.WEIGHTED) as (service, clock, servers):
        first = {key: (await service.ask(affinity_key=key)).target for key in map(str, range(12))}
        assert len(set(first.values())) == 3
        lost = first["0"]
        servers[lost[0]].default = FAILING
        for _ in range(3):
            await service.ask(affinity_key="0")
        during = {key: (await service.ask(affinity_key=key)).target for key in first}
        assert {key for key in first if during[key] != first[key]} == {
            key for key, target in first.items() if target == lost
        }
        servers[lost[0]].default = ANSWER
        clock.now += 10
        after = {key: (await service.ask(affinity_key=key)).target for key in first}
    assert after == first


@pytest.mark.parametrize(("sticky", "targets"), [(True, 1), (False, 3)])
async def test_a_run_is_a_conversation_where_the_model_says_so(ledger, sticky, targets):
    options = {"strategy": Strategy.WEIGHTED, "sticky_runs": sticky, "ledger": ledger}
    async with several(ANSWER, ANSWER, ANSWER, **options) as (service, *_):
        run = [modelmeter.Effect("run-1", f"step-{number}") for number in range(30)]
        seen = Counter([(await service.ask(effect=each)).target for each in run])
    assert len(seen) == targets


async def test_an_affinity_key_is_bounded():
    async with several(ANSWER) as (service, *_):
        await service.ask(affinity_key="k" * 256)
        with pytest.raises(modelmeter.RefusedError) as caught:
            await service.ask(affinity_key="k" * 257)
    assert [each.field for each in caught.value.violations] == ["affinity_key"]


TOOL_CALL = Reply(chunks=[anthropic_events.stream(anthropic_events.tool_block(0, '{"city": "Ulm"}'))])


def results_of(answer: modelmeter.Completion) -> list[modelmeter.Message]:
    """Return the conversation after the tool calls were answered, with the provider's own turn in it."""
    results = [modelmeter.ToolResult(each.id, "sunny") for each in answer.tool_calls]
    return [modelmeter.Message.user("Hi"), answer.message, modelmeter.Message.user(*results)]


async def test_a_continuation_goes_back_to_the_instance_that_issued_it_and_to_no_other():
    tools = [modelmeter.Tool("look", "Look.", {"type": "object"})]
    async with several(FAILING, TOOL_CALL) as (service, _, servers):
        answer = await service.ask(tools=tools)
        assert answer.continuation is not None
        assert answer.continuation.target == "b"
        servers["a"].default = ANSWER
        servers["b"].default = FAILING
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await service.client.complete(routed.ROUTED, results_of(answer), tools=tools, timeout=20)
    assert asked(servers) == [1, 3]
    assert [(each.target, each.reason) for each in caught.value.passed_over] == [
        ("a/m", PassReason.CONTINUATION)
    ]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "must say who issued it, as the answer did: this model has `a` and `b`"),
        ("z", "names `z`, and of that kind this model has `a` and `b`"),
    ],
)
async def test_a_continuation_that_no_target_is_known_to_read_is_refused_before_anything_is_sent(
    target, words
):
    state = json.dumps([{"role": "assistant", "content": [{"type": "text", "text": "x"}]}])
    continuation = modelmeter.Continuation("anthropic", state, target)
    async with several(ANSWER, ANSWER) as (service, _, servers):
        with pytest.raises(modelmeter.RefusedError) as caught:
            await service.ask(continuation=continuation)
    assert asked(servers) == [0, 0]
    (mistake,) = caught.value.violations
    assert mistake.field == "continuation.target"
    assert words in mistake.description


async def test_a_providers_own_format_needs_targets_of_one_kind():
    async with several(ANSWER, ANSWER, kinds={"b": "openai_responses"}) as (service, _, servers):
        with pytest.raises(modelmeter.RefusedError) as caught:
            await service.ask(provider_options={"top_a": 1})
    assert [each.field for each in caught.value.violations] == ["provider_options_json"]
    assert asked(servers) == [0, 0]


async def test_a_caller_learns_of_the_targets_and_of_what_all_of_them_can_do():
    changes = {"a": {"price": routed.price(2_000_000_000)}, "b": {"price": routed.price(9_000_000_000)}}
    kinds = {"b": "openai_responses"}
    options = {"strategy": Strategy.WEIGHTED, "weights": {"a": 3}, "changes": changes, "kinds": kinds}
    async with several(ANSWER, ANSWER, **options) as (service, *_):
        (model,) = await service.client.models(timeout=20)
    assert (model.provider, model.provider_kind, model.provider_model, model.price) == ("", "", "m", None)
    assert model.strategy is modelmeter.TargetStrategy.WEIGHTED
    assert [(each.name, each.weight, each.price.tiers[0].output) for each in model.targets if each.price] == [
        ("a/m", 3, "2"),
        ("b/m", 1, "9"),
    ]
    assert set(model.capabilities.sampling) == {"temperature", "top_p"}


async def test_a_reload_keeps_what_is_known_of_the_targets_that_stay():
    async with several(FAILING, ANSWER) as (service, *_):
        for _ in range(3):
            await service.ask()
        known = service.targets.find("a/m")
        service.targets.reconfigure({"a/m": RULES, "c/m": RULES})
        assert service.targets.find("a/m") is known
        assert [(name, state) for name, state, _ in service.targets.states()] == [
            ("a/m", State.OPEN),
            ("c/m", State.CLOSED),
        ]


async def test_changes_of_state_and_targets_passed_over_are_counted():
    telemetry = Telemetry()
    async with several(FAILING, ANSWER, telemetry=telemetry) as (service, *_):
        for _ in range(4):
            await service.ask()
    read = {each.described.name: each for each in telemetry.meters.read()}
    told = {
        name: {point.values: point.value for point in read[f"modelmeter.target.{name}"].points}
        for name in ("state", "changes", "passed_over")
    }
    assert told == {
        "state": {("a/m",): 2, ("b/m",): 0},
        "changes": {("a/m", "OPEN"): 1},
        "passed_over": {("a/m", "OPEN"): 1},
    }


async def test_changes_of_a_breaker_are_told_to_those_who_watch():
    telemetry = Telemetry()
    async with several(FAILING, ANSWER, telemetry=telemetry) as (service, clock, servers):
        async with service.client.events.watch(kinds=["breaker"]) as batches:
            for _ in range(3):
                await service.ask()
            (opened,) = (await anext(batches)).events
            servers["a"].default = ANSWER
            clock.now += RULES.open_seconds
            await service.ask()
            healed = [event async for event in _taken(batches, 2)]
        recent = [event async for event in service.client.events.recent(target="a/m", kinds="breaker")]
        others = [event async for event in service.client.events.recent(target="c/m")]
    assert opened.severity is modelmeter.EventSeverity.WARNING
    assert (opened.tenant, opened.call_id) == ("", "")
    assert [dict(event.fact) for event in (opened, *healed)] == [
        {"target": "a/m", "before": before, "state": state}
        for before, state in (("CLOSED", "OPEN"), ("OPEN", "HALF_OPEN"), ("HALF_OPEN", "CLOSED"))
    ]
    assert [event.tick for event in recent] == [event.tick for event in reversed((opened, *healed))]
    assert others == []


async def _taken(
    batches: AsyncIterator[modelmeter.EventBatch], number: int
) -> AsyncIterator[modelmeter.Event]:
    while number:
        for event in (await anext(batches)).events:
            yield event
            number -= 1


async def test_a_session_picks_a_target_that_is_well_and_stays_there():
    async with several(FAILING, ANSWER) as (service, _, servers):
        for _ in range(3):
            await service.ask()
        async with service.client.session(routed.ROUTED) as session:
            await session.ask("a")
            servers["a"].default = ANSWER
            servers["b"].script([FAILING, FAILING])
            with pytest.raises(modelmeter.UnavailableError):
                await session.ask("b")
            answer = await session.ask("c")
    assert (answer.target, answer.model_asked) == ("b/m", routed.ROUTED)
    assert asked(servers) == [3, 7]
