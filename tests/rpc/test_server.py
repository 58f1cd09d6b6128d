"""The server around the services: health, reflection, addresses, options."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2 as typed_health_pb2
from grpc_health.v1 import health_pb2_grpc as typed_health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc.listen import ListenError, TlsFiles, is_loopback
from modelmeter_server.rpc.server import FLUSH_SECONDS, RpcServer, server_options
from modelmeter_server.rpc.services import LEDGER, SERVICE, check_handlers
from tests.support.running_server import MODEL, Memory, asking, serving
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, answering

# The type stubs are from before List and know no method of the stub.
health_pb2: Any = typed_health_pb2
health_pb2_grpc: Any = typed_health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def new_server() -> RpcServer:
    driver = ScriptedDriver(answering())
    return RpcServer(Engine(Catalog([MODEL]), {driver.name: driver}, Memory()))


@pytest.mark.parametrize("name", ["", SERVICE, LEDGER, "liveness", "readiness"])
async def test_health_is_told_by_service(name):
    async with serving(ScriptedDriver(answering())) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    assert answer.status == SERVING


async def test_an_unknown_service_has_no_health():
    async with serving(ScriptedDriver(answering())) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=5)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="nothing"), timeout=5)
        assert (await watch.read()).status == UNKNOWN
        watch.cancel()
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_lists_every_service():
    async with serving(ScriptedDriver(answering())) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        listed = await stub.List(health_pb2.HealthListRequest(), timeout=5)
    assert {name: status.status for name, status in listed.statuses.items()} == dict.fromkeys(
        ["", SERVICE, LEDGER, "liveness", "readiness"], SERVING
    )


async def test_a_drain_turns_readiness_off_and_liveness_not_and_ends_the_watches():
    hold = Hold()
    async with serving(ScriptedDriver([Written(), hold, *answering()[1:]])) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        watches = {
            name: stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=10)
            for name in ("readiness", "liveness")
        }
        seen = {name: [(await watch.read()).status] for name, watch in watches.items()}
        call = asyncio.ensure_future(running.stub.Complete(asking(), timeout=10))
        await hold.reached.wait()
        stopping = asyncio.create_task(running.server.stop(10))
        seen["readiness"].append((await watches["readiness"].read()).status)
        live = await stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=5)
        hold.go.set()
        async with asyncio.timeout(FLUSH_SECONDS / 2):
            await asyncio.gather(call, stopping)
        ends = [await watch.code() for watch in watches.values()]
    assert seen == {"readiness": [SERVING, NOT_SERVING], "liveness": [SERVING]}
    assert live.status == SERVING
    assert ends == [grpc.StatusCode.UNAVAILABLE] * 2


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_the_services_under_both_names(version):
    async with serving(ScriptedDriver(answering())) as running:
        ask = running.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        call: Any = ask(timeout=5)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = [service.name for service in (await call.read()).list_services_response.service]
        files = []
        for name in names:
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
            files.append((await call.read()).file_descriptor_response.file_descriptor_proto)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
    assert {SERVICE, "grpc.health.v1.Health"} < set(names)
    assert {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"} < set(names)
    assert all(files), "every listed service can be described"


async def test_a_port_in_use_is_an_error_that_names_the_address():
    async with serving(ScriptedDriver(answering())) as running:
        with pytest.raises(ListenError, match=f"cannot listen on {running.address}: another process"):
            await new_server().start([running.address])


async def test_a_reachable_address_without_tls_is_refused_unless_allowed():
    with pytest.raises(ListenError, match=r"will not listen on 0\.0\.0\.0:0 without TLS"):
        await new_server().start(["127.0.0.1:0", "0.0.0.0:0"])


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/m.sock", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.168.0.9:1", False),
        ("example.test:1", False),
    ],
)
def test_only_loopback_addresses_are_private(address, private):
    assert is_loopback(address) is private


async def test_a_server_listens_on_several_addresses(tmp_path):
    server = new_server()
    addresses = await server.start(["127.0.0.1:0", f"unix:{tmp_path}/m.sock"])
    try:
        for address in addresses:
            async with grpc.aio.insecure_channel(address) as channel:
                stub = model_service_pb2_grpc.ModelServiceStub(channel)
                assert (await stub.Complete(asking(), timeout=5)).completion.text == "Hello."
    finally:
        await server.stop(0)
    assert not addresses[0].endswith(":0")


async def test_a_server_speaks_tls(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    files = TlsFiles(tmp_path / "chain.pem", tmp_path / "key.pem")
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files.key.write_bytes(issued.private_key_pem.bytes())
    server = new_server()
    (address,) = await server.start(["localhost:0"], files)
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    try:
        async with grpc.aio.secure_channel(address, credentials) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            assert (await stub.Complete(asking(), timeout=5)).completion.text == "Hello."
    finally:
        await server.stop(0)


async def test_a_tls_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ListenError, match=r"missing\.pem"):
        await new_server().start(
            ["127.0.0.1:0"], TlsFiles(tmp_path / "missing.pem", tmp_path / "missing.pem")
        )


def test_quiet_streams_may_be_pinged_and_a_port_clash_is_an_error():
    options = dict(server_options())
    assert options["grpc.so_reuseport"] == 0
    assert options["grpc.keepalive_permit_without_calls"] == 1
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= 10_000
    assert options["grpc.http2.min_recv_ping_interval_without_data_ms"] <= 10_000
    assert options["grpc.max_send_message_length"] == -1
    assert dict(server_options(reuse_port=True))["grpc.so_reuseport"] == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_a_handler_that_is_not_a_coroutine_function_stops_the_start(streaming):
    class Plain:
        async def Complete(self, request, context): ...
        async def ListModels(self, request, context): ...
        async def GetModel(self, request, context): ...

        def StreamComplete(self, request, context):
            yield from ()

    if streaming:

        async def stream(self, request, context):
            yield None

        Plain.StreamComplete = stream  # type: ignore[method-assign]  # the other wrong shape
    with pytest.raises(TypeError, match=r"Plain\.StreamComplete is not a coroutine function"):
        check_handlers(Plain(), model_service_pb2.DESCRIPTOR.services_by_name["ModelService"])
