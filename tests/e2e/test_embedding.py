"""Embedding from the client to the provider: what each is sent, how its vectors and its bill are read, how it fails."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from modelmeter import Certainty, Disposition, EmbeddingInputType, Embeddings, ErrorKind, ModelmeterError
from modelmeter.v1.model_service_pb2 import EmbedRequest
from modelmeter.v1.model_service_pb2_grpc import ModelServiceStub
from modelmeter_server.core.models import ModelSpec, Task
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.drivers.http import Limits, Timeouts
from tests.support.fault_server import FaultServer, RecordedRequest, Reply
from tests.support.provider_service import API_KEY, ProviderService, provider_service

JSON = {"content-type": "application/json"}
PRICE = PriceTable(currency="USD", tiers=(Tier(input=20_000_000, output=0),))
VECTORS = [[0.5, -0.25], [1.0, 2.0]]
TITAN_HEADER = "x-amzn-bedrock-input-token-count"


def model(name: str, kind: str | None = None, **fields: Any) -> ModelSpec:
    kind = kind or name
    spec = {"provider": kind, "provider_kind": kind.partition("-")[0], "provider_model": "e-1"}
    return ModelSpec(name=f"{name}-vectors", task=Task.EMBEDDING, price=PRICE, **{**spec, **fields})


MODELS = [
    model("openai_responses"),
    model("chat_completions"),
    model("gemini"),
    model("titan", "bedrock", embedding_dialect="titan"),
    model("cohere", "bedrock", embedding_dialect="cohere"),
    model("bare", "bedrock"),
    model("anthropic"),
]


def openai(vectors: list[Any] = VECTORS, **members: Any) -> dict[str, Any]:
    data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)]
    usage = {"prompt_tokens": 9, "total_tokens": 9}
    return {"object": "list", "data": data, "model": "e-1-2026", "usage": usage, **members}


ANSWERS: dict[str, Any] = {
    "openai_responses": openai(),
    "chat_completions": openai(),
    "gemini": {
        "embeddings": [{"values": each} for each in VECTORS],
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
    },
    "titan": {"embedding": VECTORS[0], "inputTextTokenCount": 9},
    "cohere": {"id": "r-1", "response_type": "embeddings_floats", "embeddings": VECTORS, "texts": ["a", "b"]},
}
KINDS = sorted(ANSWERS)
OPTIONS = {"cohere": {"input_type": "document"}}


def replying(body: Any, **fields: Any) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(**{"headers": JSON, "chunks": [data], **fields})


def answering(kind: str) -> Reply:
    return replying(ANSWERS[kind], headers={**JSON, TITAN_HEADER: "9", "x-request-id": "req-7"})


def texts(kind: str) -> list[str]:
    return ["a"] if kind == "titan" else ["a", "b"]


@asynccontextmanager
async def serving(reply: Reply, **options: Any) -> AsyncIterator[ProviderService]:
    async with (
        FaultServer(reply) as provider,
        provider_service(provider, models=MODELS, **options) as service,
    ):
        yield service


async def embed(service: ProviderService, kind: str, **options: Any) -> Embeddings:
    options = {**OPTIONS.get(kind, {}), **options}
    return await service.client.embed(f"{kind}-vectors", options.pop("inputs", texts(kind)), **options)


async def failed(service: ProviderService, kind: str, **options: Any) -> ModelmeterError:
    with pytest.raises(ModelmeterError) as caught:
        await embed(service, kind, **options)
    return caught.value


async def sent(kind: str, **options: Any) -> RecordedRequest:
    async with serving(answering(kind)) as service:
        await embed(service, kind, **options)
        (request,) = service.provider.requests
    return request


# What each is sent


async def test_openai_is_asked_for_base64():
    request = await sent("openai_responses", dimensions=2, provider_options={"user": "u"})
    assert request.target == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {API_KEY}"
    assert json.loads(request.body) == {
        "model": "e-1",
        "input": ["a", "b"],
        "dimensions": 2,
        "encoding_format": "base64",
        "user": "u",
    }


async def test_a_caller_may_ask_for_numbers():
    request = await sent("chat_completions", provider_options={"encoding_format": "float"})
    assert json.loads(request.body)["encoding_format"] == "float"


async def test_gemini_is_sent_a_request_for_each_text():
    request = await sent("gemini", dimensions=2, input_type="query", provider_options={"title": "T"})
    assert request.target == "/v1beta/models/e-1:batchEmbedContents"
    assert request.headers["x-goog-api-key"] == API_KEY
    shared = {"taskType": "RETRIEVAL_QUERY", "outputDimensionality": 2, "title": "T"}
    assert json.loads(request.body)["requests"] == [
        {"model": "models/e-1", "content": {"parts": [{"text": text}]}, **shared} for text in ("a", "b")
    ]


async def test_titan_is_sent_one_text():
    request = await sent("titan", dimensions=2, provider_options={"normalize": False})
    assert request.target == "/model/e-1/invoke"
    assert json.loads(request.body) == {"inputText": "a", "dimensions": 2, "normalize": False}


async def test_cohere_is_sent_texts_with_their_type():
    request = await sent("cohere", input_type=EmbeddingInputType.QUERY, dimensions=2)
    assert request.target == "/model/e-1/invoke"
    assert json.loads(request.body) == {
        "texts": ["a", "b"],
        "input_type": "search_query",
        "output_dimension": 2,
    }


# What comes back


@pytest.mark.parametrize("kind", KINDS)
async def test_vectors_come_back_with_their_bill(kind):
    async with serving(answering(kind)) as service:
        answer = await embed(service, kind)
        (outcome,) = service.memory.outcomes
    assert [list(vector) for vector in answer.vectors] == VECTORS[: len(texts(kind))]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (9, 0)
    assert answer.certainty is Certainty.EXACT
    assert answer.cost is not None
    assert (answer.cost.nano_units, answer.cost.certainty) == (180, Certainty.EXACT)
    assert (answer.dimensions, answer.provider_request_id, answer.attempts_total) == (2, "req-7", 1)
    assert (outcome.call_id, outcome.result.certainty.value) == (answer.call_id, "EXACT")
    assert answer.timings.total is not None


async def test_base64_and_numbers_are_the_same_vector():
    packed = [base64.b64encode(struct.pack("<2f", *each)).decode() for each in VECTORS]
    async with serving(replying(openai(packed))) as service:
        answer = await embed(service, "openai_responses")
    assert [list(vector) for vector in answer.vectors] == VECTORS
    assert (answer.model_served, answer.revision) == ("e-1-2026", "openai_responses:e-1@2")


async def test_the_revision_names_all_that_changes_the_vectors():
    async with serving(answering("gemini")) as service:
        plain = await embed(service, "gemini")
        typed = await embed(service, "gemini", input_type="document")
        shaped = await embed(service, "gemini", input_type="document", provider_options={"title": "T"})
    assert plain.revision == "gemini:e-1@2"
    assert typed.revision == "gemini:e-1@2/document"
    assert shaped.revision.startswith("gemini:e-1@2/document#")


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": 0, "total_tokens": 0}]
)
async def test_a_bill_that_nobody_told_is_unknown_and_not_free(usage):
    async with serving(replying(openai(usage=usage))) as service:
        answer = await embed(service, "chat_completions")
    assert (answer.certainty, answer.cost, answer.usage.told) == (Certainty.UNKNOWN, None, False)


async def test_the_providers_own_figure_of_the_cost_wins():
    usage = {"prompt_tokens": 9, "total_tokens": 9, "cost": 0.5}
    async with serving(replying(openai(usage=usage))) as service:
        answer = await embed(service, "chat_completions")
    assert answer.cost is not None
    assert (answer.cost.nano_units, answer.cost.source.value) == (500_000_000, "PROVIDER")


async def test_the_fence_goes_up_once_the_batch_is_written():
    async with (
        serving(answering("gemini")) as service,
        grpc.aio.insecure_channel(service.address) as channel,
    ):
        call = ModelServiceStub(channel).Embed(EmbedRequest(model="gemini-vectors", inputs=["a", "b"]))
        metadata = dict(await call.initial_metadata())
        response = await call
    assert metadata["modelmeter-call-id"] == response.embeddings.call_id


# What cannot be used

UNUSABLE = {
    "a vector too few": openai(VECTORS[:1]),
    "a vector too many": openai([*VECTORS, [1.0, 1.0]]),
    "no vectors": openai([]),
    "an empty vector": openai([[], []]),
    "lengths that differ": openai([[1.0, 2.0], [1.0]]),
    "null for a component": openai([[1.0, None], [1.0, 2.0]]),
    "true for a component": openai([[1.0, True], [1.0, 2.0]]),
    "a text for a component": openai([[1.0, "2"], [1.0, 2.0]]),
    "beyond 32 bits": openai([[1.0, 1e300], [1.0, 2.0]]),
    "an integer beyond every float": openai([[1.0, 10**400], [1.0, 2.0]]),
    "NaN": openai([[1.0, float("nan")], [1.0, 2.0]]),
    "infinity": openai([[1.0, float("-inf")], [1.0, 2.0]]),
    "NaN in base64": openai([base64.b64encode(struct.pack("<2f", 1, float("nan"))).decode()] * 2),
    "infinities of both signs": openai(
        [base64.b64encode(struct.pack("<2f", float("inf"), float("-inf"))).decode()] * 2
    ),
    "half a float in base64": openai([base64.b64encode(b"123456").decode()] * 2),
    "no base64": openai(["?!"] * 2),
    "zeros": openai([[0.0, 0.0], [1.0, 2.0]]),
    "an object for a vector": openai([{}, [1.0, 2.0]]),
    "an order of its own": openai(data=list(reversed(openai()["data"]))),
    "an index told twice": openai(data=[openai()["data"][0]] * 2),
    "items that are none": openai(data=[1, 2]),
    "data that is no list": openai(data={"0": []}),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_an_answer_that_is_no_batch_of_vectors_is_unusable_and_keeps_its_bill(name):
    async with serving(replying(UNUSABLE[name])) as service:
        error = await failed(service, "openai_responses")
        (outcome,) = service.memory.outcomes
    assert (error.kind, error.disposition) == (ErrorKind.UNUSABLE, Disposition.LANDED)
    assert (error.usage.input_tokens, error.certainty) == (9, Certainty.EXACT)
    assert error.cost is not None
    assert error.cost.nano_units == 180
    assert (error.model_served, error.code.name, error.retryable) == ("e-1-2026", "ABORTED", False)
    assert outcome.result.usage is not None


async def test_vectors_of_another_length_than_asked_are_unusable():
    async with serving(answering("openai_responses")) as service:
        error = await failed(service, "openai_responses", dimensions=3)
    assert error.kind is ErrorKind.UNUSABLE
    assert "2 components instead of 3" in error.message


async def test_cohere_pays_by_the_header_also_when_its_document_is_none():
    reply = replying({"message": 1}, headers={**JSON, TITAN_HEADER: "9"})
    async with serving(reply) as service:
        error = await failed(service, "cohere")
    assert (error.kind, error.usage.input_tokens) == (ErrorKind.UNUSABLE, 9)


@pytest.mark.parametrize("told", ["", "-1", "1.5", "nine", "\u0663".encode().decode("latin-1"), "9" * 40])
async def test_a_header_that_is_no_counter_tells_nothing(told):
    async with serving(replying(ANSWERS["cohere"], headers={**JSON, TITAN_HEADER: told})) as service:
        answer = await embed(service, "cohere")
    assert (answer.certainty, answer.usage.told) == (Certainty.UNKNOWN, False)


# How it fails

STATUSES = [
    (400, ErrorKind.REFUSED, "INVALID_ARGUMENT", Certainty.NONE),
    (402, ErrorKind.REFUSED, "FAILED_PRECONDITION", Certainty.NONE),
    (429, ErrorKind.RATE_LIMITED, "RESOURCE_EXHAUSTED", Certainty.NONE),
    (503, ErrorKind.UNAVAILABLE, "UNAVAILABLE", Certainty.UNKNOWN),
]


@pytest.mark.parametrize(("status", "kind", "code", "certainty"), STATUSES)
@pytest.mark.parametrize("provider", KINDS)
async def test_an_error_answer_is_classified_as_for_a_completion(provider, status, kind, code, certainty):
    body = {"error": {"type": "some_error", "message": f"key {API_KEY}"}}
    async with serving(replying(body, status=status)) as service:
        error = await failed(service, provider)
        assert len(service.memory.outcomes) == 1
    assert (error.kind, error.code.name, error.certainty) == (kind, code, certainty)
    assert API_KEY not in str(error)


ENDS: dict[str, tuple[Reply, ErrorKind, Certainty]] = {
    "a cut before the usage": (
        replying(json.dumps(openai()).encode()[:40], end="truncate"),
        ErrorKind.UNACCOUNTED,
        Certainty.UNKNOWN,
    ),
    "a cut after the usage": (
        replying(json.dumps({"usage": openai()["usage"], **openai()}).encode()[:120], end="truncate"),
        ErrorKind.INTERRUPTED,
        Certainty.EXACT,
    ),
    "an event stream": (
        Reply(chunks=[b'data: {"object": "list", "data": []}\n\n']),
        ErrorKind.UNACCOUNTED,
        Certainty.UNKNOWN,
    ),
    "silence": (Reply(silent=True, end="stall"), ErrorKind.UNAVAILABLE, Certainty.UNKNOWN),
    "a reset without an answer": (Reply(silent=True, end="reset"), ErrorKind.UNAVAILABLE, Certainty.UNKNOWN),
    "a page of a proxy": (
        Reply(headers={"content-type": "text/html"}, chunks=[b"<html>\n<p>\n"]),
        ErrorKind.UNACCOUNTED,
        Certainty.UNKNOWN,
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_batch_that_breaks_off_is_judged_by_the_ladder(name):
    reply, kind, certainty = ENDS[name]
    async with serving(reply) as service:
        error = await failed(service, "openai_responses")
    assert (error.kind, error.certainty) == (kind, certainty)
    assert error.retryable is False


async def test_the_callers_deadline_cuts_the_batch():
    slow = Timeouts(first_byte=20, total=20)
    async with serving(Reply(silent=True, end="stall"), timeouts=slow) as service:
        error = await failed(service, "gemini", timeout=3)
        await service.provider.disconnected()
    assert (error.kind, error.code.name) == (ErrorKind.UNAVAILABLE, "DEADLINE_EXCEEDED")
    assert error.may_have_generated


# What is refused before anything is sent

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic", {}, "model"),
    ("bare", {}, "model"),
    ("openai_responses", {"inputs": []}, "inputs"),
    ("openai_responses", {"inputs": ["x"] * 2049}, "inputs"),
    ("openai_responses", {"inputs": ["x" * (8 * 1024 * 1024 + 1)]}, "inputs"),
    ("openai_responses", {"inputs": ["a", " "]}, "inputs[1]"),
    ("openai_responses", {"dimensions": 0}, "dimensions"),
    ("openai_responses", {"input_type": "query"}, "input_type"),
    ("openai_responses", {"call_id": "mine"}, "call_id"),
    ("openai_responses", {"labels": {"": "x"}}, "labels"),
    ("openai_responses", {"provider_options": "{"}, "provider_options_json"),
    ("openai_responses", {"provider_options": "[]"}, "provider_options_json"),
    ("openai_responses", {"provider_options": {"Input": ["x"]}}, "provider_options_json.Input"),
    (
        "openai_responses",
        {"provider_options": {"encoding_format": "int8"}},
        "provider_options_json.encoding_format",
    ),
    ("gemini", {"inputs": ["x"] * 101}, "inputs"),
    (
        "gemini",
        {"provider_options": {"output_dimensionality": 2}},
        "provider_options_json.output_dimensionality",
    ),
    (
        "gemini",
        {"input_type": "query", "provider_options": {"taskType": "FACT_VERIFICATION"}},
        "provider_options_json.taskType",
    ),
    ("titan", {"inputs": ["a", "b"]}, "inputs"),
    ("titan", {"input_type": "query"}, "input_type"),
    ("cohere", {"input_type": None}, "input_type"),
    ("cohere", {"input_type": "similarity"}, "input_type"),
    ("cohere", {"inputs": ["x"] * 97}, "inputs"),
    ("cohere", {"provider_options": {"images": []}}, "provider_options_json.images"),
]


@pytest.mark.parametrize(("kind", "options", "field"), REFUSED)
async def test_what_a_provider_cannot_do_is_refused_before_anything_is_sent(kind, options, field):
    async with serving(Reply()) as service:
        error = await failed(service, kind, **options)
        assert service.provider.requests == []
    assert (error.kind, error.code.name, error.certainty) == (
        ErrorKind.REFUSED,
        "INVALID_ARGUMENT",
        Certainty.NONE,
    )
    assert [each.field for each in error.violations] == [field]


async def test_vertex_is_refused_before_anything_is_sent():
    async with serving(Reply(), path="/v1/projects/p/locations/l/publishers/google") as service:
        error = await failed(service, "gemini")
        assert service.provider.requests == []
    assert [each.field for each in error.violations] == ["model"]


async def test_every_mistake_of_a_batch_is_told_at_once():
    async with serving(Reply()) as service:
        error = await failed(service, "gemini", inputs=[""], dimensions=0, call_id="mine")
    assert [each.field for each in error.violations] == ["call_id", "inputs[0]", "dimensions"]


async def test_a_batch_above_the_deployments_limit_is_refused():
    async with serving(Reply(), limits=Limits(request_bytes=1000)) as service:
        error = await failed(service, "chat_completions", inputs=["x" * 1000])
    assert [each.field for each in error.violations] == ["inputs"]


@pytest.mark.parametrize("kind", ["openai_responses", "gemini"])
async def test_a_model_is_asked_for_what_it_is_declared_for(kind):
    async with serving(Reply()) as service:
        with pytest.raises(ModelmeterError, match="ask it with `Embed`"):
            await service.client.complete(f"{kind}-vectors", "Hi")
        with pytest.raises(ModelmeterError, match="ask it with `Embed`"):
            await service.client.count_tokens(f"{kind}-vectors", "Hi")
        with pytest.raises(ModelmeterError, match="is no embedding model"):
            await service.client.embed(kind, "Hi")
        assert service.provider.requests == []
