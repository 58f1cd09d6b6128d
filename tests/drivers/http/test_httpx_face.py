"""The httpx face behaves like any httpx transport, and tells more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.drivers.http import (
    ExchangeEnd,
    Fault,
    HttpxTransport,
    Limits,
    Timeouts,
    exception_for,
    exchange_end,
)
from tests.support import wire_faults as wire
from tests.support.connect_proxy import ConnectProxy
from tests.support.fault_server import Authority, FaultServer, Reply


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=HttpxTransport(), trust_env=False) as running:
        yield running


async def test_an_ordinary_call_works(server: FaultServer, client: httpx.AsyncClient) -> None:
    server.script([Reply(201, {"x-request-id": "r1"}, [b'{"input_tokens": 7}'], framing="length")])
    response = await client.post(server.url + "/v1/count?beta=1", json={"a": 1}, headers={"x-api-key": "k"})
    assert (response.status_code, response.json()) == (201, {"input_tokens": 7})
    assert response.headers["x-request-id"] == "r1"
    assert response.http_version == "HTTP/1.1"
    sent = server.requests[0]
    assert (sent.method, sent.target, sent.body) == ("POST", "/v1/count?beta=1", b'{"a":1}')
    assert sent.headers["content-length"] == "7"
    assert sent.headers["accept-encoding"] == "gzip, deflate"
    assert sent.headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_coded_answer_is_decoded_once(server: FaultServer, client: httpx.AsyncClient) -> None:
    server.script([wire.gzipped([b"hello ", b"world"])])
    response = await client.get(server.url)
    assert response.text == "hello world"
    assert "content-encoding" not in response.headers


async def test_a_connection_is_kept_across_calls(server: FaultServer, client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await client.get(server.url)
    assert server.connections == 1


async def test_a_streamed_request_is_sent(server: FaultServer, client: httpx.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    await client.post(server.url, content=parts())
    assert server.requests[0].body == b"onetwo"


async def test_redirects_and_the_environments_proxy_are_not_followed(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    server.script([wire.redirect(location=server.url)])
    # Even where the client itself would read the environment.
    async with httpx.AsyncClient(transport=HttpxTransport()) as client:
        response = await client.get(server.url)
    assert (response.status_code, len(server.requests)) == (307, 1)


async def test_leaving_a_stream_closes_the_upstream_socket(
    server: FaultServer, client: httpx.AsyncClient
) -> None:
    server.script([wire.held([b"one"], asyncio.Event(), [])])
    async with client.stream("GET", server.url) as response:
        assert await anext(response.aiter_raw()) == b"one"
    await server.disconnected()


async def test_cancelling_a_call_closes_the_upstream_socket(
    server: FaultServer, client: httpx.AsyncClient
) -> None:
    server.script([wire.never_answer()])
    call = asyncio.ensure_future(client.get(server.url))
    await server.received(1)
    call.cancel()
    await asyncio.wait([call])
    await server.disconnected()


async def test_a_slow_reader_holds_the_peer_back_and_is_not_called_idle(server: FaultServer) -> None:
    size = 64 * 1024 * 1024
    sent = 0

    def blocks():  # the server pulls the next block only when the network takes it
        nonlocal sent
        while sent < size:
            sent += 65536
            yield bytes(65536)

    server.script([Reply(chunks=blocks())])
    transport = HttpxTransport(limits=Limits(answer_bytes=2 * size))
    timeout = httpx.Timeout(5, read=0.2)
    async with (
        httpx.AsyncClient(transport=transport, timeout=timeout) as client,
        client.stream("GET", server.url) as response,
    ):
        parts = response.aiter_raw()
        got = len(await anext(parts))
        # Twice the idle limit: the time itself is what is tested.
        await asyncio.sleep(0.4)
        assert sent < size / 2
        async for part in parts:
            got += len(part)
    assert got == size


async def test_tls_goes_through_the_explicit_proxy(authority: Authority) -> None:
    async with FaultServer(tls=authority.server()) as server, ConnectProxy("user", "pass") as proxy:
        server.script([Reply(chunks=[b"{}"])])
        transport = HttpxTransport(proxy=f"http://user:pass@127.0.0.1:{proxy.port}", tls=authority.client)
        async with httpx.AsyncClient(transport=transport) as client:
            response = await client.get(server.url, headers={"x-api-key": "secret-key"})
        assert response.text == "{}"
        assert proxy.tunnels == [f"127.0.0.1:{server.port}"]
        assert b"secret-key" not in proxy.heads[0]
        assert "proxy-authorization" not in server.requests[0].headers


async def test_the_timeouts_of_a_call_are_its_own(server: FaultServer, client: httpx.AsyncClient) -> None:
    server.script([wire.never_answer()])
    with pytest.raises(httpx.ReadTimeout) as caught:
        await client.get(server.url, timeout=httpx.Timeout(5, read=0.05))
    end = exchange_end(caught.value)
    assert end is not None
    assert end.fault is Fault.FIRST_BYTE_TIMEOUT


async def test_no_timeout_means_none(server: FaultServer) -> None:
    gate = asyncio.Event()
    server.script([Reply(gate=gate)])
    asyncio.get_running_loop().call_later(0.1, gate.set)
    transport = HttpxTransport(Timeouts(first_byte=0.01, idle=0.01))
    async with httpx.AsyncClient(transport=transport, timeout=None) as client:
        assert (await client.get(server.url)).status_code == 200


async def test_other_schemes_and_broken_headers_are_refused(
    server: FaultServer, client: httpx.AsyncClient
) -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        await client.get("ftp://127.0.0.1/")
    with pytest.raises(httpx.LocalProtocolError, match="x-key"):
        await client.get(server.url, headers={"x-key": "a\r\nb: c"})
    assert server.connections == 0


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
@pytest.mark.parametrize("stage", [Stage.NOT_WRITTEN, Stage.WRITING, Stage.WRITTEN, Stage.BODY])
def test_every_fault_at_every_stage_is_an_httpx_exception_that_carries_it(fault: Fault, stage: Stage) -> None:
    end = ExchangeEnd(stage, fault, Cause.NETWORK, "detail", None, 1, False, stage >= Stage.WRITTEN)
    exception = exception_for(end)
    assert isinstance(exception, httpx.RequestError)
    assert exchange_end(exception) is end
    if stage >= Stage.WRITTEN and fault in (Fault.TLS, Fault.CUT, Fault.TOTAL_TIMEOUT):
        # What was written must never look like a connection that failed: that would be sent again.
        assert not isinstance(exception, httpx.ConnectError | httpx.ConnectTimeout)


def test_other_exceptions_carry_no_end() -> None:
    assert exchange_end(KeyError("x")) is None
