"""From client to provider with a ledger between: what a provider is asked for once, and what failures leave behind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import modelmeter
from modelmeter import ModelmeterError
from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.plan import completion_hold
from modelmeter_server.ledger.commands import Resend
from modelmeter_server.ledger.storage import StoredLedger
from tests.conformance.asking import ask
from tests.e2e import hostile
from tests.support import anthropic_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import Interruptible, ledger_in, put_ceiling, rows_of, until, until_settled
from tests.support.provider_service import ProviderService, provider_service

ANSWER = Reply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hello."))])
LIMITED = Reply(status=429, chunks=[b'{"type":"error","error":{"type":"rate_limit_error","message":"wait"}}'])
FAILING = Reply(status=500, chunks=[b"{}"])
SILENT = Reply(silent=True, end="stall")


@asynccontextmanager
async def service(
    folder: Path, reply: Reply = ANSWER
) -> AsyncIterator[tuple[ProviderService, StoredLedger, FaultServer]]:
    """Serve one scripted provider with a ledger."""
    async with (
        ledger_in(folder) as ledger,
        FaultServer(reply) as provider,
        provider_service(provider, ledger=ledger) as serving,
    ):
        yield serving, ledger, provider


class Retrying(grpc.aio.UnaryUnaryClientInterceptor):
    """What many deployments wrap around every call: try again a few times, whatever it costs."""

    def __init__(self) -> None:
        self.tries = 0

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        while True:
            self.tries += 1
            call = await continuation(details, request)
            code = await call.code()
            if self.tries == 4 or code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED):
                return call


async def through(retrying: Retrying, address: str, call_id: str) -> grpc.StatusCode:
    """Ask once through the interceptor; return how that ended."""
    async with grpc.aio.insecure_channel(address, interceptors=[retrying]) as channel:
        stub: Any = model_service_pb2_grpc.ModelServiceStub(channel)
        request = model_service_pb2.CompleteRequest(model="anthropic", text="Hi", call_id=call_id)
        call = stub.Complete(request, timeout=10)
        code: grpc.StatusCode = await call.code()
        return code


@pytest.mark.parametrize("end", ["reset", "truncate"])
async def test_a_retrying_interceptor_gets_one_provider_request_for_a_call_that_landed(tmp_path, end):
    began = Reply(chunks=[hostile.start("anthropic")], end=end)
    async with service(tmp_path, began) as (serving, ledger, provider):
        retrying = Retrying()
        code = await through(retrying, serving.address, str(uuid.uuid4()))
        rows = await rows_of(ledger)
    assert (code, retrying.tries) == (grpc.StatusCode.ABORTED, 4)
    assert len(provider.requests) == 1
    assert len(rows) == 1


async def test_a_throttled_call_is_sent_once_more_under_its_id(tmp_path):
    async with service(tmp_path) as (serving, ledger, provider):
        provider.script([LIMITED])
        call_id = str(uuid.uuid4())
        with pytest.raises(modelmeter.RateLimitedError):
            await serving.client.complete("anthropic", "Hi", call_id=call_id)
        answer = await serving.client.complete("anthropic", "Hi", call_id=call_id)
        again = await serving.client.complete("anthropic", "Hi", call_id=call_id)
        (row,) = await rows_of(ledger)
    assert (answer.replayed, again.replayed) == (False, True)
    assert len(provider.requests) == 2
    assert (row.dispatch, row.attempts_total) == (2, 2)


async def bounded(serving: ProviderService, ledger: StoredLedger) -> None:
    """Leave room for a hundred calls."""
    request = CompletionRequest(model="anthropic", call_id="c", text="Hi")
    model = serving.engine.catalog.find("anthropic")
    assert model is not None
    await put_ceiling(ledger, tokens=100 * completion_hold(request, model).tokens)


async def test_a_thousand_answers_of_500_lock_nobody_out(tmp_path):
    async with service(tmp_path, FAILING) as (serving, ledger, provider):
        await bounded(serving, ledger)
        for _ in range(20):
            asked = (serving.client.complete("anthropic", "Hi") for _ in range(50))
            failed = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(each) for each in failed} == {modelmeter.UnavailableError}
        rows = await rows_of(ledger)
        assert sum(row.booking.possibly_billed for row in rows) == len(rows) == 1000
        assert sum(row.booking.unsettled_tokens + row.booking.held_tokens for row in rows) == 0
        provider.default = ANSWER
        answer = await serving.client.complete("anthropic", "Hi")
    assert answer.settled


async def test_a_thousand_callers_that_leave_lock_nobody_out(tmp_path):
    async with service(tmp_path, SILENT) as (serving, ledger, provider):
        await bounded(serving, ledger)
        for batch in range(1, 21):
            asked = [asyncio.ensure_future(serving.client.complete("anthropic", "Hi")) for _ in range(50)]
            await provider.received(50 * batch)
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        await until_settled(ledger, 1000)
        provider.default = ANSWER
        answer = await serving.client.complete("anthropic", "Hi")
    assert answer.settled


async def test_a_connection_that_went_stale_is_a_dispatch_of_its_own(tmp_path):
    async with service(tmp_path) as (serving, ledger, provider):
        await serving.client.complete("anthropic", "Hi")
        provider.script([Reply(silent=True, end="reset")])
        answer = await serving.client.complete("anthropic", "Hi")
        newest, first = await rows_of(ledger)
    assert answer.text == "Hello."
    assert (first.attempts_total, newest.attempts_total) == (1, 2)
    assert len(provider.requests) == 3


LOST = Reply(silent=True, end="reset")
ROOM_FOR_TWO = 1_000


@pytest.mark.parametrize("face", ["unary", "stream"])
@pytest.mark.parametrize(("more", "is_sent"), [(0, False), (ROOM_FOR_TWO, True)])
async def test_a_request_leaves_again_only_if_a_ceiling_has_room_for_what_the_first_may_have_cost(
    tmp_path, face, more, is_sent
):
    async with service(tmp_path) as (serving, ledger, provider):
        await ask(serving.client, face, "anthropic", "Hi")
        (first,) = await rows_of(ledger)
        room = first.booking.settled_tokens + first.hold.tokens + more
        await put_ceiling(ledger, tokens=room)
        provider.script([LOST])
        heard = await ask(serving.client, face, "anthropic", "Hi")
        newest, _ = await rows_of(ledger)
    booked = newest.booking
    assert first.booking.settled_tokens + booked.settled_tokens + booked.unsettled_tokens <= room
    assert booked.unsettled_tokens >= first.hold.input_tokens
    assert heard.kind == ("COMPLETION" if is_sent else "UNAVAILABLE")
    assert heard.result.attempts_total == newest.attempts_total == len(provider.requests) - 1


async def test_the_bound_on_a_request_that_was_silent_for_long_goes_by_its_seconds(tmp_path):
    async with service(tmp_path) as (serving, ledger, provider):
        await serving.client.complete("anthropic", "Hi")
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, gate.set)
        provider.script([Reply(silent=True, end="reset", gate=gate)])
        answer = await serving.client.complete("anthropic", "Hi")
        newest, _ = await rows_of(ledger)
    lost, _ = answer.attempts
    assert (lost.elapsed or 0) >= 0.15
    assert newest.booking.unsettled_tokens >= newest.hold.input_tokens + 0.15 * newest.hold.tokens_per_second


@pytest.mark.parametrize("face", ["unary", "stream"])
async def test_a_request_that_may_not_leave_again_does_not_hide_that_the_first_one_left(tmp_path, face):
    async with ledger_in(tmp_path) as stored, FaultServer(ANSWER) as provider:
        away = Interruptible(stored)
        async with provider_service(provider, ledger=away) as serving:
            await ask(serving.client, face, "anthropic", "Hi")
            away.goes_before = Resend
            provider.script([LOST])
            heard = await ask(serving.client, face, "anthropic", "Hi")
            await away.come_back()
        newest, _ = await rows_of(away)
    assert (heard.kind, heard.result.certainty.name, heard.result.attempts_total) == (
        "UNAVAILABLE",
        "UNKNOWN",
        1,
    )
    assert "once more" in str(heard.result)
    assert newest.booking.unsettled_tokens >= newest.hold.input_tokens


async def test_a_replayed_run_asks_the_provider_for_nothing_and_gives_equal_answers(tmp_path):
    async with service(tmp_path) as (serving, _, provider):

        async def run(call_ids: list[str]) -> list[Any]:
            asked = (
                serving.client.complete("anthropic", f"Question {number}", call_id=call_id)
                for number, call_id in enumerate(call_ids)
            )
            return await asyncio.gather(*asked)

        call_ids = [str(uuid.uuid4()) for _ in range(200)]
        first, again = await run(call_ids), await run(call_ids)
    assert len(provider.requests) == 200
    assert all(answer.replayed for answer in again)
    assert [(a.text, a.usage, a.cost, a.call_id, a.attempts) for a in first] == [
        (a.text, a.usage, a.cost, a.call_id, a.attempts) for a in again
    ]


async def test_a_client_that_vanishes_in_mid_stream_leaves_an_exact_row_or_a_bound(tmp_path):
    began = Reply(chunks=[hostile.start("anthropic")], end="stall")
    async with service(tmp_path, began) as (serving, ledger, provider):
        with pytest.raises(ModelmeterError):
            await serving.client.complete("anthropic", "Hi", timeout=0.3)
        await until(lambda: serving.engine.calls_in_flight == 0)
        (row,) = await rows_of(ledger)
    assert (row.kind, row.cause) == ("INTERRUPTED", "DEADLINE")
    assert row.booking.settled_tokens == row.figures.tokens > 0
    assert row.booking.unsettled_tokens > 0
    assert len(provider.requests) == 1
