"""`modelmeter count` and `modelmeter embed` as processes."""

from __future__ import annotations

import json

from modelmeter.v1 import error_pb2, message_pb2, usage_pb2
from tests.support.command_line import run
from tests.support.scripted_service import counted, embedded, failing, model_error, returning


async def test_a_count_is_one_number_on_standard_output(address, service):
    options = ("--system", "Be brief.", "--sensitivity", "secret")
    result = await run("count", "m", "Hi", *options, "--address", address)
    assert (result.code, result.out, result.err) == (0, "7\n", "")
    (request,) = service.requests
    assert (request.request.text, request.request.system) == ("Hi", "Be brief.")
    assert request.request.sensitivity == message_pb2.SENSITIVITY_SECRET


async def test_an_estimate_says_so_beside_the_number(address, service):
    response = counted(7, is_estimate=True, upper_bound=1234, uncounted_media=["image", "audio"])
    service.script("CountTokens", returning(response))
    result = await run("count", "m", "Hi", "--address", address)
    assert (result.code, result.out) == (0, "7\n")
    assert result.err.splitlines() == [
        "an estimate: the provider has no endpoint that counts",
        "  at most      1,234 tokens, if every byte is one",
        "  not counted  image, audio",
    ]


async def test_a_count_as_json_holds_every_field(address):
    result = await run("count", "m", "Hi", "--json", "--address", address)
    count = json.loads(result.out)["count"]
    assert (count["input_tokens"], count["is_estimate"], count["upper_bound"]) == (7, False, None)
    assert "proto" not in count


async def test_a_count_that_fails_has_the_exit_code_of_its_kind(address, service):
    service.script("CountTokens", failing(model_error(error_pb2.ERROR_KIND_REFUSED)))
    result = await run("count", "m", "Hi", "--address", address)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("REFUSED: ")
    told = await run("count", "m", "Hi", "--json", "--address", address)
    assert (told.code, json.loads(told.out)["error"]["type"]) == (3, "RefusedError")


async def test_each_vector_is_a_line_of_json_and_the_bill_stands_beside(address, service):
    response = embedded(
        [0.5, -1.5],
        [1.0, 2.0],
        revision="openai_responses:e@2",
        model_asked="small",
        target="openai",
        usage=usage_pb2.Usage(input_tokens=9, output_tokens=0),
    )
    service.script("Embed", returning(response))
    result = await run("embed", "small", "a", "b", "--dimensions", "2", "--address", address)
    assert result.code == 0
    assert [json.loads(line) for line in result.out.splitlines()] == [[0.5, -1.5], [1.0, 2.0]]
    told = result.err.splitlines()
    assert told[0] == "embedded"
    assert "  vectors    2 of 2 components" in told
    assert "  revision   openai_responses:e@2" in told
    assert "  tokens     input 9, output 0" in told
    (request,) = service.requests
    assert (list(request.inputs), request.dimensions) == (["a", "b"], 2)


async def test_without_texts_each_line_of_standard_input_is_one(address, service):
    result = await run(
        "embed", "m", "--input-type", "document", "--address", address, stdin=b"a\xe2\x80\xa8b\r\n\n  \nc\n"
    )
    assert result.code == 0
    (request,) = service.requests
    assert list(request.inputs) == ["a\u2028b", "c"]


async def test_vectors_as_json_are_one_document(address):
    result = await run("embed", "m", "a", "--json", "--label", "team=x", "--address", address)
    told = json.loads(result.out)["embeddings"]
    assert [round(each, 6) for each in told["vectors"][0]] == [0.6, 0.8]
    assert (told["dimensions"], told["certainty"], told["cost"], told["usage"]["input_tokens"]) == (
        2,
        "EXACT",
        None,
        None,
    )


async def test_a_batch_that_fails_shows_its_bill(address, service):
    service.script("Embed", failing(model_error(error_pb2.ERROR_KIND_UNUSABLE)))
    result = await run("embed", "m", "a", "--address", address)
    assert (result.code, result.out) == (6, "")
    assert "UNUSABLE" in result.err
    assert "input 11" in result.err


async def test_an_unknown_input_type_is_a_wrong_command_line(address):
    result = await run("embed", "m", "a", "--input-type", "question", "--address", address)
    assert result.code == 2


# What is said to the ledger

PURCHASE = (
    "--run",
    "trip-7",
    "--effect",
    "step-1",
    "--retry-landed",
    "--ceiling-tokens",
    "90",
    "--max-attempts",
    "3",
    "--repeat-ambiguous",
    "--repeat-landed",
    "--replay-only",
)


async def test_a_batch_says_its_effect_its_ceiling_and_whether_to_buy(address, service):
    service.script("Embed", returning(embedded([1.0])))
    money = ("--ceiling-money", "0.05USD", "--provider-options", '{"user": "u"}')
    secret = ("--sensitivity", "internal")
    result = await run("embed", "small", "a", *PURCHASE, *money, *secret, "--address", address)
    assert result.code == 0, result.err
    (request,) = service.requests
    assert (request.effect.run_id, request.effect.key) == ("trip-7", "step-1")
    assert request.effect.on_landed_error == request.effect.ON_LANDED_ERROR_RETRY
    assert (request.ceiling.tokens, request.ceiling.nano_units, request.ceiling.currency) == (
        90,
        50_000_000,
        "USD",
    )
    assert request.replay_only
    policy = request.retry_policy
    assert (policy.max_attempts, policy.ambiguous, policy.landed) == (3, True, True)
    assert request.provider_options_json == '{"user": "u"}'
    assert request.sensitivity == message_pb2.SENSITIVITY_INTERNAL


async def test_a_call_says_the_same(address, service):
    await run("call", "m", "Hi", "--no-stream", *PURCHASE, "--address", address)
    (request,) = service.requests
    assert (request.effect.key, request.ceiling.tokens, request.replay_only) == ("step-1", 90, True)
    assert not request.ceiling.HasField("nano_units")


async def test_half_an_effect_is_a_wrong_command_line(address, service):
    for half in (("--run", "r"), ("--effect", "k"), ("--retry-landed",)):
        result = await run("embed", "small", "a", *half, "--address", address)
        assert (result.code, service.requests) == (2, [])
        assert "--run and --effect go together" in result.err


async def test_a_replayed_batch_says_so_beside_its_bill(address, service):
    service.script("Embed", returning(embedded([1.0], replayed=True)))
    result = await run("embed", "small", "a", "--address", address)
    assert "replayed" in result.err
