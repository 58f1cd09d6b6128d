"""Deltas have one number each, for everyone, and readers that come late get what is still there."""

from __future__ import annotations

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.answers import FREE_TEXT, TextDelta
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.delta_log import DeltaLog
from tests.support.scripted_driver import opening, text


def fed(log: DeltaLog, *pieces: str) -> DeltaLog:
    """Pull after each piece, so that each has a number of its own."""
    accumulator = AnthropicAccumulator(FREE_TEXT, deltas=True)
    accumulator.feed(opening().data)
    for piece in pieces:
        accumulator.feed(text(piece).data)
        log.pull(accumulator)
    return log


def read(log: DeltaLog, after: int) -> list[tuple[int, str]]:
    first, deltas = log.after(after)
    return [
        (number, delta.text) for number, delta in enumerate(deltas, first) if isinstance(delta, TextDelta)
    ]


def test_two_readers_see_the_same_numbers_wherever_they_begin():
    log = fed(DeltaLog(keeps=True), "a", "b", "c")
    assert read(log, 0) == [(1, "a"), (2, "b"), (3, "c")]
    assert read(log, 2) == [(3, "c")]
    assert read(log, 3) == read(log, 99) == []


def test_without_others_to_read_it_nothing_is_kept():
    log = fed(DeltaLog(keeps=False), "a", "b")
    assert read(log, 0) == [(1, "a"), (2, "b")]
    assert read(log, 0) == []
    assert log.last == 2


def test_of_a_long_answer_the_end_is_kept_with_its_numbers():
    log = fed(DeltaLog(keeps=True, limit=4), "aaa", "bbb", "c")
    assert read(log, 0) == [(2, "bbb"), (3, "c")]


def test_usage_has_a_version_so_that_every_reader_hears_of_it():
    log = fed(DeltaLog(keeps=True), "a", "b")
    assert log.usage is not None
    assert log.usage[0].input_tokens == 25
    assert log.usage_version == 1


def test_after_another_attempt_usage_is_that_of_all_attempts_together():
    log = DeltaLog(keeps=True)
    past = Usage(input_tokens=7, output_tokens=3)
    log.carry(failure(Kind.UNUSABLE, "blank", usage=past, certainty=Certainty.EXACT))
    fed(log, "a")
    assert log.usage is not None
    assert (log.usage[0].input_tokens, log.usage[2]) == (32, Certainty.AT_LEAST)
