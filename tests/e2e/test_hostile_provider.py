"""A provider that sends too much of anything: it ends by a limit, soon, in little memory, with the best known bill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from modelmeter import ModelmeterError
from tests.conformance.asking import Face, Heard
from tests.e2e import hostile
from tests.e2e.hostile import FACES, KINDS
from tests.support import wire_faults
from tests.support.fault_server import Reply
from tests.support.footprint import MIB
from tests.support.wire_bytes import body

LARGE = "x" * 65_000
SECONDS = 8.0
"""CPU time of a call, provider, server and client together; measured: at most one second."""
SMALL = 96
"""MiB that a call may add which keeps no more than an event of 16 MiB."""
LIMIT = 64
"""MiB of an answer that are read by default."""


class Case(NamedTuple):
    """What the provider does, and how the call must end: `kind certainty cause`, for each provider or for both."""

    reply: Callable[[str], Reply]
    ends: dict[str, str] | str
    mebibytes: int = SMALL


# An Anthropic stream tells its input at the start, a Responses stream nothing before its end.
BEGUN = {"anthropic": "INTERRUPTED AT_LEAST LIMIT", "openai_responses": "UNACCOUNTED UNKNOWN LIMIT"}
NOTHING = "UNAVAILABLE UNKNOWN LIMIT"
FINE = "COMPLETION EXACT"
# The answer's text stands in the server, in the event before it is decoded, and in the client that streams it.
WHOLE = 8 * LIMIT

CASES = {
    "a line without end": Case(lambda kind: wire_faults.endless_line(), NOTHING),
    "a line without end after the start": Case(
        lambda kind: hostile.endless(hostile.start(kind) + b"data: ", b"x" * 65536), BEGUN
    ),
    "an event of 17 MiB": Case(
        lambda kind: hostile.streamed(hostile.start(kind), hostile.delta(kind, "x" * (17 * MIB))), BEGUN
    ),
    "large events without end": Case(
        lambda kind: hostile.endless(hostile.start(kind), hostile.delta(kind, LARGE)), BEGUN, WHOLE
    ),
    "small events without end": Case(
        lambda kind: hostile.endless(hostile.start(kind), hostile.delta(kind, "x" * 1000) * 60), BEGUN, WHOLE
    ),
    "arguments of a tool without end": Case(
        lambda kind: hostile.endless(hostile.call_start(kind), hostile.arguments_delta(kind, LARGE)),
        BEGUN,
        WHOLE,
    ),
    "a gibibyte of zeros, packed": Case(
        lambda kind: wire_faults.gzip_bomb(1024), "UNACCOUNTED UNKNOWN LIMIT"
    ),
    "a gibibyte of events, packed": Case(
        lambda kind: hostile.packed(hostile.start(kind), hostile.delta(kind, LARGE) * 16, 1024), BEGUN, WHOLE
    ),
    "a document of a gibibyte, packed": Case(
        lambda kind: hostile.packed(b'{"a":"', b"x" * MIB, 1024), "UNACCOUNTED UNKNOWN LIMIT", WHOLE
    ),
    "a million pings": Case(
        lambda kind: hostile.streamed(
            *[b"event: ping\ndata: {}\n\n" * 10_000] * 100, hostile.answer(kind, "Fine.")
        ),
        FINE,
    ),
    "a million events without data": Case(
        lambda kind: hostile.streamed(*[b"data:\n\n" * 10_000] * 100, hostile.answer(kind, "Fine.")), FINE
    ),
    "a million empty objects": Case(
        lambda kind: hostile.streamed(*[b"data: {}\n\n" * 10_000] * 100, hostile.answer(kind, "Fine.")), FINE
    ),
    "a million comments": Case(
        lambda kind: hostile.streamed(*[b":\n\n" * 10_000] * 100, hostile.answer(kind, "Fine.")), FINE
    ),
    "four million blank lines": Case(
        lambda kind: hostile.streamed(*[b"\n" * 40_000] * 100, hostile.answer(kind, "Fine.")), FINE
    ),
    "headers without end": Case(lambda kind: wire_faults.endless_headers(), NOTHING),
    "a header without end": Case(lambda kind: wire_faults.endless_header(), NOTHING),
    "an error of 5 MiB": Case(
        lambda kind: Reply(
            400, chunks=[body({"error": {"type": "invalid_request_error", "message": "m" * (5 * MIB)}})]
        ),
        "REFUSED NONE PROVIDER",
    ),
    "an error page of 5 MiB": Case(
        lambda kind: Reply(503, chunks=[b"<p>" * (5 * MIB // 3)]), "UNAVAILABLE UNKNOWN PROVIDER"
    ),
}


def ended(heard: Heard) -> str:
    words = [heard.kind, heard.result.certainty.name]
    if isinstance(heard.result, ModelmeterError):
        words.append(heard.result.cause.name)
    return " ".join(words)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
async def test_too_much_of_anything_ends_soon_in_little_memory_with_the_best_known_bill(
    name: str, kind: str, face: Face
):
    case = CASES[name]
    async with hostile.under_attack() as service:
        heard, used = await hostile.survive(service, kind, face, case.reply(kind))
    assert ended(heard) == (case.ends if isinstance(case.ends, str) else case.ends[kind])
    if heard.kind == "INTERRUPTED":
        assert (heard.result.usage.input_tokens, heard.result.usage.output_tokens) == (12, 1)
    assert used.seconds < SECONDS
    assert used.mebibytes < case.mebibytes


@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_gibibyte_no_more_is_read_and_passed_on_than_the_limit_of_an_answer(kind: str):
    event, sent = hostile.delta(kind, LARGE), 0

    def gibibyte() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1024 * MIB:
            yield event
            sent += len(event)

    async with hostile.under_attack() as service:
        service.provider.script([Reply(chunks=gibibyte())])
        received, error = await hostile.listen(service, kind)
        await service.provider.disconnected(0)
    assert error is not None
    assert error.cause.name == "LIMIT"
    assert 0.98 * LIMIT * MIB < received <= LIMIT * MIB
    assert sent < (LIMIT + 16) * MIB, "what was sent beyond the limit waited in sockets"
