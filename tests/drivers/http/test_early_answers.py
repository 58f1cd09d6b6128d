"""An answer that comes before the request was read is read to its end, whatever the write runs into meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from modelmeter_server.core.outcomes import Stage
from modelmeter_server.drivers.http import Endpoint, ExchangeEnd, Fault, Pool
from modelmeter_server.drivers.http.connection import Connection
from tests.drivers.http.conftest import OpenPool
from tests.drivers.http.recorder import Recorder, post, run, until
from tests.support import wire_faults as wire
from tests.support.fault_server import FaultServer, Reply

BODY = b"x" * (4 * 1024 * 1024)
# Within the first window of a connection: what the peer's kernel has not sent when it resets is lost for anyone.
EXPLANATION = b"e" * 20_000
ANSWER = b"HTTP/1.1 413 Too Large\r\ncontent-length: %d\r\n\r\n%b" % (len(EXPLANATION), EXPLANATION)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def _pool_to(listener: socket.socket) -> Pool:
    return Pool(Endpoint.parse(f"http://127.0.0.1:{listener.getsockname()[1]}"))


def _refuse_unread(listener: socket.socket) -> None:
    """Accept, read a little, answer and close upon the unread rest: the kernel sends RST right behind the answer."""
    peer, _ = listener.accept()
    with peer:
        peer.recv(1000)
        peer.sendall(ANSWER)


def _assert_refused(end: ExchangeEnd, sink: Recorder) -> None:
    assert end.fault is Fault.NONE, end
    assert end.head is not None
    assert end.head.status == 413
    assert sink.body == EXPLANATION
    assert end.stage is Stage.BODY
    assert not end.request_written
    assert "written" not in sink.calls


async def test_a_413_and_a_reset_from_another_thread_are_a_413(listener: socket.socket) -> None:
    for _ in range(20):
        pool = _pool_to(listener)
        refused = asyncio.get_running_loop().run_in_executor(None, _refuse_unread, listener)
        end, sink = await run(pool, request=post(BODY))
        await refused
        _assert_refused(end, sink)
        await pool.aclose()


async def test_an_answer_unread_when_a_write_fails_is_rescued(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The peer acts between two of our writes: the second fails while the answer lies in the receive buffer,
    # and both loops stop reading for good.
    write = Connection.write
    pieces = 0

    def write_and_be_refused(connection: Connection, data: bytes) -> None:
        nonlocal pieces
        pieces += 1
        write(connection, data)
        if pieces == 1:
            _refuse_unread(listener)

    monkeypatch.setattr(Connection, "write", write_and_be_refused)
    pool = _pool_to(listener)
    end, sink = await run(pool, request=post(BODY))
    _assert_refused(end, sink)
    assert pieces == 2
    await pool.aclose()


async def test_nothing_more_is_written_once_an_early_answer_is_whole(open_pool: OpenPool) -> None:
    async with FaultServer(receive_buffer=16384) as server:
        server.script([wire.early(429, polite=True)])
        pool = open_pool(server.url)
        end, _ = await run(pool, request=post(BODY))
        assert end.fault is Fault.NONE
        assert not end.request_written
        assert pool.idle_connections == 0
        await server.disconnected()


async def test_an_early_stream_may_run_beside_the_request(open_pool: OpenPool) -> None:
    async with FaultServer(receive_buffer=16384) as server:
        gate = asyncio.Event()
        server.script([Reply(chunks=[b"one", gate, b"two"], early=True, drain=True)])
        pool = open_pool(server.url)
        sink = Recorder()
        running = asyncio.ensure_future(pool.exchange(post(BODY), sink).run())
        await until(lambda: "written" in sink.calls)
        gate.set()
        end = await running
        assert end.request_written
        assert sink.body == b"onetwo"
        assert sink.calls.index("head") < sink.calls.index("written") < len(sink.calls) - 1
