"""The fault server does what its script says; a test of faults is worth no more than that."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import wire_faults as wire
from tests.support.fault_server import FaultServer, NobodyListens, RecordedRequest, Reply

REQUEST = b"POST /x?y=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"


async def _talk(server: FaultServer, request: bytes = REQUEST) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_request_is_recorded_and_answered_from_the_script(server: FaultServer) -> None:
    server.script([Reply(429, {"retry-after": "3"}, [b"ab", b"c"], close=True)])
    answer = await _talk(server)
    assert answer == (
        b"HTTP/1.1 429 Scripted\r\nretry-after: 3\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    )
    expected = RecordedRequest("POST", "/x?y=1", {"host": "h", "content-length": "5"}, b"hello", 0)
    assert server.requests == [expected]


async def test_a_function_may_answer_and_the_default_answers_the_rest(server: FaultServer) -> None:
    async def later(request: RecordedRequest) -> Reply:
        return Reply(chunks=[request.body], framing="close")

    server.script([lambda request: Reply(chunks=[request.target.encode()], framing="close"), later])
    server.default = Reply(framing="length", close=True)
    assert (await _talk(server)).endswith(b"/x?y=1")
    assert (await _talk(server)).endswith(b"hello")
    assert (await _talk(server)).endswith(b"content-length: 0\r\n\r\n")


async def test_a_reset_is_a_real_reset_and_comes_after_the_bytes(server: FaultServer) -> None:
    server.script([Reply(chunks=[b"abc"], end="reset")])
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(REQUEST)
    assert (await reader.readuntil(b"abc\r\n")).startswith(b"HTTP/1.1 200")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_an_answer_waits_for_its_event(server: FaultServer) -> None:
    gate = asyncio.Event()
    server.script([wire.held([b"one"], gate, [b"two"], end="truncate")])
    answer = asyncio.ensure_future(_talk(server))
    await server.received(1)
    assert not answer.done()
    gate.set()
    assert (await answer).endswith(b"3\r\none\r\n3\r\ntwo\r\n")


async def test_an_early_answer_leaves_the_body_unread(server: FaultServer) -> None:
    server.script([wire.early(413)])
    head = REQUEST.replace(b"5\r\n", b"5000000\r\n")
    assert b"413" in await _talk(server, head)
    assert server.requests[0].body == b""


async def test_disconnected_waits_for_the_peer(server: FaultServer) -> None:
    server.script([wire.never_answer()])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(REQUEST)
    await server.received(1)
    with pytest.raises(TimeoutError):
        await server.disconnected(seconds=0.05)
    writer.close()
    await server.disconnected()


async def test_nobody_listens_where_nobody_listens() -> None:
    with NobodyListens() as nobody, pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(nobody.url.rpartition(":")[2]))
