"""The listener for operators: channelz is there and nowhere else, and who may ask is not left open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trustme
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc
from modelmeter_server.app import App
from modelmeter_server.config import load
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc import server as rpc_server
from modelmeter_server.rpc.gate import Gate, keeper
from modelmeter_server.rpc.health import HealthService
from modelmeter_server.rpc.listen import ListenError
from modelmeter_server.rpc.private import CHANNELZ, PrivateServer
from tests.support.certificates import trusting, write_server
from tests.support.identities import TENANTS, bearer

REST = '[ledger]\nurl = "none"\n[providers.p]\nkind = "replay"\nallow_direct_models = true\n'
PRIVATE = 'listen = "127.0.0.1:0"\nprivate_listen = "127.0.0.1:0"\n'
IDENTITY = '[identity]\ntokens_file = "tokens.json"\n[tenants.ops]\nadmin = true\n[tenants.acme]\n'


@pytest.fixture
def running(tmp_path):
    """Return a context manager that serves a `[server]` section: the app, its public and its private channel."""

    @asynccontextmanager
    async def serve(
        server: str, rest: str = REST
    ) -> AsyncIterator[tuple[App, grpc.aio.Channel, grpc.aio.Channel]]:
        (tmp_path / "m.toml").write_text(f"[server]\n{server}\n{rest}")
        app = App(load(tmp_path / "m.toml", {}))
        (address,) = await app.start()
        async with (
            grpc.aio.insecure_channel(address) as public,
            grpc.aio.insecure_channel(app.private_address) as private,
        ):
            yield app, public, private
        await app.stop(0)

    return serve


async def servers(channel: grpc.aio.Channel, **options: Any) -> Any:
    """Ask channelz for the servers of the process."""
    ask = channel.unary_unary(
        f"/{CHANNELZ}/GetServers",
        request_serializer=channelz_pb2.GetServersRequest.SerializeToString,
        response_deserializer=channelz_pb2.GetServersResponse.FromString,
    )
    return await ask(channelz_pb2.GetServersRequest(), timeout=5, **options)


async def status(channel: grpc.aio.Channel, service: str) -> int:
    ask = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    return (await ask(health_pb2.HealthCheckRequest(service=service), timeout=5)).status


async def services(channel: grpc.aio.Channel) -> set[str]:
    """Return the services that reflection names."""
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    call: Any = ask(timeout=5)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {each.name for each in (await call.read()).list_services_response.service}
    call.cancel()
    return names


async def list_tenants(channel: grpc.aio.Channel, **options: Any) -> Any:
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    return await stub.ListTenants(admin_service_pb2.ListTenantsRequest(), timeout=5, **options)


async def code(asked: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    return caught.value.code()


async def test_channelz_tells_of_both_servers_on_the_private_listener(running):
    async with running(PRIVATE) as (_, _, private):
        found = (await servers(private)).server
    assert len(found) >= 2
    assert any(each.data.calls_started for each in found)


async def test_channelz_is_not_on_the_public_listener(running):
    async with running(PRIVATE) as (_, public, private):
        assert await code(servers(public)) is grpc.StatusCode.UNIMPLEMENTED
        assert CHANNELZ not in await services(public)
        assert CHANNELZ in await services(private)


async def test_the_private_listener_tells_the_health_of_the_public_server(running):
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    async with running(PRIVATE) as (app, _, private):
        assert await status(private, "readiness") == serving
        app.server.stop_serving()
        assert await status(private, "readiness") == not_serving
        assert await status(private, "liveness") == serving


@pytest.mark.parametrize(("place", "expected"), [("public", "10"), ("private", "01"), ("both", "11")])
async def test_the_admin_service_is_where_the_configuration_says(running, place, expected):
    async with running(f'{PRIVATE}admin_service = "{place}"') as (_, *channels):
        for channel, is_there in zip(channels, expected, strict=True):
            assert ("modelmeter.v1.AdminService" in await services(channel)) is (is_there == "1")
            if is_there == "1":
                assert (await list_tenants(channel)).tenants
            else:
                assert await code(list_tenants(channel)) is grpc.StatusCode.UNIMPLEMENTED


async def test_on_this_machine_nobody_is_asked_but_for_what_admins_do(running, tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    _, ops = tokens.create("ops")
    _, acme = tokens.create("acme")
    async with running(f'{PRIVATE}admin_service = "private"', REST + IDENTITY) as (_, _, private):
        assert (await servers(private)).server
        assert await services(private)
        assert await code(list_tenants(private)) is grpc.StatusCode.UNAUTHENTICATED
        denied = await code(list_tenants(private, metadata=bearer(acme)))
        assert denied is grpc.StatusCode.PERMISSION_DENIED
        assert (await list_tenants(private, metadata=bearer(ops))).tenants


async def test_where_others_reach_it_channelz_is_for_admins_over_tls(tmp_path, monkeypatch):
    authority, tokens = trustme.CA(), TokenFile(tmp_path / "t.json")
    _, ops = tokens.create("ops")
    _, acme = tokens.create("acme")
    gate = Gate(keeper(CallerAuthenticator(TENANTS, tokens=tokens)))
    # No address that others reach may be bound in a test: the loopback plays one.
    monkeypatch.setattr("modelmeter_server.rpc.private.is_loopback", lambda _address: False)
    server = PrivateServer("localhost:0", gate, HealthService(), None)
    address = await server.start(write_server(tmp_path, authority), allow_insecure=False)
    async with grpc.aio.secure_channel(address, trusting(authority)) as channel:
        assert await code(servers(channel)) is grpc.StatusCode.UNAUTHENTICATED
        assert await code(servers(channel, metadata=bearer(acme))) is grpc.StatusCode.PERMISSION_DENIED
        assert (await servers(channel, metadata=bearer(ops))).server
    await server.stop()


async def test_other_machines_do_not_reach_it_in_the_clear_unless_that_is_said():
    server = PrivateServer("0.0.0.0:0", Gate(keeper(None)), HealthService(), None)
    with pytest.raises(ListenError, match="without TLS"):
        await server.start(None, allow_insecure=False)
    await server.stop()


async def test_a_private_listener_may_be_a_unix_socket(running, tmp_path):
    async with running(f'listen = "127.0.0.1:0"\nprivate_listen = "unix:{tmp_path}/private"') as (
        *_,
        private,
    ):
        assert (await servers(private)).server


async def test_a_private_connection_that_says_nothing_is_closed_too(running, monkeypatch):
    monkeypatch.setattr(rpc_server, "HANDSHAKE_TIMEOUT_MS", 300)
    async with running(PRIVATE) as (app, _, private):
        host, _, port = app.private_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(10):
            while await reader.read(4096):
                pass
        writer.close()
        assert (await servers(private)).server
