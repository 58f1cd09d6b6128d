"""To the byte: what counts as written, on a transport that pauses, drains and fails when told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

import pytest

from modelmeter_server.core.outcomes import Stage
from modelmeter_server.drivers.http import Endpoint, Exchange, ExchangeEnd, Fault, Limits, Pool, Timeouts
from modelmeter_server.drivers.http.connection import Connection
from modelmeter_server.drivers.http.exchange import PIECE_BYTES
from tests.drivers.http.recorder import Recorder, post


class ScriptedTransport:
    """Take each write as the script says: "ok", "pause" (the buffer keeps a byte) or "fail"."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.sizes: list[int] = []
        self.high: int | None = None
        self.closing = False
        self.connection: Connection | None = None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        assert self.connection is not None
        self.sizes.append(len(data))
        step = self.script.pop(0)
        if step == "pause":
            self.connection.pause_writing()
        elif step == "fail":
            self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


class OnePool:
    """Stand where the pool stands, for one exchange over one connection."""

    endpoint = Endpoint("http", "h", 80)
    resends = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def acquire(self, exchange: Exchange) -> None:
        exchange.begin(self.connection, reused=False)

    def release(self, connection: Connection, *, reusable: bool) -> None:
        connection.abort()

    def withdraw(self, exchange: Exchange) -> None: ...


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


Sockets = tuple[socket.socket, socket.socket]


def _begin(
    sockets: Sockets, transport: ScriptedTransport, body: bytes
) -> tuple[Connection, Recorder, asyncio.Future[ExchangeEnd]]:
    connection = Connection(sockets[0], lambda _: None)
    transport.connection = connection
    connection.connection_made(cast(asyncio.Transport, transport))
    sink = Recorder()
    exchange = Exchange(cast(Pool, OnePool(connection)), post(body), sink, Timeouts(), Limits())
    return connection, sink, exchange.start()


async def test_the_write_buffer_is_watched_to_the_byte(sockets: Sockets) -> None:
    transport = ScriptedTransport("ok")
    _begin(sockets, transport, b"{}")
    assert transport.high == 0


async def test_a_request_goes_out_in_pieces_that_wait(sockets: Sockets) -> None:
    transport = ScriptedTransport("ok", "pause", "ok")
    connection, sink, _ = _begin(sockets, transport, bytes(3 * PIECE_BYTES - 1000))
    assert transport.sizes == [PIECE_BYTES, PIECE_BYTES]
    assert sink.calls == []
    connection.resume_writing()
    await asyncio.sleep(0)
    assert len(transport.sizes) == 3
    assert sink.calls == ["written"]


@pytest.mark.parametrize("script", [("pause",), ("ok", "pause"), ("fail",), ("ok", "fail")])
async def test_lost_while_a_byte_waits_is_writing(sockets: Sockets, script: tuple[str, ...]) -> None:
    connection, sink, done = _begin(
        sockets, ScriptedTransport(*script), bytes((len(script) * PIECE_BYTES) - 1000)
    )
    connection.connection_lost(ConnectionResetError())
    end = await done
    assert (end.stage, end.fault, end.request_written) == (Stage.WRITING, Fault.WRITE_LOST, False)
    assert sink.calls == []


async def test_lost_in_the_turn_in_which_the_last_byte_left_is_written(sockets: Sockets) -> None:
    connection, sink, done = _begin(sockets, ScriptedTransport("pause"), b"{}")
    connection.resume_writing()
    connection.connection_lost(ConnectionResetError())
    end = await done
    assert (end.stage, end.fault, end.request_written) == (Stage.WRITTEN, Fault.RESET, True)
    assert sink.calls == ["written"]


async def test_lost_after_a_pause_with_a_piece_still_unsent_is_writing(sockets: Sockets) -> None:
    connection, _, done = _begin(sockets, ScriptedTransport("pause"), bytes(2 * PIECE_BYTES - 1000))
    connection.resume_writing()
    connection.connection_lost(ConnectionResetError())
    assert (await done).stage is Stage.WRITING


async def test_what_the_socket_still_holds_is_read_after_a_loss(sockets: Sockets) -> None:
    connection, sink, done = _begin(sockets, ScriptedTransport("pause"), bytes(100))
    sockets[1].sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
    connection.connection_lost(BrokenPipeError())
    end = await done
    assert (end.stage, end.fault, end.request_written) == (Stage.BODY, Fault.NONE, False)
    assert sink.body == b"big"
