"""A run of a thousand calls that is run again, on another server, after the first one was killed: nothing is bought."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import modelmeter
from modelmeter import Effect, ModelmeterError
from tests.support.fault_server import FaultServer
from tests.support.server_process import configuration, server_process
from tests.support.telling_provider import Plan, TellingProvider, drawn, prompt

CALLS = 500
"""On each of two databases."""
AT_ONCE = 50


def sometimes_cut(word: str) -> Plan:
    """Return what the provider does: every eighth answer is cut after it has begun."""
    plan = drawn(word)
    is_cut = Random(f"cut {word}").random() < 0.125
    return replace(plan, steps=2, end="truncate") if is_cut else plan


async def ask(client: modelmeter.AsyncClient, number: int, word: str) -> Any:
    """Ask for one effect of the run; return the message that came, an answer or an error."""
    effect = Effect("run", f"step-{number}")
    try:
        if number % 2:
            return (await client.complete("m", prompt(word), effect=effect)).proto
        async with client.stream("m", prompt(word), effect=effect) as stream:
            async for _ in stream:
                pass
        return stream.completion.proto
    except ModelmeterError as error:
        return error.proto


async def run(client: modelmeter.AsyncClient, words: list[str]) -> list[Any]:
    """Make every call of the run, so many at a time."""
    waiting, heard = iter(enumerate(words)), {}

    async def one_after_another() -> None:
        for number, word in waiting:
            heard[number] = await ask(client, number, word)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return [heard[number] for number in range(len(words))]


def bare(message: Any) -> Any:
    """Return a message without what a second time may change."""
    copy = type(message)()
    copy.CopyFrom(message)
    for name in ("replayed", "timings", "call_id"):
        if name in copy.DESCRIPTOR.fields_by_name:
            copy.ClearField(name)
    for attempt in copy.attempts:
        attempt.ClearField("elapsed")
    return copy


@pytest.mark.timeout(120)  # two starts of a server beside seven other things
async def test_a_run_that_is_run_again_asks_the_provider_for_nothing_and_hears_the_same(
    ledger_url: str, tmp_path: Path
):
    random = Random(CALLS)
    words = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(CALLS)]
    provider = TellingProvider(sometimes_cut)
    async with FaultServer(provider) as upstream:
        file = configuration(tmp_path, upstream.url, ledger_url, lease=10)
        async with server_process(file) as server, modelmeter.AsyncClient(server.address) as client:
            first = await run(client, words)
            await server.kill()
        assert provider.requests == CALLS
        file = configuration(tmp_path, upstream.url, ledger_url, lease=10, replay_only=True)
        async with server_process(file) as server, modelmeter.AsyncClient(server.address) as client:
            again = await run(client, words)
    assert provider.requests == CALLS
    assert list(map(bare, again)) == list(map(bare, first))
    assert all(answer.replayed for answer in again if hasattr(answer, "replayed"))
    assert {type(message).__name__ for message in first} == {"Completion", "ModelError"}
