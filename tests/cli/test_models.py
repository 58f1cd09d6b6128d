"""`modelmeter models` as a process."""

from __future__ import annotations

import json

import pytest

from modelmeter.v1 import error_pb2, message_pb2, model_service_pb2
from modelmeter.v1.model_service_pb2 import GetModelResponse, ListModelsResponse, Model
from tests.support.command_line import run, run_on_terminal
from tests.support.scripted_service import failing, model_error, returning

MODEL = Model(
    name="claude",
    provider="p",
    provider_kind="anthropic",
    provider_model="claude-opus-5",
    max_output_tokens=16384,
    default_schema_mode=model_service_pb2.SCHEMA_MODE_NATIVE,
    max_sensitivity=message_pb2.SENSITIVITY_PUBLIC,
    capabilities=model_service_pb2.ModelCapabilities(
        schema_modes=[model_service_pb2.SCHEMA_MODE_NATIVE, model_service_pb2.SCHEMA_MODE_FORCED_TOOL],
        tools=True,
        tools_with_schema=True,
        media=["image"],
        reasoning_efforts=[model_service_pb2.REASONING_EFFORT_LOW],
        sampling=["temperature"],
    ),
    price=model_service_pb2.Price(
        currency="USD",
        tiers=[
            model_service_pb2.PriceTier(input="5", output="25", cache_read="0.5"),
            model_service_pb2.PriceTier(
                input="10", output="50", above_input_tokens=200_000, service_tier="priority"
            ),
        ],
        hosted_tool_requests={"web_search": "0.01"},
    ),
    retry_policy=model_service_pb2.RetryPolicy(max_attempts=3, ambiguous=True),
)


@pytest.fixture(autouse=True)
def _listed(service):
    service.script("ListModels", returning(ListModelsResponse(models=[MODEL, Model(name="free")])))
    service.script("GetModel", returning(GetModelResponse(model=MODEL)))


async def test_a_pipe_gets_one_line_for_each_model_with_tabs_between(address):
    result = await run("models", "--address", address)
    first, second = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert first.split("\t") == ["claude", "p", "anthropic", "claude-opus-5", "16384", "5 / 25 USD and more"]
    assert second.split("\t")[0] == "free"


async def test_a_terminal_gets_a_table_with_a_header(address):
    result = await run_on_terminal("models", "--address", address)
    assert "provider's model" in result.out
    assert "5 / 25 USD and more" in result.out


async def test_one_model_is_told_in_full(address):
    result = await run("models", "claude", "--address", address)
    assert result.code == 0
    assert result.out.splitlines() == [
        "claude",
        "  provider                                     p (anthropic), claude-opus-5",
        "  most output                                  16,384 tokens, unless a call says otherwise",
        "  schema                                       native (default), forced_tool",
        "  tools                                        yes, also with a schema",
        "  media                                        image",
        "  efforts                                      low",
        "  sampling                                     temperature",
        "  sensitivity                                  up to PUBLIC",
        "  attempts                                     3 at most, also after silence",
        "  price                                        USD per million tokens",
        "  base                                         input 5, output 25, cache read 0.5",
        '  above 200,000 input tokens, tier "priority"  input 10, output 50',
        "  web_search                                   0.01 for a request",
    ]


async def test_json_is_one_document(address):
    listed = json.loads((await run("models", "--json", "--address", address)).out)
    told = json.loads((await run("models", "claude", "--json", "--address", address)).out)
    assert [model["name"] for model in listed["models"]] == ["claude", "free"]
    assert listed["models"][0] == told["model"]
    assert told["model"]["capabilities"]["reasoning_efforts"] == ["LOW"]


@pytest.mark.parametrize("as_json", [False, True])
async def test_an_unknown_model_is_refused(service, address, as_json):
    error = model_error(error_pb2.ERROR_KIND_REFUSED, message='no model "x"', cause=error_pb2.CAUSE_PROVIDER)
    service.script("GetModel", failing(error))
    result = await run("models", "x", "--address", address, *(["--json"] * as_json))
    assert result.code == 3
    if as_json:
        assert json.loads(result.out)["error"]["message"] == 'no model "x"'
    else:
        assert (result.out, result.err) == ("", 'REFUSED: no model "x"\n')


async def test_nobody_at_the_address_is_told_as_such():
    result = await run("models", "--address", "127.0.0.1:1")
    assert result.code == 5
    assert result.err.startswith("NOT CONNECTED: ")


async def test_what_differs_by_target_is_shown_with_each_and_vectors_have_no_output(service, address):
    prices = [
        model_service_pb2.Price(currency="USD", tiers=[model_service_pb2.PriceTier(input=rate, output="9")])
        for rate in ("1", "2")
    ]
    targets = [
        model_service_pb2.ModelTarget(name=f"p/{number}", weight=1, price=price)
        for number, price in enumerate(prices)
    ]
    routed = Model(name="routed", targets=targets, max_output_tokens=7)
    vectors = Model(name="vectors", task=model_service_pb2.MODEL_TASK_EMBEDDING, price=prices[0])
    service.script("ListModels", returning(ListModelsResponse(models=[routed, vectors])))
    service.script("GetModel", returning(GetModelResponse(model=routed)))
    listed = (await run("models", "--address", address)).out.splitlines()
    assert listed[0].split("\t") == ["routed", "2 targets", "", "", "7", "by target"]
    assert listed[1].split("\t")[4:] == ["", "1 USD"]
    told = (await run("models", "routed", "--address", address)).out
    assert "price        differs by target, see above\n" in told
