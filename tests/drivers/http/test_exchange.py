"""What a sink may rely on, and how an exchange is ended from outside."""

from __future__ import annotations

import asyncio

import pytest

from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.drivers.http import Exchange, Fault, HttpRequest, Limits, Pool, ResponseHead, Timeouts
from tests.drivers.http.conftest import OpenPool
from tests.drivers.http.recorder import Recorder, post, run, until
from tests.support import wire_faults as wire
from tests.support.fault_server import FaultServer, Reply


async def test_a_sink_hears_written_then_head_then_data(server: FaultServer, pool: Pool) -> None:
    server.script([wire.event_stream([b"one", b"two"])])
    end, sink = await run(pool)
    assert sink.calls == ["written", "head", *["data"] * (len(sink.calls) - 2)]
    assert end.head is sink.answer
    assert end.head is not None
    assert end.head.headers.get("Content-Type") == "text/event-stream"


async def test_the_chunks_of_one_read_are_joined(server: FaultServer, pool: Pool) -> None:
    server.script([Reply(chunks=[b"event"] * 400, joined=True)])
    _, sink = await run(pool)
    assert sink.body == b"event" * 400
    assert sink.calls.count("data") == 1


async def test_the_request_goes_out_as_asked(server: FaultServer, pool: Pool) -> None:
    await run(
        pool, request=HttpRequest("POST", "/v1/x?beta=1", (("x-api-key", "k"), ("accept", "*/*")), b"hello")
    )
    sent = server.requests[0]
    assert (sent.method, sent.target, sent.body) == ("POST", "/v1/x?beta=1", b"hello")
    assert sent.headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "gzip, deflate",
        "x-api-key": "k",
        "accept": "*/*",
        "content-length": "5",
    }


async def test_enough_ends_the_exchange_and_closes_the_connection(server: FaultServer, pool: Pool) -> None:
    server.script([wire.held([b"one"], asyncio.Event(), [b"two"])])
    end, sink = await run(pool, Recorder(enough_after=3))
    assert end.fault is Fault.NONE
    assert end.cause is None
    assert sink.body == b"one"
    await server.disconnected()
    assert pool.idle_connections == 0


async def test_enough_keeps_the_connection_when_the_message_ended_in_the_same_read(
    server: FaultServer, pool: Pool
) -> None:
    server.script([Reply(chunks=[b"one", b"two"], joined=True)])
    end, _ = await run(pool, Recorder(enough_after=3))
    assert end.fault is Fault.NONE
    assert pool.idle_connections == 1


@pytest.mark.parametrize("where", ["written", "head", "data"])
async def test_an_exception_in_the_sink_is_our_bug_and_not_the_networks(
    server: FaultServer, pool: Pool, where: str
) -> None:
    server.script([wire.event_stream([b"one"])])
    end, sink = await run(pool, Recorder(raise_in=where))
    assert (end.fault, end.cause) == (Fault.BUG, Cause.BUG)
    assert isinstance(end.error, KeyError)
    assert "secret" not in repr(end)
    assert sink.calls[-1] == where
    assert pool.idle_connections == 0


@pytest.mark.parametrize("where", ["written", "head", "data"])
async def test_a_sink_may_cut_from_within_and_hears_nothing_more(
    server: FaultServer, pool: Pool, where: str
) -> None:
    server.script([wire.gzipped([bytes(2_000_000), b"x"])])
    sink = Cutter(where)
    sink.exchange = pool.exchange(post(), sink)
    end = await sink.exchange.run()
    assert (end.fault, end.cause, end.detail) == (Fault.CUT, Cause.CALLER, "enough")
    assert sink.calls[-1] == where
    assert sink.calls.count(where) == 1


class Cutter(Recorder):
    """Cut the exchange in one of its calls."""

    exchange: Exchange

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.where:
            self.exchange.cut(Cause.CALLER, "enough")


@pytest.mark.parametrize("cause", [Cause.CALLER, Cause.DEADLINE, Cause.DRAIN])
async def test_a_cut_ends_it_at_once_and_closes_the_upstream_socket(
    server: FaultServer, pool: Pool, cause: Cause
) -> None:
    server.script([wire.held([b"one"], asyncio.Event(), [])])
    sink = Recorder()
    exchange = pool.exchange(post(), sink)
    running = asyncio.ensure_future(exchange.run())
    await until(lambda: bool(sink.chunks))
    exchange.cut(cause, "over")
    exchange.cut(Cause.BUG, "too late")
    assert exchange.end is not None
    end = await running
    assert (end.stage, end.fault, end.cause, end.detail) == (Stage.BODY, Fault.CUT, cause, "over")
    await server.disconnected()


async def test_a_cancelled_run_closes_the_upstream_socket_and_still_tells_its_end(
    server: FaultServer, pool: Pool
) -> None:
    server.script([wire.never_answer()])
    exchange = pool.exchange(post(), Recorder())
    running = asyncio.ensure_future(exchange.run())
    await server.received(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert exchange.end is not None
    assert (exchange.end.stage, exchange.end.fault, exchange.end.cause) == (
        Stage.WRITTEN,
        Fault.CUT,
        Cause.CALLER,
    )
    await server.disconnected()


async def test_a_cut_before_the_run_sends_nothing(server: FaultServer, pool: Pool) -> None:
    exchange = pool.exchange(post(), Recorder())
    exchange.cut(Cause.DEADLINE)
    end = await exchange.run()
    assert (end.stage, end.cause, pool.open_connections) == (Stage.NOT_WRITTEN, Cause.DEADLINE, 0)
    assert server.connections == 0


async def test_a_cut_while_connecting_leaves_nothing_open(open_pool: OpenPool, server: FaultServer) -> None:
    # The server waits for a request that a TLS handshake is not.
    pool = open_pool(server.url_as("https"))
    exchange = pool.exchange(post(), Recorder())
    running = asyncio.ensure_future(exchange.run())
    await server.accepted(1)
    exchange.cut(Cause.CALLER)
    assert (await running).stage is Stage.NOT_WRITTEN
    await server.disconnected()
    await until(lambda: pool.open_connections == 0)


async def test_an_exchange_runs_once(pool: Pool) -> None:
    exchange = pool.exchange(post(), Recorder())
    await exchange.run()
    with pytest.raises(RuntimeError, match="once"):
        await exchange.run()


class Tailed(Recorder):
    """Ask for a short idle limit once the answer is whole."""

    exchange: Exchange

    def data(self, chunk: bytes) -> bool:
        self.exchange.set_idle_timeout(0.05)
        return super().data(chunk)


async def test_the_tail_limit_replaces_the_idle_limit_from_then_on(server: FaultServer, pool: Pool) -> None:
    server.script([wire.held([b"finish_reason"], asyncio.Event(), [])])
    sink = Tailed()
    sink.exchange = pool.exchange(post(), sink, Timeouts(idle=25))
    end = await sink.exchange.run()
    assert (end.fault, end.cause) == (Fault.IDLE_TIMEOUT, Cause.IDLE_TIMEOUT)


async def test_a_steady_drip_never_runs_into_the_idle_limit(server: FaultServer, pool: Pool) -> None:
    gates = [asyncio.Event() for _ in range(8)]
    chunks = [part for gate in gates for part in (gate, b"x")]
    server.script([Reply(chunks=chunks)])
    loop = asyncio.get_running_loop()
    for index, gate in enumerate(gates):
        loop.call_later(0.15 * (index + 1), gate.set)
    end, sink = await run(pool, timeouts=Timeouts(first_byte=1, idle=1))
    assert end.fault is Fault.NONE
    assert sink.body == b"x" * 8


async def test_a_header_endless_in_small_pieces_costs_bounded_time(server: FaultServer, pool: Pool) -> None:
    server.script([wire.endless_header()])
    started = asyncio.get_running_loop().time()
    end, _ = await run(pool)
    assert end.fault is Fault.HEADER_LIMIT
    assert asyncio.get_running_loop().time() - started < 2


async def test_a_gzip_bomb_is_delivered_in_small_steps_up_to_the_limit(
    server: FaultServer, open_pool: OpenPool
) -> None:
    server.script([wire.gzip_bomb(1024)])
    pool = open_pool(server.url, limits=Limits(answer_bytes=5_000_000))
    end, sink = await run(pool)
    assert end.fault is Fault.ANSWER_LIMIT
    assert len(sink.body) == 5_000_000
    assert max(map(len, sink.chunks)) <= 1024 * 1024


async def test_redirects_are_not_followed(server: FaultServer, pool: Pool) -> None:
    server.script([wire.redirect(location=server.url)])
    end, _ = await run(pool)
    assert end.head is not None
    assert (end.head.status, len(server.requests)) == (307, 1)


async def test_a_head_request_ends_with_the_head(server: FaultServer, pool: Pool) -> None:
    server.script([Reply(framing="length", announce=1000)])
    end, sink = await run(pool, request=HttpRequest("HEAD", "/"))
    assert (end.fault, end.stage, sink.body) == (Fault.NONE, Stage.HEADERS, b"")


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_ends_with_the_head(
    server: FaultServer, pool: Pool, status: int
) -> None:
    server.script([Reply(status, framing="close", joined=True, end="stall")])
    end, _ = await run(pool)
    assert (end.fault, end.stage) == (Fault.NONE, Stage.HEADERS)


async def test_an_end_shows_no_key_no_query_and_no_body(server: FaultServer, pool: Pool) -> None:
    server.script([Reply(headers={"set-cookie": "secret-cookie"}, chunks=[b"secret-answer"], end="reset")])
    request = HttpRequest("POST", "/v1?key=secret-query", (("x-api-key", "secret-key"),), b"secret-prompt")
    end, sink = await run(pool, request=request)
    assert isinstance(sink.answer, ResponseHead)
    for shown in (repr(end), repr(request).replace("/v1?key=secret-query", ""), repr(sink.answer)):
        assert "secret" not in shown
