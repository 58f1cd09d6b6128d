"""Callers that send what no client of ours would: names with line ends, huge metadata, half a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import trustme

import modelmeter
from modelmeter.v1 import model_service_pb2_grpc
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc import server as rpc_server
from modelmeter_server.rpc.server import RpcServer
from tests.client.faces import face
from tests.support.certificates import trusting, write_server
from tests.support.fault_server import FaultServer
from tests.support.identities import bearer, gated
from tests.support.running_server import MODEL, Details, Memory, asking, serving
from tests.support.scripted_driver import ScriptedDriver, answering

KINDS = sorted(WIRE_FORMATS)
PLANTED = "\r\nx-injected: yes\r\nauthorization: Bearer stolen\r\n\r\nGET /second HTTP/1.1\r\n"
PATHS = (
    "../../secrets",
    "..",
    "a/../../b",
    "a?b=c#d",
    "%2e%2e/%2e%2e",
    "a%0d%0ab",
    "//evil.test/x",
    "\\..\\x",
)


async def sent_heads(kind: str, **fields: object) -> tuple[list[str], list[str]]:
    """Ask a direct model of a provider; return the targets that it saw, and the names of all headers."""
    async with FaultServer() as provider:
        driver = HttpDriver("own", WIRE_FORMATS[kind], Endpoint.parse(provider.url), None)
        catalog = Catalog([], {"own": (driver.kind, driver.capabilities)})
        server = RpcServer(Engine(catalog, {"own": driver}, Memory()))
        (address,) = await server.start(["127.0.0.1:0"])
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                stub = model_service_pb2_grpc.ModelServiceStub(channel)
                call = stub.Complete(asking(**fields), timeout=10)  # type: ignore[arg-type]  # of any field
                await call.code()
        finally:
            await server.stop(0)
            await driver.aclose()
        requests = provider.requests
    return [each.target for each in requests], [name for each in requests for name in each.headers]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_model_name_adds_no_header_and_no_request(kind):
    for name in (f"own/m{PLANTED}", "own/m\r\n", "own/m\nx", "own/m\x00", "own/m\u2028x"):
        targets, _ = await sent_heads(kind, model=name)
        assert targets == [], name


@pytest.mark.parametrize("kind", KINDS)
async def test_a_model_name_leads_to_no_other_address(kind):
    for name in PATHS:
        targets, headers = await sent_heads(kind, model=f"own/{name}")
        assert len(targets) <= 1
        for target in targets:
            path = target.partition("?")[0]
            assert ".." not in path.replace("%2E", ".").replace("%2e", ".").split("/"), name
            assert not path.startswith("//")
        assert not [header for header in headers if "inject" in str(header)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "fields",
    [
        {"provider_options_json": '{"headers": {"x-injected": "yes"}, "extra_headers": {"x-injected": "1"}}'},
        {"provider_options_json": '{"anthropic_beta": "a\\r\\nx-injected: yes"}'},
        {"end_user_id": "u\r\nx-injected: yes"},
        {"system": PLANTED},
        {"labels": {"k": PLANTED}},
        {"stop_sequences": [PLANTED]},
    ],
)
async def test_no_field_of_a_request_becomes_a_header(kind, fields):
    targets, headers = await sent_heads(kind, model="own/m", **fields)
    assert len(targets) <= 1
    assert not [name for name in headers if "inject" in str(name).lower()]


async def test_a_model_name_with_line_ends_is_told_back_on_one_line():
    async with serving(ScriptedDriver(answering())) as running:
        error = await running.error(model=f"own/m{PLANTED}")
    assert error.code() is grpc.StatusCode.NOT_FOUND
    details = Details(error)
    assert set(details.metadata) == {"grpc-status-details-bin"}


# Metadata


@pytest.mark.parametrize("size", [64 * 1024, 1024 * 1024])
async def test_oversized_metadata_is_refused_and_harms_nobody_else(tmp_path, size):
    async with gated(tmp_path) as gate:
        stub = gate.running.stub
        for metadata in (bearer("a" * size), (("x-padding", "a" * size), *bearer(gate.acme))):
            call = stub.Complete(asking(), timeout=10, metadata=metadata)
            assert await call.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        good = await stub.Complete(asking(), timeout=10, metadata=bearer(gate.acme))
    assert good.completion.text == "Hello."
    assert len(gate.running.driver.calls) == 1


async def test_a_token_of_ordinary_length_is_never_too_large(tmp_path):
    """Identity providers issue JWTs of several kilobytes: all of them must reach the gate."""
    async with gated(tmp_path) as gate:
        token = gate.issuer.token(groups=[f"group-{number:04d}" for number in range(300)])
        assert 5_000 < len(token) < 8_000
        answers = [
            await gate.running.stub.Complete(asking(), timeout=10, metadata=bearer(token)) for _ in range(20)
        ]
    assert {answer.completion.text for answer in answers} == {"Hello."}


async def test_a_large_request_of_nobody_is_not_read(tmp_path):
    async with gated(tmp_path) as gate:
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(gate.address, options=options) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            call = stub.Complete(asking("x" * 40_000_000), timeout=20)
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert gate.running.driver.calls == []


# Many at once


async def test_no_call_of_a_burst_is_cancelled(tmp_path):
    """Each is served, or refused with a reason: CANCELLED would leave open whether it was bought."""
    async with gated(tmp_path) as gate, contextlib.AsyncExitStack() as stack:
        stubs = []
        for number in range(10):
            options = [("grpc.use_local_subchannel_pool", 1), ("test.number", number)]
            channel = grpc.aio.insecure_channel(gate.address, options=options)
            stubs.append(model_service_pb2_grpc.ModelServiceStub(await stack.enter_async_context(channel)))
        metadata = bearer(gate.acme)
        calls = [stubs[each % 10].Complete(asking(), timeout=60, metadata=metadata) for each in range(3_000)]
        codes = {await each.code() for each in calls}
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grpc.StatusCode.OK in codes


# Slow connections


async def opened(address: str, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    return [await asyncio.open_connection(host, int(port)) for _ in range(count)]


@pytest.mark.parametrize("first", [b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_connections_that_say_nothing_are_closed_and_others_are_served(monkeypatch, tmp_path, first):
    monkeypatch.setattr(rpc_server, "HANDSHAKE_TIMEOUT_MS", 500)
    async with gated(tmp_path) as gate:
        slow = await opened(gate.address, 100)
        for _, writer in slow:
            writer.write(first)
        good = await gate.running.stub.Complete(asking(), timeout=5, metadata=bearer(gate.acme))
        assert good.completion.text == "Hello."
        async with asyncio.timeout(15):
            ends = await asyncio.gather(*(_end(reader) for reader, _ in slow))
        for _, writer in slow:
            writer.close()
    assert set(ends) == {"closed"}


async def _end(reader: asyncio.StreamReader) -> str:
    try:
        while await reader.read(4096):
            pass
    except ConnectionResetError:
        pass
    return "closed"


@pytest.mark.parametrize("way", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_request_may_be_compressed_and_one_that_swells_beyond_the_limit_is_refused(way):
    bomb = bytes(4 * rpc_server.RECEIVE_BYTES)
    options = [("grpc.max_send_message_length", -1)]
    async with (
        serving(ScriptedDriver(answering())) as running,
        grpc.aio.insecure_channel(running.address, options, compression=way) as channel,
    ):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        assert (await stub.Complete(asking("Hi" * 10_000), timeout=10)).completion.text == "Hello."
        send: Any = channel.unary_unary("/modelmeter.v1.ModelService/Complete")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await send(bomb, timeout=20)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Complete(asking(), timeout=10)).completion.text == "Hello."
        assert len(running.driver.calls) == 2


async def _ask_until_refused(client: Any) -> None:
    for _ in range(300):
        await client.complete("claude", "Hi")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_rpcs_that_send_no_request_are_bounded_and_others_hear_that_nothing_was_bought(kind):
    async def never() -> AsyncIterator[bytes]:
        await asyncio.get_running_loop().create_future()
        yield b""

    async with serving(ScriptedDriver(answering()), rpc={"most_rpcs": 20}) as running:
        open_one: Any = running.channel.stream_unary("/modelmeter.v1.ModelService/Complete")
        async with face(kind, running.address) as client:
            await client.models()
            idle = [open_one(never()) for _ in range(20)]
            with pytest.raises(modelmeter.OverloadedError, match="too many RPCs open") as caught:
                await _ask_until_refused(client)
            assert (caught.value.certainty, caught.value.retryable) == (modelmeter.Certainty.NONE, True)
            for each in idle:
                each.cancel()
            while True:  # until it has seen them go
                try:
                    assert (await client.complete("claude", "Hi")).text == "Hello."
                    break
                except modelmeter.OverloadedError:
                    continue


async def test_half_a_tls_handshake_is_closed_and_others_are_served(monkeypatch, tmp_path):
    monkeypatch.setattr(rpc_server, "HANDSHAKE_TIMEOUT_MS", 500)
    authority = trustme.CA()
    driver = ScriptedDriver(answering())
    server = RpcServer(Engine(Catalog([MODEL]), {driver.name: driver}, Memory()))
    (address,) = await server.start(["localhost:0"], write_server(tmp_path, authority))
    try:
        slow = await opened(address, 50)
        for _, writer in slow:
            writer.write(_hello()[:60])
        async with grpc.aio.secure_channel(address, trusting(authority)) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            assert (await stub.Complete(asking(), timeout=5)).completion.text == "Hello."
        async with asyncio.timeout(15):
            assert set(await asyncio.gather(*(_end(reader) for reader, _ in slow))) == {"closed"}
        for _, writer in slow:
            writer.close()
    finally:
        await server.stop(0)


def _hello() -> bytes:
    """Return the first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def test_the_time_for_a_handshake_is_told_to_grpc():
    options = dict(rpc_server.server_options())
    assert options["grpc.server_handshake_timeout_ms"] == rpc_server.HANDSHAKE_TIMEOUT_MS <= 30_000
