"""A provider that means harm, in either wire format, and the call that must survive it."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import modelmeter
from modelmeter import ModelmeterError
from modelmeter_server.drivers.http import Timeouts
from tests.conformance.asking import Face, Heard, ask
from tests.support import anthropic_events, responses_events
from tests.support.fault_server import End, FaultServer, Reply
from tests.support.footprint import MIB, Footprint, footprint
from tests.support.provider_service import ProviderService, provider_service
from tests.support.wire_bytes import Json, frame, sse

KINDS = ("anthropic", "openai_responses")
FACES: tuple[Face, ...] = ("unary", "stream")
PATIENT = Timeouts(pool=2, connect=2, write=5, first_byte=20, idle=20, tail=0.3, total=25)
"""No timer may end what a limit must end, on a busy machine either."""


def start(kind: str) -> bytes:
    """Return the events of an answer that has begun and has told what it can by then."""
    if kind == "anthropic":
        return sse(anthropic_events.start(), anthropic_events.opened(0), anthropic_events.text(0, "Hi"))
    return sse(
        responses_events.created(),
        responses_events.added(0, {"type": "message"}),
        responses_events.text(0, "Hi"),
    )


def delta(kind: str, text: str) -> bytes:
    """Return one event with more text."""
    return frame(anthropic_events.text(0, text) if kind == "anthropic" else responses_events.text(0, text))


def call_start(kind: str) -> bytes:
    """Return the events of an answer that begins with a tool call."""
    if kind == "anthropic":
        return sse(anthropic_events.start(), anthropic_events.opened(0, "tool_use"))
    return sse(responses_events.created(), responses_events.added(0, responses_events.call(arguments="")))


def arguments_delta(kind: str, piece: str) -> bytes:
    """Return one event with more of a tool call's arguments."""
    return frame(
        anthropic_events.json_piece(0, piece) if kind == "anthropic" else responses_events.arguments(0, piece)
    )


def call_answer(kind: str, pieces: Iterable[str]) -> bytes:
    """Return a whole streamed answer that is one tool call."""
    if kind == "anthropic":
        return anthropic_events.stream(anthropic_events.tool_block(0, "look", *pieces), reason="tool_use")
    call = responses_events.call()
    whole = {**call, "arguments": "".join(pieces)}
    events = responses_events.call_events(0, call, *pieces)
    return sse(responses_events.created(), *events, responses_events.ended(whole))


def answer(kind: str, *pieces: str) -> bytes:
    """Return a whole streamed answer in text."""
    if kind == "anthropic":
        return anthropic_events.stream(anthropic_events.text_block(0, *pieces))
    return responses_events.stream(*pieces)


def document(kind: str, text: str) -> bytes:
    """Return a whole answer as one JSON body."""
    if kind == "anthropic":
        return anthropic_events.document({"type": "text", "text": text})
    return responses_events.document(responses_events.message(text))


def streamed(*chunks: bytes, end: End = "clean") -> Reply:
    """Answer with an event stream."""
    return Reply(headers={"content-type": "text/event-stream"}, chunks=chunks, end=end)


def endless(*chunks: bytes) -> Reply:
    """Answer with an event stream whose last chunk is repeated for ever."""
    forever = itertools.chain(chunks, itertools.repeat(chunks[-1]))
    return Reply(headers={"content-type": "text/event-stream"}, chunks=forever)


def packed(first: bytes, block: bytes, mebibytes: int) -> Reply:
    """Answer gzip-coded: `first`, then `block`, a mebibyte long, over and over."""
    packer = zlib.compressobj(9, wbits=31)
    head = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the coder starts afresh: the same bytes may be repeated as often as one likes.
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    assert len(block) > MIB // 2
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    return Reply(headers=headers, chunks=itertools.chain([head], itertools.repeat(again, mebibytes)))


def haunted(value: Any, ghost: str) -> Any:
    """Return a JSON value with `ghost` in every text but those that steer the reader: types and names of fields."""
    if isinstance(value, dict):
        steering = ("type", "object", "role", "status")
        return {name: each if name in steering else haunted(each, ghost) for name, each in value.items()}
    if isinstance(value, list):
        return [haunted(each, ghost) for each in value]
    return f"{value}{ghost}" if isinstance(value, str) else value


def raw(event: Json, **literals: str) -> bytes:
    """Return an event in which the members of these values (`"@name"`) are replaced by JSON literals."""
    data = json.dumps(event)
    for name, literal in literals.items():
        assert f'"@{name}"' in data
        data = data.replace(f'"@{name}"', literal)
    return frame(data.encode(), event["type"])


@asynccontextmanager
async def under_attack() -> AsyncIterator[ProviderService]:
    """Run the service in front of a provider whose replies the test scripts."""
    async with FaultServer() as provider, provider_service(provider, timeouts=PATIENT) as service:
        yield service


async def survive(
    service: ProviderService, kind: str, face: Face, reply: Reply, **options: Any
) -> tuple[Heard, Footprint]:
    """Make the call that gets `reply`, and check what holds whatever that is; the next call must work."""
    service.provider.script([reply])
    with footprint() as used:
        heard = await ask(service.client, face, kind, "Hi", **options)
    _check(heard)
    service.provider.script([streamed(answer(kind, "Fine."))])
    after = await ask(service.client, face, kind, "Hi")
    assert isinstance(after.result, modelmeter.Completion), after.result
    assert after.result.text == "Fine."
    assert service.engine.calls_in_flight == 0
    return heard, used


async def listen(service: ProviderService, kind: str) -> tuple[int, ModelmeterError | None]:
    """Stream a call; return how much text came, and how it failed."""
    received = 0
    try:
        async with service.client.stream(kind, "Hi") as stream:
            async for text in stream.text:
                received += len(text)
    except ModelmeterError as error:
        return received, error
    return received, None


def _check(heard: Heard) -> None:
    """Every outcome is typed, its bill fits its certainty, and all that it says can be written down."""
    result = heard.result
    told = result.usage.told
    assert told == (result.certainty.name in ("EXACT", "AT_LEAST")), result
    if isinstance(result, ModelmeterError):
        assert result.kind.name != "BUG", result
        assert result.call_id
        landed = result.kind.name in ("INTERRUPTED", "UNACCOUNTED", "UNUSABLE")
        assert (result.disposition.name == "LANDED") == landed
    for text in _texts(heard):
        text.encode()


def _texts(heard: Heard) -> Iterator[str]:
    yield from (heard.text, heard.reasoning, *heard.arguments)
    yield repr(heard.result)
    yield str(heard.result)
