"""A caller that reads its stream slowly, or not at all: what is kept for it is bounded, and so is its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc

from modelmeter.v1 import model_service_pb2 as pb
from modelmeter.v1 import model_service_pb2_grpc, session_pb2
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Kind
from modelmeter_server.engine.call import Call
from tests.support import anthropic_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.provider_service import SHORT, ProviderService, provider_service
from tests.support.running_server import read_all, streaming
from tests.support.wire_bytes import frame

BUFFER = 64 * 1024
WORD = "x" * 8 * 1024
TIGHT = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024),
    ("grpc.max_receive_message_length", -1),
]
"""Options of a channel whose reader is known to be slow at once."""
PATIENT = replace(SHORT, total=60)


def start() -> bytes:
    events = (anthropic_events.start({"input_tokens": 7, "output_tokens": 1}), anthropic_events.opened(0))
    return b"".join(map(frame, events))


def end() -> bytes:
    last = anthropic_events.ended("end_turn", {"output_tokens": 9})
    return b"".join(map(frame, (anthropic_events.closed(0), last, anthropic_events.STOP)))


class Torrent:
    """An answer of `words` long words, as fast as they are taken; counts what left."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.left = 0

    def __iter__(self) -> Iterator[bytes]:
        yield start()
        for _ in range(self.words):
            self.left += 1
            yield frame(anthropic_events.text(0, WORD))
        yield end()


@asynccontextmanager
async def torrent(words: int, *, seconds: float) -> AsyncIterator[tuple[ProviderService, Torrent, Any]]:
    """Serve such an answer to readers that are let go after so many seconds."""
    source = Torrent(words)
    async with (
        FaultServer(Reply(chunks=source)) as provider,
        provider_service(provider, timeouts=PATIENT) as service,
        grpc.aio.insecure_channel(service.address, options=TIGHT) as channel,
    ):
        service.engine.reconfigure(
            service.engine.admission.limits, stream_buffer_bytes=BUFFER, slow_reader_seconds=seconds
        )
        yield service, source, model_service_pb2_grpc.ModelServiceStub(channel)


def running(service: ProviderService) -> Call | None:
    """Return the one call under way."""
    calls = service.engine._inflight.calls
    return calls[0] if calls and isinstance(calls[0], Call) else None


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells that a provider waits
            await asyncio.sleep(0.005)


def is_paused(service: ProviderService) -> bool:
    call = running(service)
    return call is not None and call.readers is not None and call.readers.is_paused


async def until_nothing_moves(service: ProviderService) -> None:
    """Wait until nothing was read for longer than a provider may be silent, with the call still there.

    The first pause need not be the last: the way to the caller takes some messages before it is full.
    """
    call = running(service)
    assert call is not None
    async with asyncio.timeout(10):
        while True:
            before = call.provider.received
            await asyncio.sleep(2 * PATIENT.idle)
            if is_paused(service) and call.provider.received == before:
                return
            assert running(service) is call


async def test_the_provider_waits_for_a_slow_reader_and_no_idle_timer_counts_that_time():
    async with torrent(4_000, seconds=60) as (service, source, stub):
        call = stub.StreamComplete(streaming(model="anthropic"), timeout=25)
        await call.read()
        await until(lambda: is_paused(service))
        await until_nothing_moves(service)
        assert source.left < source.words
        events, error = await read_all(call)
        assert error is None
        assert events[-1].completion.usage.output_tokens == 9
        text = "".join(event.text.text for event in events if event.WhichOneof("event") == "text")
        assert len(text) == source.words * len(WORD)
        assert max(len(event.text.text) for event in events) <= 2 * BUFFER + 256 * 1024


async def test_a_reader_that_takes_nothing_is_let_go_with_the_bill_and_the_provider_with_it():
    async with torrent(100_000, seconds=0.2) as (service, source, stub):
        call = stub.StreamComplete(streaming(model="anthropic"), timeout=25)
        await call.read()
        await until(lambda: service.memory.outcomes)
        await until(lambda: service.engine.admission.placed == 0)
        assert source.left < source.words
        (outcome,) = service.memory.outcomes
        failed = outcome.result
        assert isinstance(failed, Failure)
        assert (failed.kind, failed.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
        assert failed.certainty is Certainty.AT_LEAST
        assert failed.usage is not None
        assert failed.usage.input_tokens == 7
        events, error = await read_all(call)
        assert all(event.WhichOneof("event") in ("text", "usage") for event in events)
        assert error is not None


async def test_a_session_whose_messages_nobody_takes_ends_with_the_bill_of_its_turn():
    async with torrent(100_000, seconds=0.2) as (service, _, stub):
        session = stub.Session(timeout=25)
        await session.write(pb.SessionRequest(open=session_pb2.SessionOpen(model="anthropic")))
        await session.read()
        turn = pb.SessionTurn(request=pb.CompleteRequest(text="Hi"))
        await session.write(pb.SessionRequest(turn=turn))
        await until(lambda: service.memory.outcomes)
        await until(lambda: not len(service.engine.sessions))
        failed = service.memory.outcomes[0].result
        assert isinstance(failed, Failure)
        assert (failed.kind, failed.cause) == (Kind.INTERRUPTED, Cause.LIMIT)
        # Although the caller stays and reads nothing.
        await until(lambda: not service.engine.sessions._closing)
        error = await last_of(session)
        assert error.code() is grpc.StatusCode.ABORTED
        assert "AT_LEAST" in (error.details() or "")


async def last_of(session: Any) -> grpc.aio.AioRpcError:
    """Read a session to its end, which must be an error."""
    try:
        while await session.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError


async def test_a_place_is_kept_until_a_whole_answer_was_read_and_given_back_when_nobody_does():
    async with torrent(200, seconds=2) as (service, _, stub):
        service.engine.stream_buffer_bytes = 2**30
        call = stub.StreamComplete(streaming(model="anthropic"), timeout=25)
        await call.read()
        await until(lambda: service.memory.outcomes)
        assert not isinstance(service.memory.outcomes[0].result, Failure)
        await until(lambda: service.engine.calls_in_flight == 0)
        assert service.engine.admission.placed == 1
        await until(lambda: service.engine.admission.placed == 0)
        _, error = await read_all(call)
        assert error is not None
