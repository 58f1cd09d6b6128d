"""Retries with a ledger between: every attempt is held and billed by itself, and a call's bill is their sum."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from modelmeter import CallCeiling, Certainty, Completion, ErrorKind, ModelmeterError
from modelmeter_server.core.models import OnCancel
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.plan import completion_hold
from modelmeter_server.ledger.rows import CallRow
from modelmeter_server.ledger.storage import StoredLedger
from tests.conformance.asking import ask
from tests.e2e.retry_service import MODEL, model, requests_of, tried
from tests.support.ledgers import ledger_in, put_ceiling, rows_of, until, until_settled
from tests.support.provider_service import ProviderService
from tests.support.retry_faults import reply

ANSWER_TOKENS = 12 + 20
"""Of each whole answer of the provider, blank ones as well."""
ANSWER_NANOS = 12 + 2 * 20
HELD = completion_hold(CompletionRequest(model=MODEL, call_id="c", text="Hi"), model("anthropic")).tokens


@asynccontextmanager
async def booked(
    folder: Path, faults: Sequence[str], **terms: Any
) -> AsyncIterator[tuple[ProviderService, StoredLedger]]:
    async with ledger_in(folder) as ledger, tried("anthropic", faults, ledger=ledger, **terms) as service:
        yield service, ledger


async def only_row(ledger: StoredLedger) -> CallRow:
    (row,) = await rows_of(ledger)
    return row


@pytest.mark.parametrize("seed", range(10))
async def test_the_bill_of_a_call_is_what_its_provider_has_counted(tmp_path: Path, seed: int):
    outcomes = Random(seed).choices(["blank", "limited", "answer"], weights=(3, 3, 1), k=6)
    asked = outcomes[: outcomes.index("answer") + 1] if "answer" in outcomes else outcomes
    whole = len(asked) - asked.count("limited")
    async with booked(tmp_path, outcomes, max_attempts=6, landed=True) as (service, ledger):
        heard = await ask(service.client, "unary", MODEL, "Hi")
        assert requests_of(service) == len(asked)
        row = await only_row(ledger)
    assert (heard.kind == "COMPLETION") == ("answer" in outcomes)
    assert row.booking.settled_tokens == whole * ANSWER_TOKENS
    assert row.booking.settled_nanos == whole * ANSWER_NANOS
    assert row.booking.held_tokens == row.booking.unsettled_tokens == 0
    if whole:
        assert heard.result.usage.input_tokens == whole * 12
        assert heard.result.cost is not None
        assert heard.result.cost.nano_units == whole * ANSWER_NANOS


async def test_every_attempt_is_a_row_with_its_own_figures_and_the_call_has_their_sum(tmp_path: Path):
    async with booked(tmp_path, ["blank", "limited"], max_attempts=3, landed=True) as (service, _):
        completion = await service.client.complete(MODEL, "Hi")
        row = await service.client.ledger.get_call(completion.call_id, full=True)
    assert [(each.number, each.kind.name) for each in row.attempts] == [
        (1, "UNUSABLE"),
        (2, "RATE_LIMITED"),
        (3, "UNSPECIFIED"),
    ]
    assert [each.usage.output_tokens for each in row.attempts] == [20, None, 20]
    assert row.usage == completion.usage
    assert (row.certainty, row.cost, row.attempts_total) == (completion.certainty, completion.cost, 3)


async def test_a_silent_attempt_stays_held_beside_the_answer(tmp_path: Path):
    async with booked(tmp_path, ["silence"], max_attempts=2, ambiguous=True) as (service, ledger):
        completion = await service.client.complete(MODEL, "Hi")
        row = await only_row(ledger)
        told = await service.client.ledger.get_call(completion.call_id)
    assert completion.certainty is told.certainty is Certainty.AT_LEAST
    assert row.booking.settled_tokens == ANSWER_TOKENS
    assert row.booking.unsettled_tokens >= row.hold.input_tokens


async def test_an_attempt_that_a_provider_answered_with_an_error_holds_nothing_and_is_counted(tmp_path: Path):
    async with booked(tmp_path, ["away"], max_attempts=2) as (service, ledger):
        await service.client.complete(MODEL, "Hi")
        row = await only_row(ledger)
    assert (row.booking.settled_tokens, row.booking.unsettled_tokens) == (ANSWER_TOKENS, 0)
    assert row.booking.possibly_billed == 1


@pytest.mark.parametrize(("room", "requests"), [(HELD + ANSWER_TOKENS, 2), (HELD + ANSWER_TOKENS - 1, 1)])
@pytest.mark.parametrize("whose", ["tenant", "call"])
async def test_another_attempt_needs_room_beside_what_the_one_before_cost(
    tmp_path: Path, whose: str, room: int, requests: int
):
    async with booked(tmp_path, ["blank"], max_attempts=3, landed=True) as (service, ledger):
        if whose == "tenant":
            await put_ceiling(ledger, tokens=room)
        own = CallCeiling(tokens=room) if whose == "call" else None
        heard = await ask(service.client, "unary", MODEL, "Hi", ceiling=own)
        row = await only_row(ledger)
        assert requests_of(service) == requests
    assert heard.kind == ("COMPLETION" if requests == 2 else "UNUSABLE")
    assert row.booking.settled_tokens == requests * ANSWER_TOKENS


async def test_an_attempt_that_cost_nothing_needs_no_more_room(tmp_path: Path):
    async with booked(tmp_path, ["limited", "limited"], max_attempts=3) as (service, ledger):
        await put_ceiling(ledger, tokens=HELD)
        completion = await service.client.complete(MODEL, "Hi")
        assert requests_of(service) == 3
    assert isinstance(completion, Completion)


async def test_a_failed_call_that_landed_once_is_pinned_and_never_bought_again(tmp_path: Path):
    call_id = uuid.uuid4()
    async with booked(tmp_path, ["blank", "limited"], max_attempts=2, landed=True) as (service, _):
        first = await ask(service.client, "unary", MODEL, "Hi", call_id=call_id)
        again = await ask(service.client, "unary", MODEL, "Hi", call_id=call_id)
        assert requests_of(service) == 2
    assert first.kind == again.kind == "UNUSABLE"
    assert first.result.usage == again.result.usage
    assert first.result.attempts_total == again.result.attempts_total == 2


async def test_a_call_that_never_happened_counts_its_attempts_on_when_it_is_asked_for_again(tmp_path: Path):
    call_id = uuid.uuid4()
    async with booked(tmp_path, ["limited"] * 3, max_attempts=2) as (service, _):
        first = await ask(service.client, "unary", MODEL, "Hi", call_id=call_id)
        again = await ask(service.client, "unary", MODEL, "Hi", call_id=call_id)
        row = await service.client.ledger.get_call(call_id, full=True)
    assert (first.kind, again.kind) == ("RATE_LIMITED", "COMPLETION")
    assert [each.number for each in row.attempts] == [1, 2, 3, 4]


# Callers who join


@pytest.mark.parametrize("face", ["unary", "stream"])
async def test_who_joins_a_call_that_is_tried_again_hears_its_one_outcome(tmp_path: Path, face: Any):
    call_id, gate = uuid.uuid4(), asyncio.Event()
    async with booked(tmp_path, ["limited", "answer"], max_attempts=2) as (service, _):
        service.provider._script[1].gate = gate  # the second reply waits until both callers are there
        first = asyncio.create_task(ask(service.client, face, MODEL, "Hi", call_id=call_id))
        await service.provider.received(2)
        second = asyncio.create_task(ask(service.client, face, MODEL, "Hi", call_id=call_id))
        await until(lambda: any(call.audience.has_joiners for call in service.engine._inflight.calls))  # type: ignore[attr-defined]
        gate.set()
        heard = await asyncio.gather(first, second)
        assert requests_of(service) == 2
    assert [each.result.attempts_total for each in heard] == [2, 2]
    assert sorted(isinstance(each.result, Completion) and each.result.replayed for each in heard) == [
        False,
        True,
    ]
    if face == "stream":
        assert [each.text for each in heard] == ["Hello.", "Hello."]


# A wait that is ended from outside

FOR_EVER: dict[str, Any] = {"initial_wait": 100.0, "max_wait": 100.0}


async def waits(ledger: StoredLedger) -> None:
    """Wait until the first attempt is booked, so that the call waits for its second one."""
    async with asyncio.timeout(5):
        while True:
            rows = await rows_of(ledger)
            if rows and rows[0].tried is not None:
                return


@pytest.mark.parametrize(
    ("fault", "kind", "certainty", "settled"),
    [("limited", "RATE_LIMITED", "NONE", 0), ("blank", "UNUSABLE", "EXACT", ANSWER_TOKENS)],
)
async def test_a_caller_who_leaves_ends_the_wait_and_the_bill_stays(
    tmp_path: Path, fault: str, kind: str, certainty: str, settled: int
):
    async with booked(tmp_path, [fault], max_attempts=2, landed=True, **FOR_EVER) as (service, ledger):
        asking = asyncio.create_task(service.client.complete(MODEL, "Hi"))
        await waits(ledger)
        asking.cancel()
        async with asyncio.timeout(5):
            while (row := await only_row(ledger)).ended_at is None:
                pass
        assert requests_of(service) == 1
    assert (row.kind, row.cause, row.told.certainty) == (kind, "CALLER", certainty)
    assert (row.booking.settled_tokens, row.booking.held_tokens) == (settled, 0)


async def test_a_shutdown_ends_the_wait_with_the_providers_error(tmp_path: Path):
    # Not for ever: a wait that nothing ends would hold up the service's own end too.
    async with booked(tmp_path, ["limited"], max_attempts=2, initial_wait=8.0, max_wait=8.0) as (
        service,
        ledger,
    ):
        asking = asyncio.create_task(service.client.complete(MODEL, "Hi"))
        await waits(ledger)
        async with asyncio.timeout(3):
            assert await service.engine.drain(0) == 1
        with pytest.raises(ModelmeterError) as caught:
            await asking
    assert (caught.value.kind, caught.value.cause.name) == (ErrorKind.RATE_LIMITED, "DRAIN")


@pytest.mark.parametrize("mode", ["admission", "cut"])
@pytest.mark.parametrize("shape", ["unary", "stream"])
async def test_a_halt_of_either_mode_ends_the_wait(
    tmp_path: Path, shape: Literal["unary", "stream"], mode: str
):
    async with booked(tmp_path, ["limited"], max_attempts=2, **FOR_EVER) as (service, ledger):
        asking = asyncio.create_task(ask(service.client, shape, MODEL, "Hi"))
        await waits(ledger)
        await service.client.ledger.halt("model", MODEL, mode=mode, reason="looping")
        heard = await asking
        assert requests_of(service) == 1
    assert heard.kind == "HALTED"
    assert heard.result.certainty is Certainty.NONE


@pytest.mark.parametrize(("fault", "kind"), [("limited", "HALTED"), ("blank", "UNUSABLE")])
async def test_under_a_halt_that_lets_calls_go_on_none_is_tried_again(tmp_path: Path, fault: str, kind: str):
    goes_on = asyncio.Event()
    async with booked(tmp_path, [], max_attempts=3, landed=True, **FOR_EVER) as (service, ledger):
        failing = reply("anthropic", fault)
        failing.gate = goes_on
        service.provider.script([failing])
        asking = asyncio.create_task(ask(service.client, "unary", MODEL, "Hi"))
        await service.provider.received(1)
        await service.client.ledger.halt("model", MODEL, mode="admission")
        goes_on.set()
        heard = await asking
        assert requests_of(service) == 1
        row = await only_row(ledger)
    assert heard.kind == kind
    assert isinstance(heard.result, ModelmeterError)
    assert not heard.result.retryable
    assert row.booking.settled_tokens == (ANSWER_TOKENS if kind == "UNUSABLE" else 0)


# Time


async def test_a_wait_that_does_not_fit_into_the_deadline_is_not_begun(tmp_path: Path):
    async with booked(tmp_path, ["limited-named"], max_attempts=2, max_wait=3600.0) as (service, ledger):
        with pytest.raises(ModelmeterError) as caught:
            await service.client.complete(MODEL, "Hi", timeout=60)
        row = await only_row(ledger)
    assert (caught.value.kind, caught.value.cause.name) == (ErrorKind.RATE_LIMITED, "PROVIDER")
    assert caught.value.retry_after == 120
    assert row.tried is None


async def test_a_wait_that_does_not_fit_into_the_time_of_all_attempts_is_not_begun():
    async with tried("anthropic", ["limited"], max_attempts=2, total=40.0, **FOR_EVER) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi")
    assert heard.kind == "RATE_LIMITED"


async def test_all_attempts_together_end_when_their_time_is_up():
    async with tried("anthropic", ["stall"], max_attempts=2, total=0.05, ambiguous=True) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi")
        assert requests_of(service) == 1
    assert isinstance(heard.result, ModelmeterError)
    assert heard.result.cause.name == "TOTAL_TIMEOUT"


async def test_a_call_that_is_asked_once_has_no_such_limit():
    async with tried("anthropic", [], max_attempts=1, total=0.0) as service:
        heard = await ask(service.client, "unary", MODEL, "Hi")
    assert heard.kind == "COMPLETION"


@pytest.mark.parametrize("fault", ["limited", "blank"])
async def test_a_request_that_is_read_on_for_its_bill_alone_is_not_followed_by_another(
    tmp_path: Path, fault: str
):
    async with booked(tmp_path, [], max_attempts=3, landed=True, on_cancel=OnCancel.DRAIN) as (
        service,
        ledger,
    ):
        held = asyncio.Event()
        service.provider.script([replace(reply("anthropic", fault), gate=held)])
        asking = asyncio.create_task(service.client.complete(MODEL, "Hi"))
        (call,) = await _under_way(service)
        asking.cancel()
        await until(lambda: call.audience.told.done())
        held.set()
        await until_settled(ledger)
        assert requests_of(service) == 1


async def _under_way(service: ProviderService) -> Sequence[Any]:
    """Return the calls whose requests the provider has."""
    inflight: Any = service.engine._inflight
    await until(lambda: any(each.provider.is_under_way for each in inflight.calls))
    return list(inflight.calls)
