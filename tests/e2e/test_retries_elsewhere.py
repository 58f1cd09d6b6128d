"""Retries beyond completions over HTTP that was reached: no connection, vectors, counts, what telemetry hears."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import modelmeter
from modelmeter import ErrorKind, ModelmeterError, RetryPolicy
from modelmeter_server.config.secret import Secret
from modelmeter_server.core.events import AttemptEnded, Retried
from modelmeter_server.core.models import Task
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.bus import EventFilter
from modelmeter_server.telemetry.observation import Telemetry
from tests.conformance.asking import ask
from tests.e2e.retry_service import MODEL, model, requests_of, tried
from tests.support.fault_server import Authority, FaultServer, NobodyListens, Reply
from tests.support.ledgers import ledger_in, rows_of
from tests.support.provider_service import provider_service
from tests.support.retry_faults import reply
from tests.support.running_server import Memory

VECTORS = {
    "object": "list",
    "model": "e-1",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}],
    "usage": {"prompt_tokens": 9, "total_tokens": 9},
}


async def ends_with(driver: HttpDriver, *, attempts: int) -> ModelmeterError:
    """Ask through this driver once, and return how that failed."""
    spec = model("anthropic", max_attempts=attempts)
    server = RpcServer(Engine(Catalog([spec]), {"anthropic": driver}, Memory()))
    (address,) = await server.start(["127.0.0.1:0"])
    try:
        async with modelmeter.AsyncClient(address) as client:
            with pytest.raises(ModelmeterError) as caught:
                await client.complete(MODEL, "Hi")
            return caught.value
    finally:
        await server.stop(0)
        await driver.aclose()


async def test_a_provider_that_nobody_can_connect_to_is_tried_as_often_as_the_policy_says():
    with NobodyListens() as nowhere:
        driver = HttpDriver(
            "anthropic", WIRE_FORMATS["anthropic"], Endpoint.parse(nowhere.url), Secret("sk-test")
        )
        error = await ends_with(driver, attempts=4)
    assert (error.kind, error.attempts_total) == (ErrorKind.UNREACHABLE, 4)
    assert {each.stage.name for each in error.attempts} == {"NOT_WRITTEN"}


async def test_a_certificate_that_is_wrong_is_looked_at_once():
    async with FaultServer(tls=Authority().server()) as provider:
        driver = HttpDriver(
            "anthropic", WIRE_FORMATS["anthropic"], Endpoint.parse(provider.url), Secret("sk-test")
        )
        error = await ends_with(driver, attempts=4)
    assert (error.kind, error.attempts_total) == (ErrorKind.UNREACHABLE, 1)


async def test_vectors_are_asked_for_again_by_the_same_policy(tmp_path: Path):
    spec = msgspec.structs.replace(model("openai_responses", max_attempts=3), task=Task.EMBEDDING)
    answer = Reply(chunks=[json.dumps(VECTORS).encode()])
    async with (
        ledger_in(tmp_path) as ledger,
        FaultServer(answer) as provider,
        provider_service(provider, models=[spec], ledger=ledger) as service,
    ):
        provider.script([reply("openai_responses", name) for name in ("limited", "away")])
        vectors = await service.client.embed(MODEL, ["a"])
        assert (vectors.attempts_total, len(provider.requests)) == (3, 3)
        provider.script([reply("openai_responses", "limited")])
        with pytest.raises(ModelmeterError) as caught:
            await service.client.embed(MODEL, ["b"], retry_policy=RetryPolicy(1))
        assert caught.value.kind is ErrorKind.RATE_LIMITED
        rows = await rows_of(ledger)
    assert [row.booking.settled_tokens for row in rows] == [0, 9]


async def test_more_attempts_for_vectors_than_the_model_allows_are_refused_by_name():
    spec = msgspec.structs.replace(model("openai_responses", max_attempts=2), task=Task.EMBEDDING)
    async with FaultServer() as provider, provider_service(provider, models=[spec]) as service:
        with pytest.raises(ModelmeterError) as caught:
            await service.client.embed(MODEL, ["a"], retry_policy=RetryPolicy(3))
        assert [each.field for each in caught.value.violations] == ["retry_policy.max_attempts"]
        assert provider.requests == []


async def test_a_count_is_asked_for_again_as_well():
    async with tried("anthropic", ["limited"], max_attempts=2) as service:
        service.provider.default = Reply(chunks=[b'{"input_tokens": 7}'])
        count = await service.client.count_tokens(MODEL, "Hi")
        assert (count.input_tokens, requests_of(service)) == (7, 2)


async def test_events_and_counters_tell_each_attempt_and_each_retry():
    telemetry = Telemetry()
    everything = EventFilter(tenant="default")
    telemetry.bus.watch(everything)
    async with tried("anthropic", ["limited", "away"], max_attempts=3) as service:
        service.engine.telemetry = telemetry
        heard = await ask(service.client, "unary", MODEL, "Hi")
    assert heard.kind == "COMPLETION"
    events = telemetry.bus.recent(everything, before=None, limit=100)[::-1]
    assert [each.number for each in events if isinstance(each, Retried)] == [2, 3]
    ended = [each for each in events if isinstance(each, AttemptEnded)]
    assert [(each.number, each.error_kind) for each in ended] == [
        (1, Kind.RATE_LIMITED),
        (2, Kind.UNAVAILABLE),
        (3, None),
    ]
