"""A model with targets whose instances take a limited number of calls: each call has its place at one of them."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

import modelmeter
from modelmeter.enums import PassReason
from modelmeter_server.core.call_limits import AdmissionLimits, CallLimits
from modelmeter_server.core.models import ModelSpec, Strategy
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.breaker import BreakerRules, State
from tests.support import routed_service as routed
from tests.support.fault_server import FaultServer, RecordedRequest, Reply
from tests.support.ledgers import until
from tests.support.routed_service import ANSWER, FAILING, RoutedService, routed_service

PLAIN = ModelSpec(
    name="plain",
    provider="a",
    provider_kind="anthropic",
    provider_model="m",
    capabilities=WIRE_FORMATS["anthropic"].capabilities,
)
"""A model without targets, at the instance `a` as well."""

PATIENT = Timeouts(pool=5, connect=5, write=5, first_byte=10, idle=10, tail=10, total=20)

ONE_EACH = AdmissionLimits(targets={"a": 1, "b": 1})


class Provider:
    """Answer each request once it is let go, and count those that are here."""

    def __init__(self, replies: Reply = ANSWER) -> None:
        self.reply = replies
        self.gates: list[asyncio.Event] = []
        self.here = self.most = 0

    async def __call__(self, _: RecordedRequest) -> Reply:
        gate = asyncio.Event()
        self.gates.append(gate)
        self.here += 1
        self.most = max(self.most, self.here)
        await gate.wait()
        self.here -= 1
        return self.reply

    def let_go(self) -> None:
        """Answer all that are here."""
        for gate in self.gates:
            gate.set()


@asynccontextmanager
async def instances(
    *scripts: Reply | Provider, **options: Any
) -> AsyncIterator[tuple[RoutedService, list[FaultServer]]]:
    """Serve from one instance for each script, called `a`, `b` and so on; each takes one call unless it is said."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(FaultServer(each)) for each in scripts]
        urls = {name: server.url for name, server in zip("abcdef", servers, strict=False)}
        options = {"limits": ONE_EACH, "models": [PLAIN], "timeouts": PATIENT, **options}
        yield await stack.enter_async_context(routed_service(urls, **options)), servers


def load(service: RoutedService) -> list[int]:
    return [service.engine.admission.load.in_flight(name) for name in "ab"]


def asking(service: RoutedService, model: str = routed.ROUTED) -> asyncio.Task[modelmeter.Completion]:
    return asyncio.create_task(service.client.complete(model, "Hi", timeout=20))


async def here(*providers: Provider, number: int = 1) -> None:
    """Wait until each of them has so many requests."""
    await until(lambda: [each.here for each in providers] == [number] * len(providers))


def passed(answer: modelmeter.Completion | modelmeter.ModelmeterError) -> list[tuple[str, PassReason]]:
    return [(each.target, each.reason) for each in answer.passed_over]


async def test_two_calls_at_once_go_one_to_each_instance_and_the_second_says_why():
    a, b = Provider(), Provider()
    async with instances(a, b) as (service, _):
        first = asking(service)
        await here(a)
        second = asking(service)
        # Wherever it goes: one that came to `a` would be waited for at `b` in vain.
        await until(lambda: len(a.gates) + len(b.gates) == 2)
        assert (a.here, b.here, load(service)) == (1, 1, [1, 1])
        a.let_go()
        b.let_go()
        assert passed(await first) == []
        answer = await second
        await until(lambda: load(service) == [0, 0])
    assert (answer.target, passed(answer)) == ("b/m", [("a/m", PassReason.FULL)])
    assert answer.passed_over[0].detail == "`a` has as many calls as it may have"


async def test_a_third_call_waits_and_is_served_by_the_instance_that_is_free_first():
    a, b = Provider(), Provider()
    async with instances(a, b) as (service, servers):
        first = asking(service)
        await here(a)
        second = asking(service)
        await here(b)
        third = asking(service)
        await until(lambda: service.engine.admission.waiting == 1)
        b.let_go()
        assert (await second).target == "b/m"
        await until(lambda: len(b.gates) == 2)
        assert (a.most, b.most, load(service)) == (1, 1, [1, 1])
        a.let_go()
        b.let_go()
        answer = await third
        await first
    assert (answer.target, passed(answer)) == ("b/m", [("a/m", PassReason.FULL)])
    assert [len(server.requests) for server in servers] == [1, 2]


async def test_a_call_that_may_not_wait_hears_that_the_instances_are_full():
    a, b = Provider(), Provider()
    limits = AdmissionLimits(queued=0, targets={"a": 1, "b": 1})
    async with instances(a, b, limits=limits) as (service, _):
        calls = [asking(service), asking(service)]
        await here(a, b)
        with pytest.raises(modelmeter.OverloadedError, match="the target a allows 1"):
            await service.ask()
        a.let_go()
        b.let_go()
        await asyncio.gather(*calls)


async def test_a_plain_model_of_the_same_instance_takes_its_room_and_waits_for_it():
    a, b = Provider(), Provider()
    async with instances(a, b) as (service, _):
        plain = asking(service, "plain")
        await here(a)
        second = asking(service)
        await here(b)
        another = asking(service, "plain")
        await until(lambda: service.engine.admission.waiting == 1)
        b.let_go()
        assert passed(await second) == [("a/m", PassReason.FULL)]
        assert (service.engine.admission.waiting, load(service)) == (1, [1, 0])
        a.let_go()
        await plain
        await until(lambda: len(a.gates) == 2)
        a.let_go()
        await another
    assert a.most == 1


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_no_instance_ever_has_more_calls_than_its_limit(strategy):
    a, b = Provider(), Provider()
    limits = AdmissionLimits(targets={"a": 1, "b": 2})
    async with instances(a, b, limits=limits, strategy=strategy) as (service, servers):
        calls = [asking(service, ("plain", routed.ROUTED)[number % 2]) for number in range(24)]
        await until(lambda: (a.here, b.here, service.engine.admission.waiting) == (1, 2, 21))
        while not all(call.done() for call in calls):
            a.let_go()
            b.let_go()
            await asyncio.sleep(0)
        seen = Counter([(await call).target for call in calls])
        await until(lambda: load(service) == [0, 0])
    assert (a.most, b.most) == (1, 2)
    assert seen.total() == sum(len(server.requests) for server in servers) == 24


async def test_after_a_fallback_the_place_at_the_first_instance_is_free():
    b = Provider()
    async with instances(FAILING, b) as (service, servers):
        call = asking(service)
        await here(b)
        assert load(service) == [0, 1]
        servers[0].default = ANSWER
        assert (await service.client.complete("plain", "Hi", timeout=20)).text == "Hello."
        b.let_go()
        answer = await call
        await until(lambda: load(service) == [0, 0])
    assert [each.target for each in answer.attempts] == ["a/m", "b/m"]


async def test_who_waits_gets_the_place_that_a_fallback_gives_back():
    a, b = Provider(FAILING), Provider()
    limits = AdmissionLimits(targets={"a": 1})
    async with instances(a, b, limits=limits) as (service, _):
        call = asking(service)
        await here(a)
        plain = asking(service, "plain")
        await until(lambda: service.engine.admission.waiting == 1)
        a.let_go()
        await here(b)
        await until(lambda: len(a.gates) == 2)
        a.reply = ANSWER
        a.let_go()
        assert (await plain).text == "Hello."
        assert load(service) == [0, 1]
        b.let_go()
        await call


async def test_a_full_instance_is_no_fallback_and_the_first_one_is_asked_again():
    a, b = Provider(FAILING), Provider()
    plain = msgspec.structs.replace(PLAIN, provider="b")
    retry = RetryPolicy(max_attempts=2, initial_wait=0.0, max_wait=0.0)
    async with instances(a, b, models=[plain], retry=retry) as (service, _):
        held = asking(service, "plain")
        await here(b)
        call = asking(service)
        await here(a)
        a.let_go()
        await until(lambda: len(a.gates) == 2)
        a.let_go()
        with pytest.raises(modelmeter.UnavailableError) as caught:
            await call
        assert b.most == 1
        assert passed(caught.value) == [("b/m", PassReason.FULL)]
        b.let_go()
        await held


async def test_where_only_a_target_that_is_out_has_room_it_is_asked_all_the_same():
    b = Provider()
    rules = BreakerRules(failures=1, open_seconds=1000.0, probes=1)
    retry = RetryPolicy(max_attempts=1)
    async with instances(FAILING, b, rules=rules, retry=retry) as (service, servers):
        with pytest.raises(modelmeter.UnavailableError):
            await service.ask()
        assert service.targets.find("a/m").state is State.OPEN
        held = asking(service)
        await here(b)
        servers[0].default = ANSWER
        assert (await service.ask()).target == "a/m"
        b.let_go()
        await held


async def test_a_target_that_is_out_and_full_is_passed_over_as_full():
    a = Provider()
    rules = BreakerRules(failures=1, open_seconds=1000.0)
    retry = RetryPolicy(max_attempts=2)
    async with instances(FAILING, FAILING, rules=rules, retry=retry) as (service, servers):
        with pytest.raises(modelmeter.UnavailableError):
            await service.ask()
        assert [service.targets.find(f"{name}/m").state for name in "ab"] == [State.OPEN] * 2
        servers[0].default, servers[1].default = a, ANSWER
        held = asking(service, "plain")
        await here(a)
        answer = await service.ask()
        a.let_go()
        await held
    assert (answer.target, passed(answer)) == ("b/m", [("a/m", PassReason.FULL)])


@pytest.mark.parametrize("model", [routed.ROUTED, "plain"])
async def test_a_streaming_caller_that_leaves_frees_the_place(model):
    a = Provider()
    async with instances(a, limits=AdmissionLimits(targets={"a": 1})) as (service, _):
        async with service.client.stream(model, "Hi", timeout=20):
            await here(a)
            waiting = asking(service, model)
            await until(lambda: service.engine.admission.waiting == 1)
        await until(lambda: len(a.gates) == 2)
        a.let_go()
        assert (await waiting).text == "Hello."
        await until(lambda: load(service) == [0, 0])
        assert (service.engine.admission.placed, service.engine.calls_in_flight) == (0, 0)


# A call that is tried again


async def test_a_retried_call_keeps_its_one_place_while_it_waits_between_attempts():
    limits = AdmissionLimits(queued=0, targets={"a": 1})
    retry = RetryPolicy(max_attempts=2, initial_wait=0.5, max_wait=0.5)
    async with instances(FAILING, limits=limits, retry=retry) as (service, servers):
        call = asking(service)
        await until(functools.partial(between, service, servers[0]))
        assert (load(service), service.engine.admission.placed) == ([1, 0], 1)
        with pytest.raises(modelmeter.OverloadedError, match="the target a allows 1"):
            await service.client.complete("plain", "Hi", timeout=20)
        servers[0].default = ANSWER
        answer = await call
        await until(lambda: load(service) == [0, 0])
    assert [each.target for each in answer.attempts] == ["a/m", "a/m"]


def between(service: RoutedService, server: FaultServer) -> bool:
    """Say whether the first attempt has ended; the target counts what is asked, and not who waits."""
    return len(server.requests) == 1 and service.targets.find("a/m").running == 0


@pytest.mark.parametrize("allowed", [1, 2])
async def test_a_retried_call_is_one_request_of_the_rate_however_often_it_is_sent(allowed):
    rate = CallLimits(requests_per_minute=allowed)
    limits = AdmissionLimits(queued=0, models={routed.ROUTED: rate})
    retry = RetryPolicy(max_attempts=3, initial_wait=0.0, max_wait=0.0)
    async with instances(ANSWER, limits=limits, retry=retry) as (service, servers):
        servers[0].script([FAILING, FAILING])
        assert (await service.ask()).attempts_total == 3
        for _ in range(allowed - 1):
            await service.ask()
        with pytest.raises(modelmeter.OverloadedError, match="requests_per_minute"):
            await service.ask()
    assert len(servers[0].requests) == 2 + allowed


@pytest.mark.parametrize(
    "difference", [{"max_output_tokens": 16_000}, {"declared_reserve_factor": 400}], ids=str
)
async def test_a_rate_takes_what_the_dearest_of_the_targets_may_use(difference):
    a = Provider()
    rate = AdmissionLimits(queued=0, models={routed.ROUTED: CallLimits(tokens_per_minute=20_000)})
    changes = {"a": {"max_output_tokens": 100}, "b": {"max_output_tokens": 100} | difference}
    async with instances(a, ANSWER, limits=rate, changes=changes) as (service, _):
        first = asking(service)
        await here(a)
        with pytest.raises(modelmeter.OverloadedError, match="tokens_per_minute"):
            await service.ask()
        a.let_go()
        assert (await first).target == "a/m"
