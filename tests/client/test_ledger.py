"""The client's ledger, and what a client does when contact to a call is lost, on both faces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

import modelmeter
from modelmeter import CallCeiling, CallState, Effect, Figure, Subject, Usage
from modelmeter._asking import is_worth_asking, verdict
from modelmeter._ledger_results import call_from
from modelmeter._lost import CallRecord, error_without_outcome
from modelmeter._requests import complete_request, stream_request
from modelmeter.v1 import error_pb2, usage_pb2
from modelmeter.v1 import ledger_service_pb2 as pb
from tests.support.ledgers import ledger_in
from tests.support.running_server import serving
from tests.support.scripted_driver import Broken, ScriptedDriver, Step, Written, answering, opening, text

CALL_ID = "6f2c1c9b-5b0c-4f7e-8a86-6b1c9f0e2d11"
CUT: list[Step] = [Written(), opening(), text("Hel"), Broken()]


@asynccontextmanager
async def client_of(kind: str, address: str) -> AsyncIterator[Any]:
    """Yield a function that calls a method of either client, such as `ask("ledger.get_call", id)`."""
    client: Any = (
        modelmeter.AsyncClient(address, timeout=10)
        if kind == "async"
        else modelmeter.Client(address, timeout=10)
    )

    async def ask(path: str, *args: Any, **options: Any) -> Any:
        method = client
        for name in path.split("."):
            method = getattr(method, name)
        many = path.endswith("list_calls")
        if kind == "sync":
            return await asyncio.to_thread(
                lambda: [*method(*args, **options)] if many else method(*args, **options)
            )
        if many:
            return [call async for call in method(*args, **options)]
        return await method(*args, **options)

    try:
        yield ask
    finally:
        await client.close() if kind == "async" else client.close()


@pytest.fixture(params=["sync", "async"])
async def ask(request, tmp_path: Path) -> AsyncIterator[Any]:
    """Return each client's methods, connected to a server that answers once and then breaks."""
    async with (
        ledger_in(tmp_path) as ledger,
        serving(ScriptedDriver(answering(), CUT, answering()), ledger=ledger) as running,
        client_of(request.param, running.address) as found,
    ):
        yield found


async def test_a_call_is_looked_up_listed_and_read_again(ask):
    told = await ask("complete", "claude", "Hi", call_id=CALL_ID, labels={"team": "blue"})
    call = await ask("ledger.get_call", CALL_ID, full=True)
    listed = await ask("ledger.list_calls", labels={"team": "blue"}, page_size=1)
    read = await ask("ledger.read_answer", CALL_ID)
    assert (call.state, call.answered, call.usage) == (CallState.SETTLED, True, told.usage)
    assert [each.call_id for each in listed] == [CALL_ID]
    assert read.text == call.completion.text == told.text
    assert told.settled
    assert abs(datetime.now(UTC) - call.reserved_at) < timedelta(minutes=5)


async def test_spend_ceilings_and_halts_are_set_and_told(ask):
    told = await ask("complete", "claude", "Hi")
    (spend,) = await ask("ledger.spend", by="model", period="day")
    assert (spend.value, spend.settled.tokens) == (
        "claude",
        told.usage.input_tokens + told.usage.output_tokens,
    )
    kept = await ask("ledger.set_ceiling", "tenant", tokens=1, window="month")
    with pytest.raises(modelmeter.CeilingError) as caught:
        await ask("complete", "claude", "Hi")
    assert caught.value.standings[0].settled == spend.settled.tokens
    assert (await ask("ledger.ceiling", kept.ceiling_id)) == (await ask("ledger.ceilings"))[0]
    await ask("ledger.delete_ceiling", kept.ceiling_id)
    halt = await ask("ledger.halt", "run", "r", reason="audit")
    assert await ask("ledger.halts") == [halt]
    assert halt.subject == Subject("RUN", "r")
    await ask("ledger.clear_halt", "run", "r")
    assert await ask("ledger.halts") == []


async def test_a_figure_is_booked_and_content_erased(ask):
    await ask("complete", "claude", "Hi")
    with pytest.raises(modelmeter.CallInterruptedError):
        await ask("complete", "claude", "Hi", call_id=CALL_ID)
    with pytest.raises(modelmeter.RefusedError) as caught:
        await ask("ledger.reconcile", CALL_ID)
    assert caught.value.reason == "NOT_RECONCILABLE"
    figure = Figure(Usage(input_tokens=25, output_tokens=7), "invoice")
    done = await ask("ledger.reconcile", CALL_ID, figure)
    assert (done.raised, done.call.state, done.call.usage.output_tokens) == (True, CallState.RECONCILED, 7)
    assert await ask("ledger.erase", everything=True) == 2
    with pytest.raises(TypeError):
        await ask("ledger.erase")


async def test_an_effect_is_bought_once_and_a_miss_is_told(ask):
    effect = Effect("run", "step 1")
    first = await ask("complete", "claude", "Hi", effect=effect)
    again = await ask("complete", "claude", "Hi", effect=effect)
    assert (first.replayed, again.replayed, again.text) == (False, True, first.text)
    with pytest.raises(modelmeter.ReplayMissError):
        await ask("complete", "claude", "Hi", replay_only=True)
    with pytest.raises(modelmeter.DivergedError) as caught:
        await ask("complete", "claude", "Other", effect=effect)
    assert caught.value.differing_field


def test_the_values_of_a_call_become_its_request():
    request = complete_request(
        "m", "hi", effect=Effect("r", "k", "retry"), ceiling=CallCeiling(nano_units=5, currency="USD")
    )
    assert (request.effect.run_id, request.effect.on_landed_error) == ("r", 2)
    assert (request.ceiling.nano_units, request.ceiling.HasField("tokens")) == (5, False)
    assert stream_request(request, None, 7).from_sequence == 7


# Contact lost


def lost(code: grpc.StatusCode = grpc.StatusCode.RESOURCE_EXHAUSTED, **known: Any) -> Any:
    return error_without_outcome(CallRecord(CALL_ID, "m", **known), code)


def recorded(**fields: Any) -> Any:
    return call_from(pb.CallRecord(call_id=CALL_ID, **fields))


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (lost(), True),
        (lost(grpc.StatusCode.UNAVAILABLE), True),
        (lost(grpc.StatusCode.DEADLINE_EXCEEDED), True),
        (lost(grpc.StatusCode.UNAVAILABLE, cancelled=True), False),
        (lost(grpc.StatusCode.UNIMPLEMENTED), False),
        (error_without_outcome(CallRecord(), grpc.StatusCode.UNAVAILABLE), False),
        (modelmeter.CeilingError("no"), False),
    ],
)
def test_the_ledger_is_asked_when_it_may_know_more(error, worth):
    assert is_worth_asking(error) is worth


def test_a_failure_in_the_ledger_is_the_calls_own():
    call = recorded(
        state=pb.CALL_STATE_UNSETTLED,
        kind=error_pb2.ERROR_KIND_INTERRUPTED,
        disposition=error_pb2.DISPOSITION_LANDED,
        certainty=usage_pb2.CERTAINTY_AT_LEAST,
        usage=usage_pb2.Usage(input_tokens=9),
        message="it broke",
    )
    error = verdict(lost(), call)
    assert isinstance(error, modelmeter.CallInterruptedError)
    assert (error.usage.input_tokens, error.effect_outcome, error.retryable) == (9, "metered", False)
    assert error.recorded is call


def test_a_call_that_runs_stays_lost_with_what_was_told_so_far():
    call = recorded(state=pb.CALL_STATE_DISPATCHED, usage=usage_pb2.Usage(input_tokens=9))
    error = verdict(lost(), call)
    assert isinstance(error, modelmeter.LostContactError)
    assert (error.usage.input_tokens, error.recorded) == (9, call)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_answer_that_did_not_arrive_is_read_from_the_ledger(kind, tmp_path):
    async with (
        ledger_in(tmp_path) as ledger,
        serving(ScriptedDriver(answering("x" * 5000)), ledger=ledger) as running,
        client_of(kind, running.address) as ask,
    ):
        told = await ask("complete", "claude", "Hi", call_id=CALL_ID)
        client = (
            modelmeter.Client(running.address) if kind == "sync" else modelmeter.AsyncClient(running.address)
        )
        if isinstance(client, modelmeter.AsyncClient):
            found = await client._asked(lost())
            await client.close()
        else:
            found = await asyncio.to_thread(client._asked, lost())
            client.close()
    assert found.text == told.text
    assert found.replayed
