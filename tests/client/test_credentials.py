"""TLS from files, and when a token may travel."""

from __future__ import annotations

import grpc
import pytest
import trustme

from modelmeter import AsyncClient, Client, tls_credentials
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc.server import RpcServer
from tests.client.faces import face
from tests.support.certificates import write_server
from tests.support.running_server import MODEL, Memory
from tests.support.scripted_driver import ScriptedDriver, answering

BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@BOTH
async def test_a_client_shows_its_certificate_and_knows_its_authorities(tmp_path, kind):
    servers, clients = trustme.CA(), trustme.CA()
    own = clients.issue_cert("agent.test")
    own.private_key_pem.write_to_path(tmp_path / "own.key")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    servers.cert_pem.write_to_path(tmp_path / "ca.pem")
    driver = ScriptedDriver(answering())
    server = RpcServer(Engine(Catalog([MODEL]), {driver.name: driver}, Memory()))
    (address,) = await server.start(["localhost:0"], write_server(tmp_path, servers, clients))
    credentials = tls_credentials(
        ca_file=tmp_path / "ca.pem", certificate=str(tmp_path / "own.pem"), key=tmp_path / "own.key"
    )
    try:
        async with face(kind, address, credentials=credentials) as client:
            assert (await client.complete("claude", "Hi")).text == "Hello."
    finally:
        await server.stop(0)


def test_a_certificate_without_its_key_is_refused(tmp_path):
    with pytest.raises(ValueError, match="both or neither"):
        tls_credentials(certificate=tmp_path / "own.pem")
    with pytest.raises(OSError, match=r"missing\.pem"):
        tls_credentials(ca_file=tmp_path / "missing.pem")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_token_crosses_a_network_in_the_clear_only_when_that_is_said(kind):
    with pytest.raises(ValueError, match="needs TLS"):
        kind("example.test:1", token="t")
    kind("example.test:1", token="t", allow_insecure_token=True)
    kind("example.test:1", token="t", credentials=grpc.ssl_channel_credentials())
    kind("127.0.0.1:1", token="t")
