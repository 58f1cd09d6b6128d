"""The composition root: from settings to a server that answers, drains on a signal and comes to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec
import pytest

import modelmeter
from modelmeter.v1 import error_pb2, model_service_pb2, model_service_pb2_grpc
from modelmeter_server import app, parts, serving
from modelmeter_server.config import ConfigError, KeySettings, ProviderSettings, Secret, load
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.replay import ReplayDriver
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc.listen import ListenError
from tests.support.running_server import Details, Memory, asking, read_all, streaming
from tests.support.unreliable_way import UnreliableWay

NO_LEDGER = {"MODELMETER_LEDGER_URL": "none"}
SETTINGS = load(None, NO_LEDGER, listen=["127.0.0.1:0"])


async def asked(address: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something with a stub for this address."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await ask(model_service_pb2_grpc.ModelServiceStub(channel))


async def test_the_built_in_configuration_answers_and_lists_its_models():
    memory = Memory()
    async with app.running(SETTINGS, memory) as (address,):
        answer = await asked(address, lambda stub: stub.Complete(asking(model="replay/answer"), timeout=5))
        request = model_service_pb2.ListModelsRequest()
        models = await asked(address, lambda stub: stub.ListModels(request, timeout=5))
    assert answer.completion.text
    assert answer.completion.HasField("cost")
    assert "replay/answer" in [model.name for model in models.models]
    assert [outcome.call_id for outcome in memory.outcomes] == [answer.completion.call_id]


async def test_connections_become_as_old_as_the_configuration_lets_them():
    young = msgspec.structs.replace(SETTINGS.server, max_connection_age_seconds=0.2)
    before, after = Memory(), Memory()
    async with (
        app.running(msgspec.structs.replace(SETTINGS, server=young), before) as (old,),
        app.running(SETTINGS, after) as (new,),
        UnreliableWay(int(old.rpartition(":")[2])) as balancer,
        modelmeter.AsyncClient(balancer.url.removeprefix("http://")) as client,
    ):
        await client.complete("replay/answer", "Hi")
        balancer.lead_to(int(new.rpartition(":")[2]))
        async with asyncio.timeout(10):
            while not after.outcomes:
                await client.complete("replay/answer", "Hi")
    assert before.outcomes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_server_and_ends_it(number):
    addresses: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.create_task(serving.serve(SETTINGS, lambda bound: addresses.set_result(bound[0])))
    async with grpc.aio.insecure_channel(await addresses) as channel:
        call: Any = model_service_pb2_grpc.ModelServiceStub(channel).StreamComplete(
            streaming(model="replay/drip"), timeout=20
        )
        await call.read()
        os.kill(os.getpid(), number)
        events, error = await read_all(call)
    assert error is None
    assert events[-1].HasField("completion")
    await ended


async def test_a_second_signal_cuts_what_is_left():
    addresses: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.create_task(serving.serve(SETTINGS, lambda bound: addresses.set_result(bound[0])))
    async with grpc.aio.insecure_channel(await addresses) as channel:
        call: Any = model_service_pb2_grpc.ModelServiceStub(channel).StreamComplete(
            streaming(model="replay/stall"), timeout=20
        )
        await call.read()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        _, error = await read_all(call)
    await ended
    assert error is not None
    assert Details(error).model_error.cause == error_pb2.CAUSE_DRAIN


async def test_a_server_that_stops_closes_its_providers_connections(monkeypatch):
    closed: list[str] = []

    async def aclose(driver: ReplayDriver) -> None:
        closed.append(driver.name)

    monkeypatch.setattr(ReplayDriver, "aclose", aclose)
    async with app.running(SETTINGS):
        assert closed == []
    assert closed == ["replay"]


async def test_a_port_in_use_is_told_and_leaves_nothing_open():
    async with app.running(SETTINGS) as (address,):
        taken = load(None, NO_LEDGER, listen=[address])
        with pytest.raises(ListenError, match="another process has the port"):
            await serving.serve(taken)


def test_a_provider_instance_gets_the_driver_of_its_kind():
    settings = ProviderSettings(
        name="claude",
        kind="anthropic",
        base_url="https://api.example.test/v1",
        keys=(KeySettings(value=Secret("sk-secret")),),
    )
    driver = parts.make_driver(settings)
    assert isinstance(driver, HttpDriver)
    assert (driver.name, driver.kind) == ("claude", "anthropic")


def test_direct_names_are_served_where_the_provider_allows_them():
    (provider,) = SETTINGS.providers
    drivers = {provider.name: parts.make_driver(provider)}
    closed = msgspec.structs.replace(SETTINGS, models=())
    allowed = msgspec.structs.replace(provider, allow_direct_models=True)
    opened = msgspec.structs.replace(closed, providers=(allowed,))
    assert parts.make_catalog(closed, drivers).find("replay/answer") is None
    model = parts.make_catalog(opened, drivers).find("replay/answer")
    assert model is not None
    assert model.provider_model == "answer"


def test_mistakes_in_the_configuration_are_raised_before_anything_runs():
    with pytest.raises(ConfigError):
        load(None, {}, listen=["nowhere"])


async def test_ceilings_of_the_configuration_bind_from_the_start(tmp_path):
    token = TokenFile(tmp_path / "tokens.json").create("acme")[1]
    file = tmp_path / "m.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\n[providers.p]\nkind = "replay"\nallow_direct_models = true\n'
        '[identity]\ntokens_file = "tokens.json"\n[tenants.acme]\nceilings = [{ tokens = 1 }]\n'
    )
    kept = None
    for _ in range(2):
        async with (
            app.running(load(file, {})) as addresses,
            modelmeter.AsyncClient(addresses[0], token=token) as client,
        ):
            with pytest.raises(modelmeter.CeilingError):
                await client.complete("p/answer", "Hi")
            (kept,) = await client.ledger.ceilings()
    assert kept is not None
    assert (kept.tokens, kept.by_admin) == (1, True)
