"""Embeddings in the ledger, from client to provider: bought once, held, bounded, stopped, and told again to the bit."""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import modelmeter
from modelmeter import (
    CallCeiling,
    CallIdConflictError,
    CeilingError,
    DivergedError,
    Effect,
    Embeddings,
    HaltedError,
    LostContactError,
    Operation,
    OutcomeGoneError,
    RefusedError,
    ReplayMissError,
)
from modelmeter_server.core.journal import CallState
from modelmeter_server.ledger.storage import StoredLedger
from tests.e2e.test_embedding import MODELS, answering, openai, replying
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import ledger_in, rows_of, until
from tests.support.provider_service import ProviderService, provider_service

MODEL = "openai_responses-vectors"
AWKWARD = [-0.0, 1e-45, -3.4028234663852886e38, 0.1]
"""A zero with a sign, the smallest and the largest float, and one that no binary fraction is equal to."""


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[StoredLedger]:
    async with ledger_in(tmp_path) as opened:
        yield opened


@asynccontextmanager
async def serving(
    ledger: StoredLedger | None, reply: Reply | None = None, **options: Any
) -> AsyncIterator[ProviderService]:
    async with (
        FaultServer(reply or answering("openai_responses")) as provider,
        provider_service(provider, models=MODELS, ledger=ledger, **options) as service,
    ):
        yield service


async def embed(service: ProviderService, *texts: str, **options: Any) -> Embeddings:
    return await service.client.embed(MODEL, texts or ("a", "b"), **options)


def bits(answer: Embeddings) -> list[bytes]:
    return [vector.tobytes() for vector in answer.vectors]


def bought(service: ProviderService) -> int:
    return len(service.provider.requests)


async def test_vectors_are_replayed_under_their_call_id_to_the_bit(ledger):
    call_id = str(uuid.uuid4())
    async with serving(ledger, replying(openai([AWKWARD, AWKWARD[::-1]]))) as service:
        first = await embed(service, call_id=call_id)
        again = await embed(service, call_id=call_id)
        assert bought(service) == 1
    assert (first.settled, first.replayed, again.settled, again.replayed) == (True, False, True, True)
    assert bits(again) == bits(first) == [struct.pack("=4f", *AWKWARD), struct.pack("=4f", *AWKWARD[::-1])]
    assert (again.usage, again.cost, again.revision) == (first.usage, first.cost, first.revision)
    assert (again.model_served, again.attempts_total) == (first.model_served, 1)


async def test_the_same_effect_is_bought_once_and_another_request_under_it_has_diverged(ledger):
    effect = Effect("run", "index")
    async with serving(ledger) as service:
        first = await embed(service, effect=effect)
        again = await embed(service, effect=effect)
        with pytest.raises(DivergedError) as diverged:
            await embed(service, "a", "c", effect=effect)
        assert bought(service) == 1
    assert (again.replayed, again.call_id) == (True, first.call_id)
    assert diverged.value.differing_field == "inputs"


@pytest.mark.parametrize(
    ("options", "field"),
    [({"dimensions": 3}, "dimensions"), ({"provider_options": {"user": "u"}}, "provider_options_json")],
)
async def test_what_changes_the_vectors_conflicts_under_one_call_id(ledger, options, field):
    call_id = str(uuid.uuid4())
    async with serving(ledger) as service:
        await embed(service, call_id=call_id, labels={"a": "b"})
        assert (await embed(service, call_id=call_id)).replayed
        with pytest.raises(CallIdConflictError) as conflict:
            await embed(service, call_id=call_id, **options)
        assert bought(service) == 1
    assert conflict.value.differing_field == field


async def test_a_completion_under_the_id_of_a_batch_conflicts_in_the_operation(ledger):
    call_id = str(uuid.uuid4())
    async with serving(ledger) as service:
        await embed(service, call_id=call_id)
        with pytest.raises(CallIdConflictError) as conflict:
            await service.client.complete("openai_responses", "Hi", call_id=call_id)
    assert conflict.value.differing_field == "operation"


async def test_a_batch_is_held_by_its_input_at_the_input_rate_and_settled_by_what_was_told(ledger):
    reply, gate = answering("openai_responses"), asyncio.Event()
    reply.gate = gate
    async with serving(ledger, reply) as service:
        running = asyncio.create_task(embed(service, "x" * 1000, "y"))
        await service.provider.received(1)
        (held,) = await rows_of(ledger)
        gate.set()
        answer = await running
    (row,) = await rows_of(ledger)
    hold = held.hold
    assert (held.operation, held.booking.held_tokens) == ("EMBED", hold.input_tokens)
    assert (hold.output_tokens, hold.nano_units) == (0, hold.input_tokens * 20)
    assert 500 < hold.input_tokens < 600
    assert (row.booking.held_tokens, row.booking.settled_tokens) == (0, answer.usage.input_tokens)
    assert answer.cost is not None
    assert row.booking.settled_nanos == answer.cost.nano_units


async def test_a_ceiling_of_the_call_that_has_no_room_buys_nothing(ledger):
    async with serving(ledger) as service:
        for ceiling in (CallCeiling(tokens=3), CallCeiling(nano_units=1, currency="USD")):
            with pytest.raises(CeilingError) as refused:
                await embed(service, ceiling=ceiling)
            assert refused.value.standings[0].asked > refused.value.standings[0].allowed
        assert (await embed(service, ceiling=CallCeiling(tokens=1000))).settled
        assert bought(service) == 1


async def test_a_ceiling_of_the_run_counts_vectors_beside_completions(ledger):
    async with serving(ledger) as service:
        await service.client.ledger.set_ceiling("run", tokens=50)
        await embed(service, effect=Effect("r", "1"))
        with pytest.raises(CeilingError) as refused:
            await embed(service, effect=Effect("r", "2"))
        assert bought(service) == 1
    assert refused.value.standings[0].settled == 9


async def test_a_halt_stops_batches(ledger):
    async with serving(ledger) as service:
        await service.client.ledger.halt("model", MODEL, reason="vectors are wrong")
        with pytest.raises(HaltedError, match="vectors are wrong"):
            await embed(service)
        assert bought(service) == 0


async def test_replay_only_buys_nothing(ledger):
    call_id = str(uuid.uuid4())
    async with serving(ledger) as service:
        with pytest.raises(ReplayMissError):
            await embed(service, call_id=call_id, replay_only=True)
        await embed(service, call_id=call_id)
        assert (await embed(service, call_id=call_id, replay_only=True)).replayed
        assert bought(service) == 1


async def test_two_callers_with_one_id_share_one_purchase(ledger):
    reply, gate, call_id = answering("openai_responses"), asyncio.Event(), str(uuid.uuid4())
    reply.gate = gate
    async with serving(ledger, reply) as service:
        tasks = [asyncio.create_task(embed(service, call_id=call_id)) for _ in range(2)]
        await service.provider.received(1)
        await until(lambda: service.engine.calls_in_flight == 2)
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert bought(service) == 1
    assert sorted(answer.replayed for answer in answers) == [False, True]
    assert bits(answers[0]) == bits(answers[1])


async def test_a_batch_that_breaks_off_is_bounded_by_its_input_and_replayed_with_its_bill(ledger):
    cut = replying(json.dumps(openai()).encode()[:40], end="truncate")
    call_id = str(uuid.uuid4())
    async with serving(ledger, cut) as service:
        for _ in range(2):
            with pytest.raises(modelmeter.UnaccountedError):
                await embed(service, call_id=call_id)
        assert bought(service) == 1
    (row,) = await rows_of(ledger)
    assert (row.state, row.booking.unsettled_tokens) == (
        CallState.UNSETTLED,
        row.hold.input_tokens,
    )


# What the ledger tells of it


async def test_the_ledger_tells_a_batch_and_its_vectors(ledger):
    async with serving(ledger) as service:
        books = service.client.ledger
        answer = await embed(service)
        with pytest.raises(modelmeter.ModelmeterError):
            await service.client.complete("openai_responses", "Hi")
        (listed,) = [call async for call in books.list_calls(operations=["embed"])]
        others = [call.operation async for call in books.list_calls(operations="complete")]
        call = await books.get_call(answer.call_id, full=True)
        stored = await books.read_embeddings(answer.call_id)
    assert (listed.call_id, listed.operation, others) == (
        answer.call_id,
        Operation.EMBED,
        [Operation.COMPLETE],
    )
    assert call.completion is None
    assert call.embeddings is not None
    assert bits(call.embeddings) == bits(stored) == bits(answer)
    assert (stored.revision, stored.usage, stored.target) == (answer.revision, answer.usage, answer.target)


async def test_vectors_beyond_a_message_are_read_in_parts(ledger):
    vectors = [array("f", [0.5 + index] * 1000).tolist() for index in range(300)]
    async with serving(ledger, replying(openai(vectors))) as service:
        books = service.client.ledger
        answer = await embed(service, *["t"] * 300)
        assert (await books.get_call(answer.call_id, full=True)).embeddings is None
        assert bits(await books.read_embeddings(answer.call_id)) == bits(answer)


async def test_an_answer_is_read_by_what_it_is(ledger):
    async with serving(ledger) as service:
        answer = await embed(service)
        with pytest.raises(TypeError, match="read_embeddings"):
            await service.client.ledger.read_answer(answer.call_id)


async def test_erased_vectors_are_gone_and_not_bought_again(ledger):
    async with serving(ledger) as service:
        answer = await embed(service)
        await service.client.ledger.erase(call_id=answer.call_id)
        with pytest.raises(OutcomeGoneError, match="9 tokens"):
            await embed(service, call_id=answer.call_id)
        assert bought(service) == 1


async def test_a_client_that_lost_contact_gets_the_vectors_from_the_ledger(ledger):
    call_id = str(uuid.uuid4())
    async with serving(ledger) as service:
        first = await embed(service, call_id=call_id)
        lost = LostContactError("lost", call_id=call_id, code=grpc.StatusCode.UNAVAILABLE)
        found = await service.client._asked_vectors(lost)
        with pytest.raises(LostContactError):
            await service.client._asked(lost)
    assert list(found.vectors[0].values) == first.vectors[0].tolist()


# Without a ledger


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"effect": Effect("r", "k")}, "effect"),
        ({"ceiling": CallCeiling(tokens=1)}, "ceiling"),
        ({"replay_only": True}, "replay_only"),
    ],
)
async def test_without_a_ledger_its_fields_are_refused(options, field):
    async with serving(None) as service:
        with pytest.raises(RefusedError, match="needs a ledger") as refused:
            await embed(service, **options)
        assert (await embed(service)).settled is False
        assert bought(service) == 1
    assert [each.field for each in refused.value.violations] == [field]


async def test_counting_tokens_is_never_booked(ledger):
    async with serving(ledger) as service:
        await service.client.count_tokens("chat_completions", "Hi")
        assert await rows_of(ledger) == []
