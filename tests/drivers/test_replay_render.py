"""Rendered bytes are whole provider answers: cut anywhere, read in any pieces, streamed or as one document."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation, TextDelta
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.event_stream import FrameDecoder
from modelmeter_server.core.outcomes import Cause, Certainty, End, Ending, Kind, Stage
from modelmeter_server.core.requests import SchemaMode, Tool
from modelmeter_server.drivers.replay import PlayEnd, Script, Wire, parse_scripts
from modelmeter_server.drivers.replay.render import Rendition, render
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support.completion_requests import ask, model_of

OBJECT = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}

WIRES = st.sampled_from(Wire)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


class Asked(NamedTuple):
    """A request as an encoder writes it."""

    body: bytes
    target: str


def asked_of(
    wire: Wire, *, stream: bool = True, text: str = "Hi", forced: bool = False, tools: bool = False
) -> Asked:
    """Return a request to the wire, encoded as every request to it is."""
    schema = json.dumps({**OBJECT, "additionalProperties": False})
    request = ask(
        text,
        max_output_tokens=1000,
        tools=(Tool(name="look", parameters_json=schema),) if tools else (),
        output_schema_json=schema if forced else "",
        schema_mode=SchemaMode.FORCED_TOOL if forced else None,
    )
    model = model_of(wire.value, provider_model="own", buffered=not stream)
    prepared = WIRE_FORMATS[wire.value].encode(request, model)
    return Asked(prepared.body, prepared.target)


def script_of(wire: Wire, **play: Any) -> Script:
    (script,) = parse_scripts({"scripts": {"own": {"wire": wire.value, **play}}})
    return script


def rendered(script: Script, asked: Asked) -> Rendition:
    return render(script, script.play_of(0), asked.body, asked.target)


def events_in(wire: Wire, whole: bytes) -> int:
    """Return how many events there are."""
    if wire is Wire.BEDROCK:
        return len(FrameDecoder().feed(whole))
    return whole.count(b"\r\n\r\n" if wire is Wire.GEMINI else b"\n\n")


def reads(rendition: Rendition) -> list[bytes]:
    return [step for step in rendition.steps if isinstance(step, bytes)]


def judged(
    wire: Wire, chunks: list[bytes], end: End, expectation: Expectation = FREE_TEXT
) -> tuple[Accumulator, Answer | Failure]:
    """Return what the wire's accumulator makes of these reads."""
    accumulator = WIRE_FORMATS[wire.value].accumulator(expectation, deltas=True)
    for chunk in chunks:
        accumulator.feed(chunk)
    return accumulator, accumulator.finish(Ending(end=end, stage=Stage.BODY if chunks else Stage.HEADERS))


@st.composite
def plays(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a model might generate and how it might end, as a script file says it."""
    calls = st.lists(
        st.fixed_dictionaries({"name": st.just("look"), "arguments": st.just({"where": "é"})}), max_size=2
    )
    play: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {"text": TEXTS, "tool_calls": calls},
            optional={
                "reasoning": TEXTS,
                "pieces": st.integers(1, 9),
                "usage": st.sampled_from([False, {"input": 7, "output": 3}, {"cache_read": 5}]),
                "end": st.sampled_from([end.value for end in PlayEnd]),
            },
        )
    )
    if draw(st.booleans()):
        play["cut_after"] = draw(st.integers(-12, 12))
    elif draw(st.booleans()):
        play["error"] = {"type": "overloaded_error", "after": draw(st.integers(-12, 12))}
    return play


@given(WIRES, plays(), st.booleans(), st.data())
def test_any_chunking_of_the_bytes_gives_the_same_outcome(wire, play, stream, data):
    whole = b"".join(reads(rendered(script_of(wire, **play), asked_of(wire, stream=stream))))
    ends = data.draw(st.lists(st.integers(0, len(whole)), max_size=8).map(sorted))
    chunks = [whole[start:end] for start, end in zip([0, *ends], [*ends, len(whole)], strict=True)]
    end = data.draw(st.sampled_from([End.CLEAN, End.RESET, End.CUT]))
    (one, outcome), (many, same) = judged(wire, [whole], end), judged(wire, chunks, end)
    assert outcome == same
    assert one.drain() == many.drain()


@given(WIRES, plays(), st.booleans())
def test_pauses_change_no_byte_and_stand_between_reads(wire, play, stream):
    asked = asked_of(wire, stream=stream)
    plain, paced = (rendered(script_of(wire, **{**play, "pause": pause}), asked) for pause in (0, 0.5))
    assert len(plain.steps) <= 1
    assert b"".join(reads(plain)) == b"".join(reads(paced))
    assert list(paced.steps[1::2]) == [0.5] * (len(paced.steps) // 2)
    assert all(isinstance(step, bytes) for step in paced.steps[::2])


@given(WIRES, plays(), st.booleans())
def test_the_same_play_and_request_give_the_same_bytes(wire, play, stream):
    asked = asked_of(wire, stream=stream)
    assert rendered(script_of(wire, **play), asked) == rendered(script_of(wire, **play), asked)


@given(WIRES, plays())
def test_a_streamed_and_a_buffered_answer_are_the_same_answer(wire, play):
    play = {key: value for key, value in play.items() if key not in ("cut_after", "error")}
    script = script_of(wire, **play)
    (_, streamed), (_, buffered) = (
        judged(wire, reads(rendered(script, asked_of(wire, stream=stream))), End.CLEAN)
        for stream in (True, False)
    )
    assert type(streamed) is type(buffered)
    for name in ("usage", "certainty") + (
        ("text", "finish", "stop_reason") if isinstance(streamed, Answer) else ()
    ):
        assert getattr(streamed, name) == getattr(buffered, name)
    if isinstance(streamed, Answer) and isinstance(buffered, Answer):
        arguments = [[json.loads(call.arguments_json) for call in a.tool_calls] for a in (streamed, buffered)]
        assert arguments[0] == arguments[1]


@given(WIRES, TEXTS.filter(bool), st.none() | st.integers(1, 20))
def test_the_deltas_of_a_text_join_to_that_text(wire, text, pieces):
    script = script_of(wire, text=text, **({"pieces": pieces} if pieces else {}))
    accumulator, outcome = judged(wire, reads(rendered(script, asked_of(wire))), End.CLEAN)
    assert isinstance(outcome, Answer)
    assert outcome.text == text
    assert accumulator.drain() == [TextDelta(text)]


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("stream", [True, False])
def test_half_a_character_in_a_request_does_no_harm(wire, stream):
    asked = asked_of(wire, text="a?b", stream=stream)
    asked = asked._replace(body=asked.body.replace(b"?", b"\\ud800"))
    _, outcome = judged(wire, reads(rendered(script_of(wire), asked)), End.CLEAN)
    assert isinstance(outcome, Answer)
    assert '"a\ufffdb"' in outcome.text


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("odd", [5, "x", None, [], {"format": 5}, {"verbosity": "low"}])
def test_odd_members_of_a_request_do_no_harm(wire, odd):
    asked = asked_of(wire)
    names = ("output_config", "text", "tool_choice", "response_format", "toolConfig", "outputConfig")
    document = json.loads(asked.body) | dict.fromkeys((*names, "generationConfig"), odd) | {"tools": [odd]}
    document |= {"toolConfig": {"tools": [odd], "toolChoice": odd, "functionCallingConfig": odd}}
    asked = asked._replace(body=json.dumps(document).encode())
    _, outcome = judged(wire, reads(rendered(script_of(wire), asked)), End.CLEAN)
    assert isinstance(outcome, Answer)
    assert '"Hi"' in outcome.text


CONTENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text": ({"text": "one two three"}, {}),
    "reasoning": ({"reasoning": "hm hm", "text": "one"}, {}),
    "tools": ({"tool_calls": [{}, {"arguments": {"where": "a long way down the road"}}]}, {"tools": True}),
    "forced": ({"structured": {"where": "a long way down the road"}}, {"forced": True}),
    "refusal": ({"refusal": "I will not."}, {}),
    "empty": ({"text": ""}, {}),
    "unpaid": ({"text": "one two three", "usage": False}, {}),
}


def event_counts(wire: Wire, content: str) -> int:
    play, request = CONTENT[content]
    whole = b"".join(reads(rendered(script_of(wire, **play), asked_of(wire, **request))))
    return events_in(wire, whole)


def events_to_the_end(wire: Wire, content: str) -> int:
    """Return how many events make the answer whole, whatever the connection does then."""
    count = event_counts(wire, content)
    if wire is Wire.CHAT_COMPLETIONS:  # the finish, before the usage and `[DONE]`
        return count - 1 - (content != "unpaid")
    return count + (wire is Wire.GEMINI)  # whose end is that of the body


@pytest.mark.parametrize(
    ("wire", "content", "count"),
    [(w, c, n) for w in Wire for c in CONTENT for n in range(event_counts(w, c) + 1)],
)
def test_a_cut_after_any_event_gives_a_truthful_outcome(wire, content, count):
    play, request = CONTENT[content]
    script = script_of(wire, **play, cut_after=count)
    forced = (
        Expectation(schema_check=lambda document: None, forced_tool=True)
        if content == "forced"
        else FREE_TEXT
    )
    chunks = [chunk for chunk in reads(rendered(script, asked_of(wire, **request))) if chunk]
    accumulator, outcome = judged(wire, chunks, End.RESET, forced)
    assert events_in(wire, b"".join(chunks)) == count
    if count >= events_to_the_end(wire, content):
        assert isinstance(outcome, Answer) == (content not in ("refusal", "empty"))
        return
    assert isinstance(outcome, Failure)
    assert outcome.certainty is not Certainty.NONE
    usage = accumulator.snapshot().usage
    assert outcome.usage == usage
    if not accumulator.generated:
        assert outcome.kind is Kind.UNAVAILABLE
    elif usage is None:
        assert (outcome.kind, outcome.certainty) == (Kind.UNACCOUNTED, Certainty.UNKNOWN)
    else:
        assert outcome.kind is Kind.INTERRUPTED


@given(WIRES, st.integers(-30, -1) | st.integers(0, 6), st.booleans())
def test_an_error_takes_the_place_of_what_follows_it(wire, after, stream):
    script = script_of(wire, text="one two three", error={"type": "overloaded_error", "after": after})
    _, outcome = judged(wire, reads(rendered(script, asked_of(wire, stream=stream))), End.CLEAN)
    assert isinstance(outcome, Failure)
    assert outcome.kind in (Kind.RATE_LIMITED, Kind.INTERRUPTED, Kind.UNACCOUNTED)
    assert (outcome.cause, outcome.provider_code) == (Cause.PROVIDER, "overloaded_error")


@given(WIRES.filter(lambda wire: wire is not Wire.GEMINI))
def test_an_error_after_the_end_marker_is_not_read(wire):
    script = script_of(wire, text="one two three", error={"type": "overloaded_error", "after": 99})
    _, outcome = judged(wire, reads(rendered(script, asked_of(wire))), End.CLEAN)
    assert isinstance(outcome, Answer)


@given(WIRES, st.integers(0, 12), st.integers(0, 12))
def test_a_buffered_answer_is_cut_in_proportion(wire, one, other):
    sizes = []
    for count in sorted((one, other)):
        rendition = rendered(script_of(wire, text="one two", cut_after=count), asked_of(wire, stream=False))
        sizes.append(len(b"".join(reads(rendition))))
    assert sizes == sorted(sizes)
    assert (sizes[0] == 0) == (min(one, other) == 0)


@given(WIRES, st.sampled_from([400, 429, 500, 302]), st.none() | TEXTS)
def test_another_status_has_the_body_it_was_given_and_no_events(wire, status, body):
    given_body = {} if body is None else {"body": body}
    rendition = rendered(script_of(wire, status=status, **given_body, headers={"X-One": 1}), asked_of(wire))
    assert rendition.status == status
    assert b"".join(reads(rendition)) == (body or "").encode()
    assert dict(rendition.headers)["x-one"] == "1"


@pytest.mark.parametrize("wire", Wire)
def test_a_header_of_the_script_takes_the_place_of_the_usual_one(wire):
    headers = rendered(
        script_of(wire, headers={"content-type": "text/html", "request-id": "mine"}), asked_of(wire)
    ).headers
    assert dict(headers)["content-type"] == "text/html"
    assert len(dict(headers)) == len(headers)
