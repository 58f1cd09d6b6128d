"""One request of a caller keeps the server from nobody else, whatever it holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from modelmeter import ModelmeterError
from modelmeter.v1 import message_pb2, model_service_pb2
from tests.support import anthropic_events, responses_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.provider_service import provider_service

LONGEST = 2.0
"""Seconds for which the loop may stand still; measured: at most 0.2, and 6 if such requests were planned as others."""
ANSWERS = {
    "anthropic": anthropic_events.stream(anthropic_events.text_block(0, "Hi")),
    "openai_responses": responses_events.stream("Hi"),
}
MANY = 1_400_000


@asynccontextmanager
async def pulse() -> AsyncIterator[list[float]]:
    """Note for how long the loop stood still, in seconds."""
    gaps: list[float] = [0.0]

    async def beat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.01)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    beating = asyncio.create_task(beat())
    try:
        yield gaps
    finally:
        beating.cancel()


def messages(count: int, **fields: Any) -> model_service_pb2.Messages:
    return model_service_pb2.Messages(messages=[message_pb2.Message(**fields)] * count)


TURN = '[{"role":"user","content":['
SAID = {"role": message_pb2.ROLE_USER, "parts": [message_pb2.Part(text="a")]}
GREEDY: dict[str, dict[str, Any]] = {
    "numbers": {"native_json": TURN + "1," * MANY + "1]}]"},
    "objects": {"native_json": TURN + "{}," * MANY + "{}]}]"},
    "texts": {"native_json": TURN + '"",' * MANY + '""]}]'},
    "options": {"text": "Hi", "provider_options_json": '{"metadata":[' + "{}," * MANY + "{}]}"},
    "messages": {"messages": messages(MANY // 2)},
    "messages that say something": {"messages": messages(MANY // 8, **SAID)},
    "as many values as allowed": {"native_json": TURN + "{}," * 99_000 + "{}]}]"},
    "as many messages as allowed": {"messages": messages(10_000, **SAID)},
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("greed", GREEDY)
async def test_the_event_loop_never_stands_still_for_long(greed, kind):
    request = model_service_pb2.CompleteRequest(model=kind, **GREEDY[greed])
    async with FaultServer(Reply(chunks=[ANSWERS[kind]])) as provider, provider_service(provider) as service:
        async with pulse() as gaps:
            with suppress(ModelmeterError):
                await service.client.complete(request)
        sent = len(provider.requests)
    assert max(gaps) < LONGEST
    assert sent == ("allowed" in greed)
