"""The benchmark measures what it says: every wire format gives the same whole answer."""

from __future__ import annotations

import pytest

from bench.answers import INPUT_TOKENS, KINDS, events, kind_of
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.outcomes import Certainty, End, Ending, Stage
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support.completion_requests import ask, model_of

DELTAS = 7


def test_every_wire_format_is_measured():
    assert set(KINDS) == set(WIRE_FORMATS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_wire_format_answers_the_same(kind):
    accumulator = WIRE_FORMATS[kind].accumulator()
    for event in events(kind, DELTAS):
        accumulator.feed(event)
    answer = accumulator.finish(Ending(end=End.CLEAN, stage=Stage.BODY))
    assert isinstance(answer, Answer)
    assert answer.text == "".join(f"word{n} " for n in range(DELTAS))
    assert answer.certainty is Certainty.EXACT
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (INPUT_TOKENS, DELTAS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_path_of_a_request_says_what_it_wants(kind):
    prepared = WIRE_FORMATS[kind].encode(ask(), model_of(kind))
    assert kind_of(prepared.target.encode()) == kind
