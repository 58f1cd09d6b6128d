"""How much of an answer is taken: up to the limit and not one byte more, announced or not."""

from __future__ import annotations

import pytest

from modelmeter_server.drivers.http import Fault, Limits
from modelmeter_server.drivers.http.delivery import Delivery, Verdict
from tests.drivers.http.conftest import OpenPool
from tests.drivers.http.recorder import Recorder, run
from tests.support.fault_server import FaultServer, Framing, Reply

LIMIT = 3000
FRAMINGS: tuple[Framing, ...] = ("chunked", "length", "close")


async def fetched(server: FaultServer, open_pool: OpenPool, reply: Reply) -> tuple[Fault, Recorder]:
    server.script([reply])
    end, sink = await run(open_pool(server.url, limits=Limits(answer_bytes=LIMIT)))
    return end.fault, sink


async def test_a_budget_admits_an_answer_of_exactly_the_ceiling(
    server: FaultServer, open_pool: OpenPool
) -> None:
    for framing in FRAMINGS:
        whole = Reply(chunks=[b"x" * 1000] * 3, framing=framing)
        fault, sink = await fetched(server, open_pool, whole)
        assert (fault, len(sink.body)) == (Fault.NONE, LIMIT)


async def test_a_budget_refuses_the_chunk_that_crosses_it(server: FaultServer, open_pool: OpenPool) -> None:
    for framing in ("chunked", "close"):
        large = Reply(chunks=[*[b"x" * 1000] * 3, b"y"], framing=framing)
        fault, sink = await fetched(server, open_pool, large)
        assert (fault, len(sink.body)) == (Fault.ANSWER_LIMIT, LIMIT)


async def test_a_declared_oversize_is_refused_before_a_byte_is_read(
    server: FaultServer, open_pool: OpenPool
) -> None:
    fault, sink = await fetched(server, open_pool, Reply(chunks=[b"x"] * (LIMIT + 1), framing="length"))
    assert (fault, sink.calls) == (Fault.ANSWER_LIMIT, ["written", "head"])


@pytest.mark.parametrize(("status", "told"), [(200, []), (401, ["head", "data"]), (503, ["head", "data"])])
def test_behind_headers_over_the_limit_only_a_refusal_is_heard(status: int, told: list[str]) -> None:
    sink = Recorder()
    delivery = Delivery(sink, Limits(header_bytes=100), to_head=False)
    verdict = delivery.feed(b"HTTP/1.1 %d X\r\nx: %b\r\n\r\nbody" % (status, b"a" * 200))
    assert isinstance(verdict, Verdict)
    assert (verdict.fault, sink.calls) == (Fault.HEADER_LIMIT, told)
