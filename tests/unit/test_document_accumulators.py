"""Answers that come as one document: any chunking reads the same, every cut leaves the truth, junk is no answer."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.accumulators.embeddings import EmbeddingAccumulator
from modelmeter_server.core.accumulators.token_count import TokenCountAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.embeddings import Embeddings
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Certainty, End, Ending, Kind, Stage
from modelmeter_server.core.token_count import TokenCount
from modelmeter_server.drivers.openai_embeddings import FORM
from tests.support.accumulator_laws import check_bill
from tests.support.junk import JUNK

USAGE = {"prompt_tokens": 9, "total_tokens": 9}
ITEMS = [{"index": 0, "embedding": [0.5, 1.5]}, {"index": 1, "embedding": [2.5, -1.0]}]
DOCUMENT = json.dumps({"object": "list", "model": "e", "data": ITEMS, "usage": USAGE}).encode()
CLEAN = Ending(end=End.CLEAN, stage=Stage.BODY)
RESET = Ending(end=End.RESET, stage=Stage.BODY)


def embedding() -> EmbeddingAccumulator:
    return EmbeddingAccumulator(form=FORM, expected=2, dimensions=None, revision=partial(str.format, "r@{}"))


def counting() -> TokenCountAccumulator:
    return TokenCountAccumulator(member="input_tokens")


def result_of(accumulator: Accumulator, *pieces: bytes, ending: Ending = CLEAN) -> Answer | Failure:
    for piece in pieces:
        accumulator.feed(piece)
    return accumulator.finish(ending)


@given(st.lists(st.integers(0, len(DOCUMENT)), max_size=6))
def test_any_chunking_of_a_batch_reads_the_same(places):
    edges = [0, *sorted(places), len(DOCUMENT)]
    pieces = [DOCUMENT[start:end] for start, end in itertools.pairwise(edges)]
    assert result_of(embedding(), *pieces) == result_of(embedding(), DOCUMENT)


def test_a_whole_batch_is_an_answer_with_its_bill():
    answer = result_of(embedding(), DOCUMENT)
    assert isinstance(answer, Embeddings)
    assert [list(vector) for vector in answer.vectors] == [[0.5, 1.5], [2.5, -1.0]]
    assert (answer.dimensions, answer.revision, answer.model_served) == (2, "r@2", "e")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (9, 0)
    assert (answer.certainty, answer.estimated_output_tokens) == (Certainty.EXACT, None)


@pytest.mark.parametrize("ending", [CLEAN, RESET], ids=["clean", "reset"])
@pytest.mark.parametrize("usage_first", [True, False])
def test_a_batch_that_is_cut_anywhere_is_never_an_answer_and_never_free(ending, usage_first):
    members = {"usage": USAGE, "data": ITEMS} if usage_first else {"data": ITEMS, "usage": USAGE}
    document = json.dumps(members).encode()
    told_at = document.index(b"9}") + 2
    for length in range(1, len(document)):
        failed = result_of(embedding(), document[:length], ending=ending)
        assert isinstance(failed, Failure), length
        told = length >= told_at
        assert failed.certainty is (Certainty.EXACT if told else Certainty.UNKNOWN), length
        assert failed.kind is (Kind.INTERRUPTED if told else Kind.UNACCOUNTED), length
        check_bill(failed)


@given(JUNK)
def test_a_document_of_anything_is_judged_and_never_raises(junk):
    document = json.dumps(junk).encode()
    assert isinstance(result_of(embedding(), document), Failure)
    assert isinstance(result_of(counting(), document), Failure)


@given(JUNK, st.sampled_from(["data", "usage", "model", "id"]))
def test_junk_in_a_member_costs_no_more_than_that_member(junk, member):
    body = json.dumps({"data": ITEMS, "usage": USAGE, member: junk}).encode()
    result = result_of(embedding(), body)
    if isinstance(result, Failure):
        assert member == "data"
        assert result.kind is Kind.UNUSABLE
    if member != "usage":
        assert result.usage is not None
        assert result.usage.input_tokens == 9


@given(st.binary(max_size=60))
def test_whatever_bytes_come_the_bill_fits_the_kind(data):
    for make in (embedding, counting):
        result = result_of(make(), data)
        assert not isinstance(result, Embeddings)
        if isinstance(result, Failure):
            check_bill(result)


def test_an_error_inside_a_success_is_the_providers_error():
    body: dict[str, Any] = {"error": {"type": "rate_limit_error", "message": "slow down"}}
    failed = result_of(embedding(), json.dumps(body).encode())
    assert isinstance(failed, Failure)
    assert failed.kind is Kind.RATE_LIMITED


def test_an_error_beside_a_bill_keeps_the_bill():
    body = {"error": {"type": "server_error"}, "usage": USAGE}
    failed = result_of(embedding(), json.dumps(body).encode())
    assert isinstance(failed, Failure)
    assert failed.kind is Kind.INTERRUPTED
    assert failed.usage is not None
    assert failed.usage.input_tokens == 9


@given(st.integers(0, 2**63 - 1))
def test_a_count_is_read_to_its_last_digit(tokens):
    answer = result_of(counting(), json.dumps({"input_tokens": tokens}).encode())
    assert isinstance(answer, TokenCount)
    assert (answer.input_tokens, answer.is_estimate, answer.certainty) == (tokens, False, Certainty.NONE)


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "9", [9], {}])
def test_what_is_no_counter_is_no_count(value):
    failed = result_of(counting(), json.dumps({"input_tokens": value}).encode())
    assert isinstance(failed, Failure)
    assert failed.kind is Kind.UNUSABLE
