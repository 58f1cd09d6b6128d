"""The embedding model and the counts of the embedded provider: the same every time, and of some use."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.models import ModelSpec, Task
from modelmeter_server.core.token_count import TokenCount
from modelmeter_server.drivers.driver import CountingDriver, EmbeddingDriver, RequestRefused
from modelmeter_server.drivers.replay import ReplayDriver, ScriptBook, parse_scripts
from modelmeter_server.drivers.replay.vectors import answer, vector_of
from tests.support.replay import model_of, played, request_of

MODEL = ModelSpec(
    name="e", provider="replay", provider_kind="replay", provider_model="embedding", task=Task.EMBEDDING
)


def nearness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(vector_of(one, 64), vector_of(other, 64), strict=True))


@given(st.text(max_size=80), st.integers(1, 200))
def test_every_text_has_a_unit_vector_of_the_length_asked_for(text, dimensions):
    vector = vector_of(text, dimensions)
    assert len(vector) == dimensions
    assert math.isclose(math.hypot(*vector), 1, rel_tol=1e-5)
    assert vector == vector_of(text, dimensions)


@pytest.mark.parametrize("seed", range(5))
def test_texts_that_share_words_lie_nearer_than_texts_that_do_not(seed):
    near = nearness(f"the red apple {seed}", f"a red apple {seed}")
    assert near > 0.5 > abs(nearness(f"the red apple {seed}", f"blue skies over Oslo {seed * 7 + 100}"))


def test_the_end_of_a_long_text_changes_its_vector_too():
    assert vector_of("x" * 5000 + "a", 64) != vector_of("x" * 5000 + "b", 64)


@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_the_document_is_openais(encoding):
    body = msgspec.json.encode({"model": "embedding", "input": ["a", "b"], "encoding_format": encoding})
    document: dict[str, Any] = msgspec.json.decode(answer(body))
    assert [item["index"] for item in document["data"]] == [0, 1]
    assert document["usage"] == {"prompt_tokens": 1, "total_tokens": 1}
    assert all(
        isinstance(item["embedding"], str if encoding == "base64" else list) for item in document["data"]
    )


def test_the_driver_can_count_and_embed():
    driver = ReplayDriver()
    assert isinstance(driver, CountingDriver)
    assert isinstance(driver, EmbeddingDriver)


def test_a_script_is_no_embedding_model():
    request = EmbeddingRequest(model="e", call_id="c", inputs=("x",))
    with pytest.raises(RequestRefused, match="`embedding`"):
        ReplayDriver().prepare_embedding(request, msgspec.structs.replace(MODEL, provider_model="answer"))


async def test_a_count_is_what_the_next_answer_tells():
    scripts = parse_scripts(
        {
            "scripts": {
                "told": {"calls": [{"usage": {"input": 77}}, {}]},
                "worked_out": {},
            }
        }
    )
    driver = ReplayDriver(scripts=ScriptBook(scripts))
    for name in ("told", "told", "worked_out"):
        prepared = driver.prepare_count(request_of("How many words?"), model_of(name))
        assert isinstance(prepared.answer, TokenCount)
        said = await played(driver, name, request_of("How many words?"))
        assert said.usage is not None
        assert prepared.answer.input_tokens == said.usage.input_tokens


def test_counting_plays_nothing():
    driver = ReplayDriver(remember=4)
    driver.prepare_count(request_of("Hi"), model_of("answer"))
    assert not driver.calls
    assert not driver.requests
