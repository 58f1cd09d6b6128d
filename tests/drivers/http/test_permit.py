"""Who must allow a request to leave is asked once there is a connection, and before the first byte."""

from __future__ import annotations

import asyncio

from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.drivers.http import Fault
from tests.drivers.http.recorder import Recorder, post, until
from tests.support.fault_server import FaultServer, Reply


class Gate:
    """Ask each time; answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def __call__(self, attempt: int) -> asyncio.Future[bool]:
        self.asked.append(attempt)
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


async def test_not_a_byte_leaves_before_the_answer(open_pool):
    gate = Gate()
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        pool = open_pool(server.url)
        running = asyncio.ensure_future(pool.exchange(post(), Recorder(), permit=gate).run())
        await until(lambda: gate.asked == [1])
        assert server.connections == 1
        assert server.requests == []
        gate.answer.set_result(True)
        end = await running
    assert (end.fault, len(server.requests)) == (Fault.NONE, 1)


async def test_what_may_not_leave_does_not_and_the_connection_serves_the_next(open_pool):
    gate = Gate()
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        pool = open_pool(server.url)
        running = asyncio.ensure_future(pool.exchange(post(), sink := Recorder(), permit=gate).run())
        await until(lambda: gate.asked == [1])
        gate.answer.set_result(False)
        end = await running
        again = await pool.exchange(post(), Recorder()).run()
    assert (end.fault, end.stage, end.request_written) == (Fault.NOT_ALLOWED, Stage.NOT_WRITTEN, False)
    assert sink.calls == []
    assert again.fault is Fault.NONE
    assert (server.connections, len(server.requests)) == (1, 1)


async def test_nobody_has_to_wait_for_an_answer_that_nobody_gives(open_pool):
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        end = await open_pool(server.url).exchange(post(), Recorder(), permit=lambda _: None).run()
    assert end.fault is Fault.NONE


async def test_a_cut_ends_the_wait_and_a_late_answer_sends_nothing(open_pool):
    gate = Gate()
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        exchange = open_pool(server.url).exchange(post(), Recorder(), permit=gate)
        running = asyncio.ensure_future(exchange.run())
        await until(lambda: gate.asked == [1])
        exchange.cut(Cause.CALLER)
        end = await running
        gate.answer.set_result(True)
        await asyncio.sleep(0)
    assert (end.fault, end.stage) == (Fault.CUT, Stage.NOT_WRITTEN)
    assert server.requests == []


async def test_a_fault_of_the_one_who_is_asked_is_ours(open_pool):
    gate = Gate()
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        running = asyncio.ensure_future(open_pool(server.url).exchange(post(), Recorder(), permit=gate).run())
        await until(lambda: gate.asked == [1])
        gate.answer.set_exception(KeyError("secret"))
        end = await running
    assert (end.fault, end.stage) == (Fault.BUG, Stage.NOT_WRITTEN)
    assert "secret" not in end.detail


async def test_a_request_that_is_sent_again_is_asked_for_again(open_pool):
    asked: list[int] = []

    def allow(attempt: int) -> asyncio.Future[bool]:
        asked.append(attempt)
        return _now(True)

    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        pool = open_pool(server.url)
        await pool.exchange(post(), Recorder()).run()
        server.script([Reply(silent=True, end="reset")])
        end = await pool.exchange(post(), Recorder(), permit=allow).run()
    assert (end.fault, end.attempts) == (Fault.NONE, 2)
    assert asked == [1, 2]


async def test_an_answer_to_an_earlier_question_holds_for_the_connection_that_replaces_one(open_pool):
    gate = Gate()
    async with FaultServer(Reply(chunks=[b"yes"])) as server:
        pool = open_pool(server.url)
        await pool.exchange(post(), Recorder()).run()
        running = asyncio.ensure_future(pool.exchange(post(), Recorder(), permit=gate).run())
        await until(lambda: gate.asked == [1])
        server.drop(0)
        await server.accepted(2)
        await until(lambda: pool.open_connections == 1)
        # By the time that a later request is answered, whatever had left before it would have arrived.
        await pool.exchange(post(), Recorder()).run()
        assert len(server.requests) == 2, "nothing leaves over the fresh connection either"
        gate.answer.set_result(True)
        end = await running
    assert (end.fault, end.attempts, gate.asked) == (Fault.NONE, 1, [1])
    assert len(server.requests) == 3


def _now(answer: bool) -> asyncio.Future[bool]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done
