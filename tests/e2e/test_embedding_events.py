"""What those who watch hear of embeddings, and of counts: from client to provider, over EventService."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import modelmeter
from modelmeter_server.telemetry import conventions as names
from tests.e2e.test_embedding import MODELS, answering
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import ledger_in
from tests.support.provider_service import provider_service
from tests.support.watching import Observed

MODEL = "openai_responses-vectors"


async def test_a_batch_is_told_with_its_bill_and_a_replay_of_it_as_one(tmp_path):
    seen, call_id = Observed(), str(uuid.uuid4())
    async with (
        ledger_in(tmp_path) as ledger,
        FaultServer(answering("openai_responses")) as provider,
        provider_service(provider, models=MODELS, ledger=ledger, telemetry=seen.telemetry) as service,
    ):
        once: dict[str, Any] = {"call_id": call_id, "labels": {"conversation_id": "chat-1"}}
        bought, _ = [await service.client.embed(MODEL, ["a", "b"], **once) for _ in range(2)]
        recent = [event async for event in service.client.events.recent(kinds=["embedding.completed"])]
    assert seen.kinds() == ["attempt", "embedding.completed", "embedding.completed", "replay"]
    again, first = recent
    assert (first.call_id, first.conversation_id) == (call_id, "chat-1")
    assert (first.fact["inputs"], first.fact["usage"], first.fact["cost"]) == (2, bought.usage, bought.cost)
    assert (first.fact["certainty"], first.fact["settled"]) == (modelmeter.Certainty.EXACT, True)
    assert [event.fact["replayed"] for event in (first, again)] == [False, True]
    (span,) = seen.attempt_spans
    assert span.attributes[names.OPERATION] == "embeddings"
    assert seen.metrics()[names.INFERENCE_USAGE + "input_tokens"][0][1] == bought.usage.input_tokens


async def test_a_batch_that_fails_is_told_as_what_failed_and_a_count_leaves_no_event():
    seen = Observed()
    down = Reply(status=503, chunks=[b'{"error":{"message":"down"}}'])
    async with (
        FaultServer(down) as provider,
        provider_service(provider, models=MODELS, telemetry=seen.telemetry) as service,
    ):
        with pytest.raises(modelmeter.UnavailableError):
            await service.client.embed(MODEL, ["a"])
        with pytest.raises(modelmeter.ModelmeterError):
            await service.client.count_tokens("anthropic", "Hi")
    assert seen.kinds() == ["attempt", "prompt.failed"]
    assert seen.event("prompt.failed").model_asked == MODEL
    assert [span.name.rpartition("/")[2] for span in seen.rpc_spans] == ["Embed", "CountTokens"]
