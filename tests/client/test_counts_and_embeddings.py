"""What both clients make of counts and vectors: requests, results, errors."""

from __future__ import annotations

import uuid
from array import array

import grpc
import pytest

from modelmeter import (
    Certainty,
    EmbeddingInputType,
    LostContactError,
    Sensitivity,
    UnusableError,
)
from modelmeter.v1 import embedding_pb2, error_pb2, message_pb2, token_count_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import (
    CompleteRequest,
    CountTokensResponse,
    EmbedRequest,
    EmbedResponse,
)
from tests.support.scripted_service import (
    aborting,
    counted,
    embedded,
    failing,
    model_error,
    returning,
)


async def test_a_count_takes_what_a_completion_takes(client, service):
    await client.count_tokens("m", "Hi", system="Be brief.", max_output_tokens=3, labels={"a": "b"})
    await client.count_tokens(CompleteRequest(model="m", text="Hi"))
    first, second = (request.request for request in service.requests)
    assert (first.model, first.text, first.system, first.max_output_tokens) == ("m", "Hi", "Be brief.", 3)
    assert (second.model, second.text) == ("m", "Hi")
    assert uuid.UUID(first.call_id) != uuid.UUID(second.call_id)


async def test_a_count_arrives_whole(client, service):
    proto = token_count_pb2.TokenCount(
        input_tokens=7,
        is_estimate=True,
        upper_bound=0,
        uncounted_media=["image"],
        model_asked="m",
        target="p",
        call_id="c",
        provider_request_id="r",
    )
    service.script("CountTokens", returning(CountTokensResponse(count=proto)))
    count = await client.count_tokens("m", "Hi")
    assert (count.input_tokens, count.is_estimate, count.upper_bound) == (7, True, 0)
    assert (count.uncounted_media, count.model_asked, count.target) == (("image",), "m", "p")
    assert (count.call_id, count.provider_request_id, count.proto) == ("c", "r", proto)


async def test_a_bound_that_was_not_told_is_none(client, service):
    service.script("CountTokens", returning(counted(0)))
    count = await client.count_tokens("m", "Hi")
    assert (count.input_tokens, count.upper_bound) == (0, None)


async def test_a_response_without_a_count_is_no_count_of_zero(client, service):
    service.script("CountTokens", returning(CountTokensResponse()))
    with pytest.raises(LostContactError) as caught:
        await client.count_tokens("m", "Hi")
    assert (caught.value.certainty, caught.value.may_have_generated) == (Certainty.NONE, False)


async def test_a_count_whose_connection_breaks_has_bought_nothing(client, service):
    service.script("CountTokens", aborting(grpc.StatusCode.UNAVAILABLE, "gone"))
    with pytest.raises(LostContactError, match="nothing was bought"):
        await client.count_tokens("m", "Hi")


async def test_a_batch_sends_every_option(client, service):
    call_id = uuid.uuid4()
    await client.embed(
        "m",
        ["a", "b"],
        dimensions=2,
        input_type="query",
        provider_options={"z": 1, "a": 2},
        sensitivity=Sensitivity.INTERNAL,
        call_id=call_id,
        labels={"team": "x"},
    )
    (request,) = service.requests
    assert request == EmbedRequest(
        model="m",
        inputs=["a", "b"],
        dimensions=2,
        input_type=embedding_pb2.EMBEDDING_INPUT_TYPE_QUERY,
        provider_options_json='{"z": 1, "a": 2}',
        sensitivity=message_pb2.SENSITIVITY_INTERNAL,
        call_id=str(call_id),
        labels={"team": "x"},
    )


async def test_one_text_is_a_batch_of_one_with_a_call_id_of_its_own(client, service):
    await client.embed("m", "abc")
    await client.embed(EmbedRequest(model="m", inputs=["abc"]))
    first, second = service.requests
    assert (list(first.inputs), first.HasField("dimensions")) == (["abc"], False)
    assert list(second.inputs) == ["abc"]
    assert uuid.UUID(first.call_id) != uuid.UUID(second.call_id)


async def test_a_ready_request_is_copied_and_takes_nothing_beside_it(client, service):
    ready = EmbedRequest(model="m", inputs=["a"])
    await client.embed(ready)
    assert ready.call_id == ""
    with pytest.raises(TypeError, match="not both"):
        await client.embed(ready, ["b"])
    with pytest.raises(ValueError, match="QUERY"):
        await client.embed("m", "a", input_type="question")
    with pytest.raises(TypeError):
        await client.embed("m", [1])
    assert len(service.requests) == 1


async def test_vectors_arrive_whole(client, service):
    response = embedded(
        [0.5, -1.5],
        [1.0, 2.0],
        revision="r",
        usage=usage_pb2.Usage(input_tokens=9, output_tokens=0),
        cost=usage_pb2.Cost(nano_units=180, currency="USD"),
        model_asked="m",
        model_served="m-1",
        target="p",
        attempts_total=1,
        sensitivity=message_pb2.SENSITIVITY_PUBLIC,
        call_id="c",
        settled=True,
        timings={"total": {"seconds": 2}},
    )
    service.script("Embed", returning(response))
    answer = await client.embed("m", ["a", "b"])
    assert answer.vectors == (array("f", [0.5, -1.5]), array("f", [1.0, 2.0]))
    assert memoryview(answer.vectors[0]).format == "f"
    assert (answer.dimensions, answer.revision, answer.certainty) == (2, "r", Certainty.EXACT)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (9, 0)
    assert answer.cost is not None
    assert (answer.cost.nano_units, answer.settled, answer.replayed) == (180, True, False)
    assert (answer.model_asked, answer.model_served, answer.target, answer.call_id) == ("m", "m-1", "p", "c")
    assert (answer.timings.total, answer.timings.first_token) == (2.0, None)
    assert "vectors" not in repr(answer)
    assert hash(answer) == hash(answer)


async def test_a_usage_and_a_cost_that_nobody_told_are_absent(client, service):
    service.script("Embed", returning(embedded([1.0], certainty=usage_pb2.CERTAINTY_UNKNOWN)))
    answer = await client.embed("m", "a")
    assert (answer.usage.told, answer.cost, answer.certainty) == (False, None, Certainty.UNKNOWN)


async def test_a_response_without_a_certainty_is_no_answer(client, service):
    service.script("Embed", returning(EmbedResponse()))
    with pytest.raises(LostContactError) as caught:
        await client.embed("m", "a")
    assert caught.value.call_id == service.requests[0].call_id


async def test_a_failed_batch_carries_its_bill(client, service):
    service.script("Embed", failing(model_error(error_pb2.ERROR_KIND_UNUSABLE)))
    with pytest.raises(UnusableError) as caught:
        await client.embed("m", "a")
    assert caught.value.usage.input_tokens == 11


def test_an_input_type_is_a_word_of_its_own():
    assert EmbeddingInputType("similarity") is EmbeddingInputType.SIMILARITY
    assert EmbeddingInputType.DOCUMENT == "DOCUMENT"
