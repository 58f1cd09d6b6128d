"""A provider whose bytes are odd: no word of it breaks a call, an encoder or the bill, on any path."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import modelmeter
from modelmeter import ModelmeterError
from tests.conformance.asking import Face, Heard
from tests.e2e import hostile
from tests.e2e.hostile import FACES, KINDS
from tests.support import anthropic_events, responses_events
from tests.support.fault_server import End, Reply
from tests.support.wire_bytes import Json, body, frame, sse

both = pytest.mark.parametrize("kind", KINDS)
faces = pytest.mark.parametrize("face", FACES)

# Half a character as JSON escapes it, and the same as bytes that are no UTF-8.
GHOSTS = {
    "escaped": ("\ud83d", b""),
    "raw": ("GHOST", b"\xed\xa0\xbd"),
    "no UTF-8": ("GHOST", b"\xff\xfe\x80"),
}
ghosts = pytest.mark.parametrize("ghost", GHOSTS)

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def possessed(data: bytes, ghost: str) -> bytes:
    """Put the ghost's bytes where its stand-in is."""
    word, spirit = GHOSTS[ghost]
    return data.replace(word.encode(), spirit) if spirit else data


def completion(heard: Heard) -> modelmeter.Completion:
    assert isinstance(heard.result, modelmeter.Completion), heard.result
    return heard.result


def events(kind: str) -> list[Json]:
    """Return an answer with words in every place that has any."""
    if kind == "anthropic":
        blocks = [
            anthropic_events.thinking_block(0, "So", "."),
            anthropic_events.text_block(1, "Fine", "."),
            anthropic_events.tool_block(2, "look", '{"at":"', "here", '"}'),
            [
                anthropic_events.opened(3, "server_tool_use", id="s", name="search"),
                anthropic_events.closed(3),
            ],
        ]
        return anthropic_events.message(*blocks, reason="tool_use")
    call = responses_events.call(arguments='{"at":"here"}')
    items = [responses_events.reasoning("So."), responses_events.message("Fine."), call]
    added = [event for index, item in enumerate(items) for event in _item(index, item)]
    return [responses_events.created(), *added, responses_events.ended(*items)]


def _item(index: int, item: Json) -> list[Json]:
    if item["type"] == "function_call":
        return responses_events.call_events(index, item, item["arguments"])
    return [responses_events.added(index, item), responses_events.item_done(index, item)]


def whole(kind: str, ghost: str) -> bytes:
    """Return the same answer as one JSON body."""
    if kind == "anthropic":
        content: list[Json] = [
            {"type": "text", "text": "Fine."},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "here"}},
        ]
        document = json.loads(anthropic_events.document(*content, reason="tool_use"))
    else:
        items = [responses_events.message("Fine."), responses_events.call(arguments='{"at":"here"}')]
        document = responses_events.response(*items, usage=responses_events.USAGE)
    return body(hostile.haunted(document, ghost))


@faces
@both
@ghosts
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in one body"])
async def test_half_characters_in_every_word_of_an_answer_cost_nothing(
    streamed: bool, ghost: str, kind: str, face: Face
):
    word = GHOSTS[ghost][0]
    haunted = [hostile.haunted(event, word) for event in events(kind)]
    data = sse(*haunted) if streamed else whole(kind, word)
    reply = Reply(headers={"request-id": "r\xed\xa0\xbd\xff"}, chunks=[possessed(data, ghost)])
    async with hostile.under_attack() as service:
        heard, _ = await hostile.survive(service, kind, face, reply)
    # Arguments are cut by a half character in the middle of their JSON: then the call is paid for and unusable.
    assert heard.kind in ("COMPLETION", "UNUSABLE")
    assert heard.result.certainty.name == "EXACT"
    assert heard.result.usage.output_tokens == (20 if kind == "anthropic" else 8)
    assert "\ufffd" in heard.result.model_served


@faces
@both
async def test_half_characters_inside_arguments_and_text_become_replacement_characters(kind: str, face: Face):
    reply = hostile.streamed(hostile.call_answer(kind, ['{"at":"a\ud83d', '"}']))
    text = hostile.streamed(hostile.answer(kind, "a\ud83d", "b", "\ude00c", "\ud83d", "\ude00", "\ud83d"))
    async with hostile.under_attack() as service:
        called, _ = await hostile.survive(service, kind, face, reply)
        said, _ = await hostile.survive(service, kind, face, text)
    (call,) = completion(called).tool_calls
    assert json.loads(call.arguments_json) == {"at": "a\ufffd"}
    assert completion(said).text == "a\ufffdb\ufffdc😀\ufffd"
    assert face == "unary" or (said.text, called.arguments) == (completion(said).text, (call.arguments_json,))


@faces
@both
@ghosts
@pytest.mark.parametrize("status", [200, 400, 404, 429, 500])
async def test_half_characters_in_an_error_still_let_it_be_told(
    status: int, ghost: str, kind: str, face: Face
):
    word = GHOSTS[ghost][0]
    error = hostile.haunted(anthropic_events.error("overloaded_error", "m"), word)
    reply = Reply(status, {"request-id": "\xed\xa0\xbd"}, [possessed(body(error), ghost)])
    async with hostile.under_attack() as service:
        heard, _ = await hostile.survive(service, kind, face, reply)
    kinds = {200: "RATE_LIMITED", 400: "REFUSED", 404: "REFUSED", 429: "RATE_LIMITED", 500: "UNAVAILABLE"}
    assert heard.kind == kinds[status]


@faces
@both
@pytest.mark.parametrize(
    ("literal", "told"),
    [
        ("1e999", None),
        ("9" * 400, 2**63 - 1),
        ("9" * 10_000, 2**63 - 1),
        ("-1", None),
        ("NaN", None),
        ("1e18", 10**18),
        ("true", None),
        ('"12"', None),
        ("1.5", None),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_figures_that_no_counter_holds_cost_nothing_else(
    literal: str, told: int | None, kind: str, face: Face
):
    if kind == "anthropic":
        usage = {"input_tokens": 12, "output_tokens": "@figure"}
        last = hostile.raw(anthropic_events.ended(usage=usage), figure=literal)
        block = sse(*anthropic_events.text_block(0, "Fine."))
        data = sse(anthropic_events.start(None)) + block + last + sse(anthropic_events.STOP)
    else:
        usage = {"input_tokens": 12, "output_tokens": "@figure"}
        data = hostile.raw(
            responses_events.ended(responses_events.message("Fine."), usage=usage), figure=literal
        )
    async with hostile.under_attack() as service:
        heard, _ = await hostile.survive(service, kind, face, hostile.streamed(data))
    assert completion(heard).text == "Fine."
    assert (heard.result.usage.input_tokens, heard.result.usage.output_tokens) == (12, told)
    assert heard.result.certainty.name == ("AT_LEAST" if told is None else "EXACT")


NESTED = "[" * 100_000 + "]" * 100_000


@faces
@both
@pytest.mark.parametrize(
    "nested", [NESTED, NESTED[:100_000], '{"a":' * 100_000], ids=["whole", "open", "objects"]
)
async def test_a_hundred_thousand_brackets_are_no_answer_and_break_nothing(
    nested: str, kind: str, face: Face
):
    name = "content_block_delta" if kind == "anthropic" else "response.output_text.delta"
    async with hostile.under_attack() as service:
        event, _ = await hostile.survive(
            service, kind, face, hostile.streamed(frame(nested.encode(), name), hostile.answer(kind, "Fine."))
        )
        document, _ = await hostile.survive(service, kind, face, Reply(chunks=[nested.encode()]))
        arguments, _ = await hostile.survive(
            service,
            kind,
            face,
            hostile.streamed(hostile.call_answer(kind, [nested[:50_000], nested[50_000:]])),
        )
        structured, _ = await hostile.survive(
            service, kind, face, hostile.streamed(hostile.answer(kind, nested)), schema=SCHEMA
        )
    assert completion(event).text == "Fine."
    assert document.kind == "UNACCOUNTED"
    assert (arguments.kind, arguments.result.certainty.name) == ("UNUSABLE", "EXACT")
    assert (structured.kind, structured.result.certainty.name) == ("UNUSABLE", "EXACT")


@faces
@both
async def test_a_thousand_blocks_are_an_answer(kind: str, face: Face):
    async with hostile.under_attack() as service:
        said, _ = await hostile.survive(service, kind, face, hostile.streamed(_many_texts(kind)))
        called, used = await hostile.survive(service, kind, face, hostile.streamed(_many_calls(kind)))
    assert completion(said).text == "".join(f"{number} " for number in range(1000))
    assert len(completion(called).tool_calls) == 1000
    assert face == "unary" or len(called.arguments) == 1000
    assert used.mebibytes < 64


def _many_texts(kind: str) -> bytes:
    if kind == "anthropic":
        return anthropic_events.stream(*(anthropic_events.text_block(n, f"{n} ") for n in range(1000)))
    items = [event for n in range(1000) for event in responses_events.text_events(n, f"{n} ")]
    return sse(*items, responses_events.ended())


def _many_calls(kind: str) -> bytes:
    if kind == "anthropic":
        blocks = (anthropic_events.tool_block(n, "look", '{"at":', f"{n}}}") for n in range(1000))
        return anthropic_events.stream(*blocks, reason="tool_use")
    calls = [responses_events.call(id=f"call_{n}") for n in range(1000)]
    items = [event for n, call in enumerate(calls) for event in responses_events.call_events(n, call, "{}")]
    return sse(*items, responses_events.ended())


@faces
@both
@pytest.mark.parametrize(
    "headers",
    [
        [("request-id", "\xff\xfe\xed\xa0\x80")],
        [("request-id", "r" * 10_000), ("request-id", "second")],
        [("x-request-id", ""), ("request-id", "\t \x80")],
        [("retry-after", "\xb2"), ("date", "\xff"), ("content-type", "\xff/\xfe; charset=\xfd")],
        [("content-type", "application/json; charset=utf-7")],
        [("content-encoding", ""), ("content-encoding", "identity")],
        [(f"x-{number}", "\x80") for number in range(500)],
    ],
    ids=["no text", "long and twice", "empty", "odd values", "a lie", "codings", "five hundred"],
)
async def test_odd_headers_cost_nothing(headers: list[tuple[str, str]], kind: str, face: Face):
    fine = Reply(headers=headers, chunks=[hostile.answer(kind, "Fine.")])
    limited = Reply(429, headers, [b"{}"])
    async with hostile.under_attack() as service:
        heard, _ = await hostile.survive(service, kind, face, fine)
        refused, _ = await hostile.survive(service, kind, face, limited)
    assert completion(heard).text == "Fine."
    assert refused.kind == "RATE_LIMITED"
    assert len(completion(heard).provider_request_id) <= 256


def _cut(data: bytes, end: End) -> Callable[[int], Reply]:
    return lambda size: Reply(raw=[data[:size]], end=end)


@both
@pytest.mark.parametrize("end", ["truncate", "reset"])
async def test_a_connection_that_closes_at_any_odd_place_is_told_as_what_it_is(end: End, kind: str):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    events = hostile.start(kind) + frame({"type": "ping"}) + hostile.delta(kind, "é")
    data = head + b"%X;ext=1\r\n%b\r\n" % (len(events), events) + b"0\r\nx-trailer: y\r\n"
    begins = len(head) + len(b"%X;ext=1\r\n" % len(events)) + hostile.start(kind).find(b"\n\n") + 2
    async with hostile.under_attack() as service:
        for size in [*range(1, len(data), 17), len(head) - 2, len(head) - 1, len(head), len(data)]:
            face: Face = "stream" if size % 2 else "unary"
            heard, _ = await hostile.survive(service, kind, face, _cut(data, end)(size))
            _check_cut(heard.result, kind, size, begins if kind == "anthropic" else len(data))


def _check_cut(error: Any, kind: str, size: int, begins: int) -> None:
    assert isinstance(error, ModelmeterError), size
    if size < begins and kind == "anthropic":
        assert (error.kind.name, error.certainty.name) == ("UNAVAILABLE", "UNKNOWN"), size
    elif kind == "anthropic":
        assert (error.kind.name, error.usage.input_tokens) == ("INTERRUPTED", 12), size
    else:
        assert error.kind.name in ("UNAVAILABLE", "UNACCOUNTED"), size
        assert error.certainty.name == "UNKNOWN", size
