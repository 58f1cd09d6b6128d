"""Connections are kept, shared, waited for and given up by the rules; nothing leaks."""

from __future__ import annotations

import asyncio

import pytest

from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.drivers.http import Exchange, ExchangeEnd, Fault, HttpRequest, Limits, Pool, Timeouts
from tests.drivers.http.conftest import OpenPool
from tests.drivers.http.recorder import Recorder, post, run, until
from tests.support import wire_faults as wire
from tests.support.fault_server import Authority, FaultServer, Reply


def _start(pool: Pool, target: str = "/") -> asyncio.Task[ExchangeEnd]:
    return asyncio.ensure_future(pool.exchange(post(target=target), Recorder()).run())


async def test_a_connection_is_reused(server: FaultServer, pool: Pool) -> None:
    first, _ = await run(pool)
    second, _ = await run(pool)
    assert (first.reused, second.reused, server.connections) == (False, True, 1)
    assert (pool.open_connections, pool.idle_connections) == (1, 1)


async def test_a_tls_connection_is_reused_over_its_session_tickets(
    authority: Authority, open_pool: OpenPool
) -> None:
    async with FaultServer(tls=authority.server()) as server:
        pool = open_pool(server.url, tls=authority.client)
        ends = [(await run(pool))[0] for _ in range(3)]
        assert [end.reused for end in ends] == [False, True, True]
        assert server.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers={"connection": "close"}),
        Reply(raw=[b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"]),
        wire.bytes_after_message(),
        wire.bytes_after_message(b"garbage"),
        Reply(framing="close"),
    ],
    ids=["connection: close", "HTTP/1.0", "another answer behind it", "garbage behind it", "no length"],
)
async def test_a_connection_that_may_not_be_reused_is_closed(
    server: FaultServer, pool: Pool, reply: Reply
) -> None:
    server.script([reply])
    end, _ = await run(pool)
    assert end.fault is Fault.NONE
    assert pool.idle_connections == 0
    await server.disconnected(0)


async def test_http_1_0_with_keep_alive_is_kept(server: FaultServer, pool: Pool) -> None:
    server.script([Reply(raw=[b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}"])])
    await run(pool)
    assert pool.idle_connections == 1


class Pausing(Recorder):
    """Hold the peer back at the first data."""

    exchange: Exchange

    def data(self, chunk: bytes) -> bool:
        self.exchange.pause_reading()
        return super().data(chunk)


async def test_a_pause_in_the_last_read_does_not_outlive_the_exchange(
    server: FaultServer, pool: Pool
) -> None:
    server.default = Reply(chunks=[b"{}"], joined=True)
    sink = Pausing()
    sink.exchange = pool.exchange(post(), sink)
    await sink.exchange.run()
    end, after = await run(pool)
    assert (end.fault, end.reused, after.body) == (Fault.NONE, True, b"{}")


async def test_bytes_on_an_idle_connection_end_it(server: FaultServer, pool: Pool) -> None:
    gate = asyncio.Event()
    server.script(
        [Reply(raw=[b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", gate, b"HTTP/1.1 200 OK\r\n\r\n"])]
    )
    await run(pool)
    assert pool.idle_connections == 1
    gate.set()
    await until(lambda: pool.open_connections == 0)
    end, _ = await run(pool)
    assert (end.fault, end.reused) == (Fault.NONE, False)


async def test_an_idle_connection_that_the_server_closes_is_dropped(server: FaultServer, pool: Pool) -> None:
    await run(pool)
    server.drop()
    await until(lambda: pool.open_connections == 0)
    end, _ = await run(pool)
    assert (end.reused, end.attempts, server.connections) == (False, 1, 2)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_close_that_the_loop_has_not_seen_yet_is_noticed_before_writing(
    server: FaultServer, pool: Pool, reset: bool
) -> None:
    await run(pool)
    server.drop(reset=reset)
    # asyncio closes the server's socket in its next turn, ahead of the turn that would tell our side.
    await asyncio.sleep(0)
    end, _ = await run(pool)
    assert (end.fault, end.attempts) == (Fault.NONE, 1)
    assert len(server.requests) == 2


async def test_an_idle_connection_is_given_up_after_keepalive(
    server: FaultServer, open_pool: OpenPool
) -> None:
    pool = open_pool(server.url, keepalive=0.05)
    await run(pool)
    assert pool.open_connections == 1
    await server.disconnected()
    await until(lambda: pool.open_connections == 0)


async def test_a_stale_connection_is_replaced_once_within_a_full_pool(
    server: FaultServer, open_pool: OpenPool
) -> None:
    pool = open_pool(server.url, limits=Limits(connections=1))
    server.script([Reply(), wire.close_after_written(), Reply(chunks=[b"second"])])
    await run(pool)
    end, sink = await run(pool)
    assert (end.fault, end.attempts, end.reused) == (Fault.NONE, 2, False)
    assert sink.calls == ["written", "head", "data"]
    assert len(server.requests) == 3
    assert pool.open_connections == 1


async def test_a_fresh_connection_is_never_sent_twice(server: FaultServer, pool: Pool) -> None:
    server.script([wire.close_after_written("reset")])
    end, _ = await run(pool)
    assert (end.fault, end.stage, end.attempts, len(server.requests)) == (Fault.RESET, Stage.WRITTEN, 1, 1)


async def test_a_stale_connection_that_answered_a_byte_is_not_sent_twice(
    server: FaultServer, pool: Pool
) -> None:
    server.script([Reply(), Reply(raw=[b"H"], end="reset")])
    await run(pool)
    end, _ = await run(pool)
    assert (end.fault, end.reused, end.attempts, len(server.requests)) == (Fault.RESET, True, 1, 2)


async def test_a_re_send_that_cannot_connect_still_says_that_the_first_was_written(
    open_pool: OpenPool,
) -> None:
    async with FaultServer() as server:
        pool = open_pool(server.url)
        await run(pool)
        gate = asyncio.Event()
        server.script([Reply(silent=True, gate=gate, end="reset")])
        running = _start(pool)
        await server.received(2)
        assert server._server is not None
        server._server.close()
        gate.set()
        end = await running
        assert (end.fault, end.stage, end.attempts) == (Fault.REFUSED, Stage.WRITTEN, 2)
        assert end.request_written


async def test_waiters_are_served_in_the_order_of_their_coming(
    server: FaultServer, open_pool: OpenPool
) -> None:
    pool = open_pool(server.url, limits=Limits(connections=1))
    gate = asyncio.Event()
    server.script([Reply(gate=gate)])
    tasks = [_start(pool, f"/{index}") for index in range(8)]
    await until(lambda: pool.waiting == 7)
    gate.set()
    ends = await asyncio.gather(*tasks)
    assert [request.target for request in server.requests] == [f"/{index}" for index in range(8)]
    assert {end.fault for end in ends} == {Fault.NONE}
    assert server.connections == 1


async def test_nobody_overtakes_the_line(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url, limits=Limits(connections=1))
    gate = asyncio.Event()
    server.script([Reply(gate=gate, headers={"connection": "close"})])
    tasks = [_start(pool, "/first"), _start(pool, "/second")]
    await until(lambda: pool.waiting == 1)
    tasks[0].add_done_callback(lambda _: tasks.append(_start(pool, "/third")))
    gate.set()
    await asyncio.gather(*tasks[:2])
    await tasks[2]
    assert [request.target for request in server.requests] == ["/first", "/second", "/third"]


async def test_fifty_calls_cancelled_at_every_turn_leak_nothing(
    server: FaultServer, open_pool: OpenPool
) -> None:
    pool = open_pool(server.url, limits=Limits(connections=2))
    server.default = Reply(chunks=[b"{}"])
    for turn in range(50):
        task = _start(pool)
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        if turn % 3 == 0:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
    end, sink = await run(pool)
    assert (end.fault, sink.body) == (Fault.NONE, b"{}")
    await pool.aclose()
    assert (pool.open_connections, pool.idle_connections, pool.waiting) == (0, 0, 0)


async def test_fifty_calls_at_once_cancelled_leak_nothing(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url, limits=Limits(connections=2))
    server.default = wire.never_answer()
    tasks = [_start(pool) for _ in range(50)]
    await server.received(2)
    for turn, task in enumerate(tasks):
        task.cancel()
        if turn % 7 == 0:
            await asyncio.sleep(0)
            task.cancel()
    await asyncio.wait(tasks)
    await until(lambda: pool.open_connections == 0)
    server.default = Reply()
    end, _ = await run(pool)
    assert end.fault is Fault.NONE


async def test_a_cancelled_connect_passes_its_place_on(open_pool: OpenPool, server: FaultServer) -> None:
    pool = open_pool(server.url_as("https"), limits=Limits(connections=1))
    server.default = wire.never_read()
    first, second = _start(pool), _start(pool)
    await server.accepted(1)
    assert pool.waiting == 1
    first.cancel()
    await server.accepted(2)
    assert (pool.open_connections, pool.waiting) == (1, 0)
    second.cancel()
    await asyncio.wait([first, second])


async def test_a_failed_connect_passes_its_place_on(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url_as("https"), limits=Limits(connections=1))
    server.default = wire.close_on_accept()
    ends = await asyncio.gather(*(_start(pool) for _ in range(5)))
    assert {end.fault for end in ends} == {Fault.TLS}
    assert server.connections == 5
    await until(lambda: pool.open_connections == 0)


async def test_a_thousand_waiters_cost_little(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url, limits=Limits(connections=4))
    tasks = [_start(pool) for _ in range(1000)]
    ends = await asyncio.gather(*tasks)
    assert {end.fault for end in ends} == {Fault.NONE}
    assert server.connections <= 4


async def test_closing_cuts_what_runs_waits_and_connects(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url, limits=Limits(connections=1))
    server.default = wire.never_answer()
    tasks = [_start(pool), _start(pool)]
    await server.received(1)
    await pool.aclose()
    ends = await asyncio.gather(*tasks)
    assert {(end.fault, end.cause) for end in ends} == {(Fault.CUT, Cause.DRAIN)}
    assert [end.stage for end in ends] == [Stage.WRITTEN, Stage.NOT_WRITTEN]
    assert pool.open_connections == 0
    late, _ = await run(pool)
    assert (late.fault, late.cause) == (Fault.CUT, Cause.DRAIN)


async def test_a_pool_survives_an_exchange_whose_sink_fails(server: FaultServer, open_pool: OpenPool) -> None:
    pool = open_pool(server.url, limits=Limits(connections=1))
    failing = asyncio.ensure_future(pool.exchange(post(), Recorder(raise_in="written")).run())
    after = _start(pool)
    assert (await failing).fault is Fault.BUG
    assert (await after).fault is Fault.NONE


async def test_every_exchange_may_have_its_own_timeouts(server: FaultServer, pool: Pool) -> None:
    server.script([wire.never_answer()])
    end, _ = await run(pool, request=HttpRequest("GET", "/"), timeouts=Timeouts(first_byte=0.05))
    assert end.fault is Fault.FIRST_BYTE_TIMEOUT
