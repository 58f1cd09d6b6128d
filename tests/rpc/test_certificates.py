"""Certificates: replaced under load without a failed handshake, and client certificates that stand for tenants."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
import trustme
from structlog.testing import capture_logs

from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc.listen import ListenError, TlsFiles
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.observation import Telemetry
from tests.support.certificates import trusting, unshared, write_server
from tests.support.identities import TENANTS, bearer, every_method
from tests.support.odd_certificates import OddAuthority
from tests.support.running_server import MODEL, Memory, asking, read_all
from tests.support.scripted_driver import ScriptedDriver, answering

NUMBERS = itertools.count()


@asynccontextmanager
async def serving_tls(
    files: TlsFiles, authenticator: CallerAuthenticator | None = None
) -> AsyncIterator[str]:
    async with tls_server(files, authenticator) as (_, address):
        yield address


@asynccontextmanager
async def tls_server(
    files: TlsFiles, authenticator: CallerAuthenticator | None = None
) -> AsyncIterator[tuple[RpcServer, str]]:
    driver = ScriptedDriver(answering())
    engine = Engine(Catalog([MODEL]), {driver.name: driver}, Memory(), telemetry=Telemetry())
    server = RpcServer(engine, authenticator=authenticator)
    (address,) = await server.start(["localhost:0"], files)
    try:
        yield server, address
    finally:
        await server.stop(0)


async def handshake(
    address: str, credentials: grpc.ChannelCredentials, metadata: tuple[tuple[str, str], ...] = ()
) -> grpc.StatusCode:
    """Make one call over a new connection; return its code."""
    options = unshared(next(NUMBERS))
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        return await stub.Complete(asking(), timeout=10, metadata=metadata).code()


OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_is_swapped_under_load_without_a_failed_handshake(tmp_path):
    old, new = trustme.CA(), trustme.CA()
    files = write_server(tmp_path, old)
    codes: list[grpc.StatusCode] = []
    ended: asyncio.Queue[None] = asyncio.Queue()
    swapped = asyncio.Event()

    async def load(address: str) -> None:
        both = trusting(old, new)
        while not swapped.is_set():
            codes.append(await handshake(address, both))
            ended.put_nowait(None)

    async with serving_tls(files) as address:
        assert await handshake(address, trusting(new)) is UNAVAILABLE
        workers = [asyncio.create_task(load(address)) for _ in range(4)]
        for authority in (new, old, new):
            write_server(tmp_path, authority)
            for _ in range(8):
                await ended.get()
        swapped.set()
        await asyncio.gather(*workers)
        assert await handshake(address, trusting(new)) is OK
        assert await handshake(address, trusting(old)) is UNAVAILABLE
    assert len(codes) >= 24
    assert set(codes) == {OK}


async def test_calls_under_way_outlive_the_certificate_that_they_began_under(tmp_path):
    old, new = trustme.CA(), trustme.CA()
    async with (
        serving_tls(write_server(tmp_path, old)) as address,
        grpc.aio.secure_channel(address, trusting(old), unshared(next(NUMBERS))) as channel,
    ):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        await stub.Complete(asking(), timeout=10)
        write_server(tmp_path, new)
        assert await handshake(address, trusting(new)) is OK
        assert (await stub.Complete(asking(), timeout=10)).completion.text == "Hello."


@pytest.mark.parametrize("damage", ["no key", "another key", "no certificate", "gone"])
async def test_files_that_do_not_fit_leave_the_certificate_as_it_is_until_they_do(tmp_path, damage):
    old, new = trustme.CA(), trustme.CA()
    files = write_server(tmp_path, old)
    async with serving_tls(files) as address:
        if damage == "another key":
            files.key.write_bytes(new.issue_cert("localhost").private_key_pem.bytes())
        elif damage == "gone":
            files.certificate.unlink()
        else:
            (files.key if damage == "no key" else files.certificate).write_text("nothing")
        assert [await handshake(address, trusting(old)) for _ in range(3)] == [OK] * 3
        write_server(tmp_path, new)
        assert await handshake(address, trusting(new)) is OK


async def test_a_link_that_points_elsewhere_is_a_new_certificate(tmp_path):
    """Kubernetes replaces a mounted secret by turning one symbolic link."""
    authorities = {"one": trustme.CA(), "two": trustme.CA()}
    for name, authority in authorities.items():
        (tmp_path / name).mkdir()
        write_server(tmp_path / name, authority)
    data = tmp_path / "data"
    data.symlink_to("one")
    files = TlsFiles(data / "server.pem", data / "server.key")
    async with serving_tls(files) as address:
        assert await handshake(address, trusting(authorities["one"])) is OK
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(data)
        assert await handshake(address, trusting(authorities["two"])) is OK
        assert await handshake(address, trusting(authorities["one"])) is UNAVAILABLE


async def test_only_what_is_new_is_told_as_renewed(tmp_path):
    old, new = trustme.CA(), trustme.CA()
    files = write_server(tmp_path, old)
    (tmp_path / "other").mkdir()
    others = write_server(tmp_path / "other", new)
    async with tls_server(files) as (server, address):
        with capture_logs() as logs:
            server.reconfigure(None, files)
            assert await handshake(address, trusting(old)) is OK
            assert logs == []
            server.reconfigure(None, others)
            assert await handshake(address, trusting(new)) is OK
    assert [line["event"] for line in logs] == ["the certificate was renewed"]


# Client certificates


@pytest.fixture(scope="module")
def authorities():
    return trustme.CA(), trustme.CA()


def by_certificate() -> CallerAuthenticator:
    names = {"dns:agent.acme.test": "acme", "cn:operator": "ops", "uri:spiffe://acme.test/agent": "acme"}
    return CallerAuthenticator(TENANTS, certificates=names)


async def test_a_client_certificate_stands_for_a_tenant_on_every_method(tmp_path, authorities):
    servers, clients = authorities
    files = write_server(tmp_path, servers, clients)
    agent = clients.issue_cert("agent.acme.test")
    stranger = clients.issue_cert("agent.other.test", common_name="agent.acme.test")
    operator = clients.issue_cert("someone.test", common_name="operator")
    seen: dict[str, set[grpc.StatusCode]] = {}
    async with serving_tls(files, by_certificate()) as address:
        for name, own in (("agent", agent), ("stranger", stranger), ("operator", operator)):
            credentials = trusting(servers, own=own)
            async with grpc.aio.secure_channel(address, credentials, unshared(next(NUMBERS))) as channel:
                seen[name] = {await method.code(channel) for method in every_method()}
    unauthenticated, denied = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    assert seen["stranger"] == {unauthenticated}
    assert {OK, denied} <= seen["agent"]
    assert unauthenticated not in seen["agent"] | seen["operator"]
    assert OK in seen["operator"]


async def test_streams_of_a_certificate_run_as_its_tenant(tmp_path, authorities):
    servers, clients = authorities
    files = write_server(tmp_path, servers, clients)
    own = trusting(servers, own=clients.issue_cert("agent.acme.test"))
    async with (
        serving_tls(files, by_certificate()) as address,
        grpc.aio.secure_channel(address, own, unshared(next(NUMBERS))) as channel,
    ):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        for model, code in (("claude", OK), ("gpt", grpc.StatusCode.PERMISSION_DENIED)):
            request = model_service_pb2.StreamCompleteRequest(request=asking(model=model))
            call = stub.StreamComplete(request, timeout=10)
            await read_all(call)
            assert await call.code() is code


async def test_no_certificate_or_one_of_another_authority_is_no_connection(tmp_path, authorities):
    servers, clients = authorities
    files = write_server(tmp_path, servers, clients)
    async with serving_tls(files, by_certificate()) as address:
        assert await handshake(address, trusting(servers)) is UNAVAILABLE
        forged = trustme.CA().issue_cert("agent.acme.test")
        assert await handshake(address, trusting(servers, own=forged)) is UNAVAILABLE


async def test_a_wrong_token_is_not_mended_by_a_good_certificate(tmp_path, authorities):
    servers, clients = authorities
    files = write_server(tmp_path, servers, clients)
    tokens = TokenFile(tmp_path / "t.json")
    _, token = tokens.create("acme")
    gate = CallerAuthenticator(TENANTS, tokens=tokens, certificates={"dns:agent.acme.test": "acme"})
    own = trusting(servers, own=clients.issue_cert("agent.acme.test"))
    async with serving_tls(files, gate) as address:
        assert await handshake(address, own, bearer(token)) is OK
        assert await handshake(address, own, bearer(token[:-1])) is grpc.StatusCode.UNAUTHENTICATED


async def test_the_authority_of_the_clients_is_read_anew_too(tmp_path):
    servers, old, new = trustme.CA(), trustme.CA(), trustme.CA()
    files = write_server(tmp_path, servers, old)
    gate = by_certificate()
    before, after = (trusting(servers, own=each.issue_cert("agent.acme.test")) for each in (old, new))
    async with serving_tls(files, gate) as address:
        assert (await handshake(address, before), await handshake(address, after)) == (OK, UNAVAILABLE)
        write_server(tmp_path, servers, new)
        assert (await handshake(address, before), await handshake(address, after)) == (UNAVAILABLE, OK)


async def test_an_authority_that_is_none_stops_the_start(tmp_path, authorities):
    files = write_server(tmp_path, *authorities)
    assert files.client_ca is not None
    files.client_ca.write_text("nothing")
    with pytest.raises(ListenError, match=r"clients\.pem"):
        async with serving_tls(files):
            raise AssertionError


@pytest.mark.parametrize(
    ("names", "common"),
    [
        ([("dns", b"agent.acme.test\0.elsewhere.test")], ()),
        ([("dns", b"agent.acme.test\n")], ()),
        ([("dns", b"\xe4gent.test"), ("dns", b"agent.acme.test")], ()),
        ([("uri", b"spiffe://acme.test/agent\0/else")], ()),
        ([("email", b"operator")], ()),
        ([("uri", b"operator"), ("dns", b"cn:operator")], ()),
        ([], ("operator\0.elsewhere.test",)),
        ([], ("elsewhere", "operator")),
        ([], ("dns:agent.acme.test",)),
        ([], ()),
    ],
)
async def test_a_name_that_only_begins_like_a_tenants_or_is_of_another_sort_opens_nothing(
    tmp_path, authorities, names, common
):
    servers, _ = authorities
    clients = OddAuthority()
    files = write_server(tmp_path, servers)
    files = TlsFiles(files.certificate, files.key, tmp_path / "odd.pem")
    (tmp_path / "odd.pem").write_bytes(clients.pem)
    roots = servers.cert_pem.bytes()
    async with serving_tls(files, by_certificate()) as address:
        chain, key = clients.issue(*names, common=common)
        odd = grpc.ssl_channel_credentials(roots, key, chain)
        assert await handshake(address, odd) is grpc.StatusCode.UNAUTHENTICATED
        chain, key = clients.issue(("dns", b"other.test"), ("dns", b"agent.acme.test"), common=("x",))
        assert await handshake(address, grpc.ssl_channel_credentials(roots, key, chain)) is OK
