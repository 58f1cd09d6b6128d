"""The gate at each connection: what is not on the list is refused by us, not sent, and not tried again."""

from __future__ import annotations

import asyncio
import os

import httpx
import pytest

from modelmeter_server.core.egress import Egress, parse_entry
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.drivers.authentication import CredentialsError, EgressRefused
from modelmeter_server.drivers.bedrock.signing import SigV4
from modelmeter_server.drivers.google_credentials import GoogleCredentials
from modelmeter_server.drivers.http import EgressGate, Endpoint, Fault, HttpxTransport, Pool, egress_refusal
from modelmeter_server.drivers.http import connect as connecting
from modelmeter_server.drivers.key_set_source import KeySetAddress, KeySetUnavailable
from modelmeter_server.drivers.lookup import LookupFailed, look_up
from modelmeter_server.drivers.webhook import NotDelivered, Webhook
from tests.drivers.http.recorder import Recorder, post
from tests.support.connect_proxy import ConnectProxy
from tests.support.fault_server import FaultServer, Reply
from tests.support.google_account import account_file, token
from tests.support.socket_server import socket_server
from tests.support.socket_turns import Witness, line


def gate(*entries: str) -> EgressGate:
    return EgressGate(Egress(hosts=frozenset(map(parse_entry, entries))))


async def end_of(url: str, shut: EgressGate, proxy: str | None = None):
    pool = Pool(Endpoint.parse(url, gate=shut, proxy=proxy))
    end = await pool.exchange(post(), Recorder()).run()
    await pool.aclose()
    return end


async def test_a_host_on_the_list_is_connected_to_and_another_is_not():
    async with FaultServer(Reply()) as server:
        allowed = await end_of(server.url, gate(server.url.removeprefix("http://")))
        refused = await end_of(server.url, gate("127.0.0.1"))
    assert (allowed.fault, len(server.requests)) == (Fault.NONE, 1)
    assert (refused.fault, refused.cause, refused.stage, refused.attempts) == (
        Fault.EGRESS,
        Cause.LIMIT,
        Stage.NOT_WRITTEN,
        1,
    )
    assert "is not on the list of egress.allow" in refused.detail


async def test_a_refused_host_is_not_even_looked_up(monkeypatch):
    asked = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *each, **_: asked.append(each))
    assert (await end_of("http://not-on-the-list.test", gate("other.test"))).fault is Fault.EGRESS
    assert asked == []


async def test_a_list_that_is_replaced_holds_from_the_next_connection_on():
    async with FaultServer(Reply()) as server:
        shut = gate()
        pool = Pool(Endpoint.parse(server.url, gate=shut))
        ends = [await pool.exchange(post(), Recorder()).run()]
        shut.reconfigure(None)
        ends.append(await pool.exchange(post(), Recorder()).run())
        await pool.aclose()
    assert [end.fault for end in ends] == [Fault.EGRESS, Fault.NONE]


async def test_the_proxy_must_be_on_the_list_as_well_as_the_host_behind_it():
    async with ConnectProxy("u", "p") as proxy, FaultServer(Reply()) as server:
        url, way = server.url, f"http://u:p@127.0.0.1:{proxy.port}"
        target, hop = url.removeprefix("http://"), f"127.0.0.1:{proxy.port}"
        faults = [(await end_of(url, gate(*entries), way)).fault for entries in ((target,), (hop,))]
        assert (faults, proxy.heads) == ([Fault.EGRESS, Fault.EGRESS], [])
        assert (await end_of(url, gate(target, hop), way)).fault is Fault.NONE


async def test_a_name_that_resolves_to_a_metadata_address_is_not_connected_to(monkeypatch):
    async def resolve(_host, port):
        return [(0, 0, ("169.254.169.254", port))]

    dialled = []
    monkeypatch.setattr(connecting, "_resolve", resolve)
    monkeypatch.setattr(connecting, "_dial", lambda *each: dialled.append(each))
    end = await end_of("http://api.test", gate("api.test"))
    assert (end.fault, dialled) == (Fault.EGRESS, [])
    assert "link-local" in end.detail


def test_what_the_gate_refuses_is_ours_to_judge_costs_nothing_and_is_final():
    failed = egress_refusal("x:443 is not on the list")
    assert (failed.kind, failed.code, failed.cause) == (Kind.REFUSED, Code.PERMISSION_DENIED, Cause.LIMIT)
    assert (failed.disposition, failed.certainty) == (Disposition.DID_NOT_HAPPEN, Certainty.NONE)
    assert not failed.retryable


async def test_a_socket_of_a_session_passes_the_gate_too():
    witness = Witness()
    async with socket_server() as server, line(server, gate=gate("other.test")) as way:
        failed = await way.fail(witness=witness)
    assert (failed.kind, failed.code) == (Kind.REFUSED, Code.PERMISSION_DENIED)
    assert (failed.certainty, failed.retryable, server.asked) == (Certainty.NONE, False, [])


async def test_key_sets_and_webhooks_pass_the_gate():
    async with FaultServer(Reply()) as server:
        with pytest.raises(KeySetUnavailable):
            await KeySetAddress(server.url, gate=gate("other.test"))()
        hook = Webhook(server.url, gate=gate("other.test"))
        with pytest.raises(NotDelivered):
            await hook.post({})
        await hook.aclose()
        assert server.requests == []


async def test_a_lookup_at_a_provider_that_is_off_the_list_is_refused_and_not_unreachable():
    pool = Pool(Endpoint.parse("http://127.0.0.1:9", gate=gate("other.test")))
    with pytest.raises(LookupFailed) as caught:
        await look_up(pool, "/", (), most_bytes=10, scrub=str)
    await pool.aclose()
    assert (caught.value.verdict.kind, caught.value.verdict.code) == (Kind.REFUSED, Code.PERMISSION_DENIED)


@pytest.mark.parametrize("entries", [("other.test",), ()])
async def test_googles_token_endpoint_passes_the_gate(tmp_path, entries):
    async with FaultServer(token()) as endpoint:
        credentials = GoogleCredentials(account_file(tmp_path, endpoint.url), gate=gate(*entries))
        with pytest.raises(EgressRefused):
            await credentials.prepare()
        assert endpoint.requests == []
        allowed = gate(endpoint.url.removeprefix("http://"))
        await GoogleCredentials(account_file(tmp_path, endpoint.url), gate=allowed).prepare()
        assert len(endpoint.requests) == 1


async def test_a_renewal_passes_the_gate_again(tmp_path):
    async with FaultServer(token()) as endpoint:
        door = gate(endpoint.url.removeprefix("http://"))
        credentials = GoogleCredentials(account_file(tmp_path, endpoint.url), gate=door)
        await credentials.prepare()
        door.reconfigure(Egress(hosts=frozenset()))
        with pytest.raises(EgressRefused):
            await credentials.prepare()
    assert len(endpoint.requests) == 1


async def test_a_token_endpoint_behind_a_proxy_needs_both_on_the_list(tmp_path):
    async with ConnectProxy("u", "p") as proxy:
        file = account_file(tmp_path, "https://tokens.test")
        way = f"http://u:p@127.0.0.1:{proxy.port}"
        for entry in ("tokens.test", f"127.0.0.1:{proxy.port}"):
            with pytest.raises(EgressRefused):
                await GoogleCredentials(file, proxy=way, gate=gate(entry)).prepare()
    assert proxy.heads == []


async def test_a_token_endpoint_whose_name_stands_for_a_metadata_address_is_told_nothing(
    tmp_path, monkeypatch
):
    """The peer's address counts, so the connection that is open is closed before a byte of the request leaves."""
    monkeypatch.setattr("modelmeter_server.core.egress.is_metadata", lambda address: address == "127.0.0.1")
    async with FaultServer(token()) as endpoint:
        port = endpoint.url.rpartition(":")[2]
        file = account_file(tmp_path, f"http://localhost:{port}")
        with pytest.raises(EgressRefused, match="link-local"):
            await GoogleCredentials(file, gate=gate(f"localhost:{port}")).prepare()
    assert endpoint.requests == []


async def test_a_redirect_to_another_host_is_not_followed_whatever_the_list_says():
    async with FaultServer(Reply()) as other:
        away = Reply(status=302, headers={"location": other.url})
        async with FaultServer(away) as server, asyncio.timeout(5):
            client = httpx.AsyncClient(transport=HttpxTransport(gate=EgressGate()), trust_env=False)
            assert (await client.get(server.url)).status_code == 302
            await client.aclose()
            assert (await end_of(server.url, EgressGate())).fault is Fault.NONE
    assert other.requests == []


@pytest.fixture
def bare_environment(monkeypatch, tmp_path):
    """Leave no AWS credentials to be found but those that a test sets."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    return monkeypatch


async def test_awss_token_service_passes_the_gate(bare_environment, tmp_path):
    pytest.importorskip("botocore")
    (tmp_path / "web").write_text("a-token")
    bare_environment.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
    bare_environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "web"))
    signer = SigV4("eu-central-1")
    signer.use_gate(gate("bedrock-runtime.eu-central-1.amazonaws.com"))
    with pytest.raises(EgressRefused, match="sts"):
        await signer.prepare()


async def test_the_machines_account_is_asked_only_if_its_address_is_on_the_list(bare_environment):
    pytest.importorskip("botocore")
    async with FaultServer(Reply(status=404)) as machine:
        bare_environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", machine.url)
        asked = []
        for entries in (("other.test",), ("169.254.169.254",)):
            signer = SigV4("eu-central-1")
            signer.use_gate(gate(*entries))
            with pytest.raises(CredentialsError):
                await signer.prepare()
            asked.append(len(machine.requests) > 0)
    assert asked == [False, True]
