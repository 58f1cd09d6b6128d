"""ListModels and GetModel over a real channel."""

from __future__ import annotations

import dataclasses

import grpc
import msgspec
import pytest

import modelmeter
from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter_server.core.pricing import PriceTable, Tier, nanos_per_million
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.rpc.convert_model import fill_model
from tests.support.running_server import MODEL, Details, serving
from tests.support.scripted_driver import ScriptedDriver, answering

MODELS = [msgspec.structs.replace(MODEL, name=f"m{number:03}") for number in reversed(range(7))]


async def pages(running, size: int) -> list[list[str]]:
    """List everything, page by page."""
    request = model_service_pb2.ListModelsRequest(page_size=size)
    names = []
    while True:
        page = await running.stub.ListModels(request, timeout=5)
        names.append([model.name for model in page.models])
        if not page.next_page_token:
            return names
        request.page_token = page.next_page_token


async def test_models_are_listed_in_the_order_of_their_names_page_by_page():
    async with serving(ScriptedDriver(answering()), models=MODELS) as running:
        assert await pages(running, 3) == [["m000", "m001", "m002"], ["m003", "m004", "m005"], ["m006"]]
        assert await pages(running, 7) == [[f"m{number:03}" for number in range(7)]]
        assert await pages(running, 0) == [[f"m{number:03}" for number in range(7)]]


async def test_a_negative_page_size_and_a_made_up_token_are_reported_together():
    request = model_service_pb2.ListModelsRequest(page_size=-1, page_token="bTI6bQ==")
    async with serving(ScriptedDriver(answering()), models=MODELS) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.ListModels(request, timeout=5)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    named = [violation.field for violation in Details(caught.value).bad_request.field_violations]
    assert named == ["page_size", "page_token"]


@pytest.mark.parametrize("retry", [RetryPolicy(), RetryPolicy(max_attempts=4, ambiguous=True, landed=True)])
async def test_a_model_says_how_often_its_calls_may_be_tried_and_no_call_may_ask_for_more(retry):
    model = msgspec.structs.replace(MODEL, retry=retry)
    async with (
        serving(ScriptedDriver(answering()), models=[model]) as running,
        modelmeter.AsyncClient(running.address) as client,
    ):
        told = (await client.model("claude")).retry_policy
        assert told == modelmeter.RetryPolicy(retry.max_attempts, retry.ambiguous, retry.landed)
        assert (await client.complete("claude", "Hi", retry_policy=told)).text == "Hello."
        beyond = dataclasses.replace(told, max_attempts=told.max_attempts + 1)
        with pytest.raises(modelmeter.RefusedError):
            await client.complete("claude", "Hi", retry_policy=beyond)


async def test_a_model_says_what_it_can_do_and_what_it_costs():
    rates = Tier(input=nanos_per_million("5"), output=nanos_per_million("25"), cache_read=500_000)
    price = PriceTable(currency="USD", tiers=(rates,), hosted_tool_requests={"web_search": 10_000_000})
    async with serving(
        ScriptedDriver(answering()), models=[msgspec.structs.replace(MODEL, price=price)]
    ) as running:
        request = model_service_pb2.GetModelRequest(name="claude")
        model = (await running.stub.GetModel(request, timeout=5)).model
    assert (model.name, model.provider, model.provider_model) == ("claude", "scripted", "scripted-1")
    assert model.default_schema_mode == model_service_pb2.SCHEMA_MODE_NATIVE
    assert model.max_sensitivity == message_pb2.SENSITIVITY_PUBLIC
    (tier,) = model.price.tiers
    assert (tier.input, tier.output, tier.cache_read, tier.cache_write) == ("5", "25", "0.0005", "")
    assert dict(model.price.hosted_tool_requests) == {"web_search": "0.01"}


@pytest.mark.parametrize(("name", "code"), [("gpt-99", "NOT_FOUND"), ("", "INVALID_ARGUMENT")])
async def test_a_model_that_is_not_there_or_not_named_is_refused(name, code):
    async with serving(ScriptedDriver(answering())) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.GetModel(model_service_pb2.GetModelRequest(name=name), timeout=5)
    assert caught.value.code().name == code
    assert Details(caught.value).info.reason == "REFUSED"


def test_every_rate_that_can_be_configured_is_told():
    tier = Tier(
        **{name: 1 for name in Tier.__struct_fields__ if name != "service_tier"}, service_tier="batch"
    )
    message = model_service_pb2.Model()
    price = PriceTable(currency="USD", tiers=(tier,))
    fill_model(message, msgspec.structs.replace(MODEL, price=price))
    told = {field.name: value for field, value in message.price.tiers[0].ListFields()}
    assert told.keys() == set(Tier.__struct_fields__)
    assert {value for name, value in told.items() if name not in ("above_input_tokens", "service_tier")} == {
        "0.000000001"
    }
