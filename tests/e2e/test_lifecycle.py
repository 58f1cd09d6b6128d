"""Callers that leave and servers that stop, from client to provider: nothing stays open, every bill is kept."""

from __future__ import annotations

import asyncio
import re
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import modelmeter
from modelmeter import ModelmeterError
from modelmeter.events import TextDelta
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, End, Ending, Stage
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.conformance.asking import Face, ask
from tests.e2e import hostile
from tests.e2e.hostile import FACES, KINDS
from tests.support import anthropic_events, responses_events
from tests.support.command_line import started
from tests.support.fault_server import FaultServer, RecordedRequest, Reply
from tests.support.provider_service import ProviderService
from tests.support.wire_bytes import frame

both = pytest.mark.parametrize("kind", KINDS)
faces = pytest.mark.parametrize("face", FACES)

# What is known of an answer that has begun: an Anthropic stream tells its input at once, a Responses stream nothing.
BEGUN = {"anthropic": ("INTERRUPTED", "AT_LEAST", 12), "openai_responses": ("UNACCOUNTED", "UNKNOWN", None)}


def stalled(kind: str) -> Reply:
    """Begin an answer and fall silent, with the connection open."""
    return Reply(chunks=[hostile.start(kind)], end="stall")


def figures(outcome: CallOutcome | ModelmeterError) -> tuple[str, str, int | None]:
    """Return kind, certainty and input of a failed call, as the server recorded it or as the caller was told."""
    failed = outcome.result if isinstance(outcome, CallOutcome) else outcome
    assert isinstance(failed, Failure | ModelmeterError), failed
    usage = failed.usage
    return failed.kind.name, failed.certainty.name, usage.input_tokens if usage is not None else None


async def settled(service: ProviderService) -> list[CallOutcome]:
    """Return what was recorded, once all calls have settled by themselves and no connection is open any more."""
    assert await service.engine.drain(1) == 0
    for number in range(service.provider.connections):
        await service.provider.disconnected(number)
    for driver in service.drivers.values():
        assert driver.pool.open_connections == 0
    return service.memory.outcomes


# Callers that leave


@both
async def test_leaving_a_stream_closes_the_providers_connection_within_a_second(kind: str):
    async with hostile.under_attack() as service:
        service.provider.script([stalled(kind)])
        async with service.client.stream(kind, "Hi") as stream:
            async for text in stream.text:
                assert text == "Hi"
                break
        await service.provider.disconnected(seconds=1)
        (outcome,) = await settled(service)
    assert isinstance(outcome.result, Failure)
    assert outcome.result.cause is Cause.CALLER
    assert figures(outcome) == BEGUN[kind]


@both
@faces
async def test_a_cancelled_task_closes_the_providers_connection_within_a_second(face: Face, kind: str):
    async with hostile.under_attack() as service:
        service.provider.script([Reply(silent=True, end="stall")])
        asked = asyncio.create_task(ask(service.client, face, kind, "Hi"))
        await service.provider.received(1)
        asked.cancel()
        await service.provider.disconnected(seconds=1)
        (outcome,) = await settled(service)
    assert asked.cancelled()
    assert isinstance(outcome.result, Failure)
    assert outcome.result.cause is Cause.CALLER
    assert figures(outcome) == ("UNAVAILABLE", "UNKNOWN", None)


@both
@faces
async def test_a_deadline_closes_the_providers_connection_and_its_bill_arrives(face: Face, kind: str):
    async with hostile.under_attack() as service:
        service.provider.script([stalled(kind)])
        heard = await ask(service.client, face, kind, "Hi", timeout=1)
        await service.provider.disconnected(seconds=1)
        (outcome,) = await settled(service)
    assert isinstance(heard.result, ModelmeterError)
    assert (heard.code, heard.result.cause.name) == ("DEADLINE_EXCEEDED", "DEADLINE")
    assert figures(heard.result) == figures(outcome) == BEGUN[kind]


@both
async def test_a_client_process_that_is_killed_closes_the_providers_connection_within_a_second(kind: str):
    async with hostile.under_attack() as service:
        service.provider.script([stalled(kind)])
        async with started("call", kind, "Hi", "--stream", "--address", service.address) as process:
            assert process.stdout is not None
            assert await process.stdout.read(2) == b"Hi"
            process.kill()
            await service.provider.disconnected(seconds=1)
        (outcome,) = await settled(service)
    assert isinstance(outcome.result, Failure)
    assert outcome.result.cause is Cause.CALLER
    assert figures(outcome) == BEGUN[kind]


# Fifty that leave anywhere


def _events(kind: str) -> list[bytes]:
    """Return the events of an answer, all but the end marker."""
    pieces = [f"{number} " for number in range(6)]
    if kind == "anthropic":
        events = anthropic_events.message(
            anthropic_events.thinking_block(0, "Hm"), anthropic_events.text_block(1, *pieces)
        )
    else:
        events = [responses_events.created(), *responses_events.text_events(0, *pieces), {}]
    return [frame(event) for event in events[:-1]]


def _truth(kind: str, events: list[bytes]) -> tuple[str, str, int | None, int | None]:
    """Return kind, certainty and figures of a call that ends after these events."""
    accumulator = WIRE_FORMATS[kind].accumulator()
    accumulator.feed(b"".join(events))
    failed = accumulator.finish(Ending(end=End.CUT, cause=Cause.CALLER, stage=Stage.HEADERS))
    return _told(failed)


def _told(failed: object) -> tuple[str, str, int | None, int | None]:
    assert isinstance(failed, Failure), failed
    usage = failed.usage
    counts = (usage.input_tokens, usage.output_tokens) if usage is not None else (None, None)
    return failed.kind.name, failed.certainty.name, *counts


@dataclass
class Leaver:
    """A caller that leaves when the provider has sent so many events."""

    kind: str
    place: int

    def __post_init__(self) -> None:
        self.call_id = str(uuid.uuid4())
        self.sent = asyncio.Event()
        self.events = _events(self.kind)[: self.place]
        self.expected = "".join(re.findall(r'"(?:text|delta)": "(\d )"', b"".join(self.events).decode()))
        self.seen = 0
        """How many events the server has certainly read: up to the last one whose text the caller got."""

    def chunks(self) -> Iterator[bytes]:
        yield from self.events
        self.sent.set()

    async def leave(self, service: ProviderService, face: Face) -> None:
        prompt = f"leave {self.call_id}"
        if face == "stream":
            await self._leave_stream(service, prompt)
            return
        asked = asyncio.create_task(service.client.complete(self.kind, prompt, call_id=self.call_id))
        await self.sent.wait()
        asked.cancel()
        await asyncio.wait([asked])

    async def _leave_stream(self, service: ProviderService, prompt: str) -> None:
        heard = ""
        async with service.client.stream(self.kind, prompt, call_id=self.call_id, flush_interval=0) as stream:
            await self.sent.wait()
            while heard != self.expected:
                event = await anext(stream)
                heard += event.text if isinstance(event, TextDelta) else ""
        texts = [index for index, event in enumerate(self.events) if b"text" in event and b"_delta" in event]
        self.seen = texts[-1] + 1 if texts and heard else 0

    def truths(self) -> set[tuple[str, str, int | None, int | None]]:
        return {_truth(self.kind, self.events[:read]) for read in range(self.seen, self.place + 1)}


@both
@faces
async def test_fifty_callers_that_leave_anywhere_leave_nothing_behind_but_true_bills(face: Face, kind: str):
    random = Random(f"{face} {kind}")
    places = [random.randrange(len(_events(kind)) + 1) for _ in range(50)]
    leavers = {leaver.call_id: leaver for leaver in (Leaver(kind, place) for place in places)}

    def answer(request: RecordedRequest) -> Reply:
        (call_id,) = re.findall(rb"leave ([0-9a-f-]{36})", request.body)
        return Reply(chunks=leavers[call_id.decode()].chunks(), end="stall")

    async with hostile.under_attack() as service:
        service.provider.default = answer
        await asyncio.gather(*(leaver.leave(service, face) for leaver in leavers.values()))
        outcomes = await settled(service)
    assert {outcome.call_id for outcome in outcomes} == set(leavers)
    assert len(outcomes) == 50
    for outcome in outcomes:
        leaver = leavers[outcome.call_id]
        assert _told(outcome.result) in leaver.truths(), (leaver.place, leaver.seen)
        assert isinstance(outcome.result, Failure)
        assert outcome.result.cause is Cause.CALLER


# A server that stops


@dataclass
class Served:
    """`modelmeter serve` in a process of its own, in front of a scripted provider in this one."""

    process: asyncio.subprocess.Process
    address: str
    provider: FaultServer

    async def terminate(self) -> None:
        """Send SIGTERM and wait until the server says that it drains."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        while b'"draining"' not in (line := await self.process.stderr.readline()):
            assert line, "the server ended without draining"


@asynccontextmanager
async def serving(folder: Path, kind: str, drain_seconds: float) -> AsyncIterator[Served]:
    async with FaultServer() as provider:
        (folder / "m.toml").write_text(
            f'[server]\nlisten = "127.0.0.1:0"\ndrain_seconds = {drain_seconds}\n'
            f'[providers.p]\nkind = "{kind}"\nbase_url = "{provider.url}"\napi_key_env = "KEY"\n'
            '[models.m]\nprovider = "p"\nmodel = "m-test"\n'
        )
        async with started("serve", "--config", f"{folder}/m.toml", env={"KEY": "sk-test"}) as process:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            assert line, (await process.communicate())[1]
            yield Served(process, line.removeprefix("modelmeter is listening on ").strip(), provider)


@both
async def test_sigterm_lets_a_stream_finish_and_refuses_new_calls_meanwhile(tmp_path: Path, kind: str):
    gate, whole = asyncio.Event(), hostile.answer(kind, "Hel", "lo.")
    half = whole.index(b"Hel") + whole[whole.index(b"Hel") :].index(b"\n\n") + 2
    async with serving(tmp_path, kind, 20) as served, modelmeter.AsyncClient(served.address) as client:
        served.provider.script([Reply(chunks=[whole[:half], gate, whole[half:]])])
        async with client.stream("m", "Hi") as stream:
            texts = stream.text
            assert await anext(texts) == "Hel"
            await served.terminate()
            refused = [await ask(client, "unary", "m", "Hi"), await ask(client, "stream", "m", "Hi")]
            gate.set()
            assert [text async for text in texts] == ["lo."]
        assert await served.process.wait() == 0
    assert stream.completion.text == "Hello."
    assert stream.completion.certainty.name == "EXACT"
    for each in refused:
        assert (each.kind, each.code, each.result.certainty.name) == ("DRAINING", "UNAVAILABLE", "NONE")
        assert isinstance(each.result, ModelmeterError)
        assert each.result.retry_after == 1
    assert len(served.provider.requests) == 1


@both
@faces
async def test_a_drain_that_runs_out_cuts_the_call_and_its_bill_arrives(
    tmp_path: Path, face: Face, kind: str
):
    async with serving(tmp_path, kind, 0.5) as served, modelmeter.AsyncClient(served.address) as client:
        # Half an answer and an open connection: only the end of the drain can end it.
        served.provider.script([stalled(kind)])
        asked = asyncio.create_task(ask(client, face, "m", "Hi"))
        await served.provider.received(1)
        await served.terminate()
        heard = await asked
        await served.provider.disconnected(seconds=1)
        assert await served.process.wait() == 0
    assert isinstance(heard.result, ModelmeterError)
    assert (heard.code, heard.result.cause.name) == ("ABORTED", "DRAIN")
    assert figures(heard.result) == BEGUN[kind]
