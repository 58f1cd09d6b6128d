"""The official SDKs and our accumulators hear the same in the same bytes; where they do not, the reason is listed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import Accumulator
from tests.conformance.recordings import load_recordings, make
from tests.support import anthropic_streams, bedrock_streams, chat_streams, gemini_streams, responses_streams
from tests.support.accumulator_laws import Facts, figures
from tests.support.material import MISSING
from tests.support.sdk_accumulators import HEAR, Heard, arguments
from tests.support.sdk_fixtures import FIXTURES
from tests.support.wire_bytes import ending

pytestmark = [
    pytest.mark.xdist_group("sdks"),
    # Of the SDKs about their own types, where a server sends another shape.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

KINDS = {"openai-responses": "openai_responses", "openai-chat": "chat_completions"}
EVERYTHING = "everything"
ASPECTS = ("text", "calls", "usage", "stop")


@dataclass(frozen=True)
class Stream:
    """One stream, and what reads it."""

    name: str
    kind: str
    data: bytes
    make: Callable[[], Accumulator]


def _recorded() -> dict[str, Stream]:
    found = [each for each in load_recordings() if each.is_stream]
    return {
        each.file: Stream(each.file, KINDS.get(family := each.says["family"], family), each.data, each.make)
        for each in found
    }


def _mine() -> dict[str, Stream]:
    return {
        f"mine: {name}": Stream(f"mine: {name}", kind, data, partial(make, kind, None))
        for name, (kind, data) in FIXTURES.items()
    }


RECORDED = _recorded()
STREAMS = RECORDED | _mine()
LISTED: list[dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("disagreements.toml").read_text(encoding="utf-8")
)["disagreement"]


def heard_by_us(accumulator: Accumulator, data: bytes) -> Heard:
    accumulator.feed(data)
    accumulator.finish(ending())
    known = accumulator.snapshot()
    calls = [(name, arguments(text)) for _, name, text in known.tool_calls]
    return Heard(known.text, calls, figures(known.usage), known.stop_reason)


def well_formed(text: str) -> str:
    """Return a text with its halves of characters joined, and U+FFFD for one that is alone: SDKs hand on both."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def differences(stream: Stream) -> dict[str, str]:
    """Return what differs, with both sides; of a stream that the SDK does not take, the exception."""
    ours = heard_by_us(stream.make(), stream.data)
    try:
        theirs = HEAR[stream.kind](stream.data)
    except Exception as error:  # noqa: BLE001 - whatever an SDK raises is its answer
        return {EVERYTHING: type(error).__name__}
    theirs.text = well_formed(theirs.text)
    return {
        aspect: f"{getattr(ours, aspect)!r} != {getattr(theirs, aspect)!r}"
        for aspect in ASPECTS
        if getattr(ours, aspect) != getattr(theirs, aspect)
    }


@pytest.mark.parametrize("name", STREAMS)
def test_an_sdk_hears_what_we_hear_but_for_what_is_listed(name):
    listed = {each["of"]: each for each in LISTED if each["stream"] == name}
    found = differences(STREAMS[name])
    assert found.keys() == listed.keys(), found
    if EVERYTHING in listed:
        assert found[EVERYTHING] == listed[EVERYTHING]["raises"]


def test_every_disagreement_is_of_a_stream_that_is_there_and_has_a_reason(shared):
    assert RECORDED, MISSING
    assert not [each["stream"] for each in LISTED if each["stream"] not in STREAMS]
    assert all(each["of"] in (*ASPECTS, EVERYTHING) and len(each["reason"]) > 20 for each in LISTED)
    places = [(each["stream"], each["of"]) for each in LISTED]
    assert len(places) == len(set(places))


def test_a_stream_of_each_wire_format_is_heard_whole():
    whole = {kind for kind, data in FIXTURES.values() if HEAR[kind](data).usage and HEAR[kind](data).text}
    assert whole == set(HEAR)


# Streams at random: words and reasons. Figures at random are another matter, for SDKs check none and replace all.

DRAWN: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Facts]]] = {
    "anthropic": (anthropic_streams.events(), anthropic_streams.told),
    "bedrock": (bedrock_streams.events(), bedrock_streams.told),
    "chat_completions": (chat_streams.chunks(), chat_streams.told),
    "gemini": (gemini_streams.chunks(), gemini_streams.told),
    "openai_responses": (responses_streams.events(), responses_streams.told),
}


# Gemini's SDK hands on pieces of arguments, and OpenAI's goes by a terminal object that may be empty: see the list.
COMPARED = {kind: {"text", "stop", "calls"} for kind in ("anthropic", "bedrock", "chat_completions")}


@pytest.mark.parametrize("kind", DRAWN)
def test_the_words_of_any_stream_that_an_sdk_takes_are_the_same(kind):
    strategy, told = DRAWN[kind]
    compared = COMPARED.get(kind, {"text", "stop"})
    taken = []

    @settings(max_examples=60)
    @given(strategy)
    def check(events: Any) -> None:
        data = told(events).data
        found = differences(Stream("drawn", kind, data, partial(make, kind, None)))
        assert not compared & found.keys(), found
        taken.append(EVERYTHING not in found)

    check()
    assert any(taken)


def test_halves_of_characters_are_joined_and_one_alone_is_replaced():
    assert well_formed("a\ud83d\ude00b") == "a\U0001f600b"
    assert well_formed("\ude00a\ud83d") == "\ufffda\ufffd"


@pytest.mark.parametrize("aspect", ASPECTS)
def test_the_comparison_notices_each_aspect(aspect):
    other: dict[str, Any] = {
        "text": "Ho",
        "calls": [("look", {})],
        "usage": (1, 1, None, None, None),
        "stop": "length",
    }
    stream = STREAMS["mine: anthropic text"]
    ours = heard_by_us(stream.make(), stream.data)
    assert HEAR[stream.kind](stream.data) == ours
    setattr(ours, aspect, other[aspect])
    assert HEAR[stream.kind](stream.data) != ours
