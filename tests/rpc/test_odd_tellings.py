"""What compatible servers and gateways tell in places of their own, from the provider's socket to the caller."""

from __future__ import annotations

from typing import Any

import pytest

import modelmeter
from modelmeter import ModelmeterError
from tests.conformance.asking import Face, Heard, ask
from tests.support import chat_events, responses_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.provider_service import provider_service
from tests.support.wire_bytes import Json, body, sse

FACES: tuple[Face, ...] = ("unary", "stream")
faces = pytest.mark.parametrize("face", FACES)
kinds = pytest.mark.parametrize("kind", ["anthropic", "chat_completions", "gemini", "openai_responses"])


async def heard(face: Face, kind: str, *chunks: bytes, status: int = 200) -> Heard:
    """Return what the caller of one call gets for these bytes."""
    reply = Reply(status=status, chunks=chunks)
    async with FaultServer(reply) as provider, provider_service(provider) as service:
        return await ask(service.client, face, kind, "Hi")


def error(got: Heard) -> ModelmeterError:
    assert isinstance(got.result, ModelmeterError), got.result
    return got.result


def completion(got: Heard) -> modelmeter.Completion:
    assert isinstance(got.result, modelmeter.Completion), got.result
    return got.result


ERRORS: list[tuple[object, str, str]] = [
    ({"error": "Model is overloaded", "error_type": "overloaded"}, "RATE_LIMITED", "RESOURCE_EXHAUSTED"),
    ({"error": "too many tokens", "error_type": "validation"}, "REFUSED", "INVALID_ARGUMENT"),
    ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], "RATE_LIMITED", "RESOURCE_EXHAUSTED"),
    ({"error": {"type": "exceeded_current_quota_error"}}, "REFUSED", "FAILED_PRECONDITION"),
    (
        {"error": {"type": "server_error", "code": "rate_limit_exceeded"}},
        "RATE_LIMITED",
        "RESOURCE_EXHAUSTED",
    ),
]


@kinds
@faces
@pytest.mark.parametrize(("document", "outcome", "code"), ERRORS)
async def test_an_error_in_any_shape_costs_nothing_and_says_what_helps(
    face: Face, kind: str, document: object, outcome: str, code: str
):
    for data in (sse(document), b": hello\n\n" + body(document), body(document)):
        got = error(await heard(face, kind, data))
        assert (got.kind.name, got.code.name, got.certainty.name) == (outcome, code, "NONE"), data


@faces
@pytest.mark.parametrize("status", [400, 429])
async def test_an_empty_account_is_no_rate_limit(face: Face, status: int):
    for word in ("exceeded_current_quota_error", "budget_exceeded", "insufficient_balance"):
        document = body({"error": {"type": word, "message": "x"}})
        got = error(await heard(face, "chat_completions", document, status=status))
        assert (got.kind.name, got.code.name) == ("REFUSED", "FAILED_PRECONDITION")


async def test_one_face_hears_the_bill_that_the_other_does():
    """Counts that no double holds, own keys behind a router, cache writes under Anthropic's name."""
    odd = b'{"prompt_tokens": 1e999, "completion_tokens": 8}'
    told: Json = {
        **chat_events.USAGE,
        "cost": 0.95,
        "is_byok": True,
        "cost_details": {"upstream_inference_cost": 19},
        "cache_creation_input_tokens": 6,
    }
    for face in FACES:
        data = chat_events.stream("Hello", figures="odd").replace(b'"odd"', odd)
        bad = completion(await heard(face, "chat_completions", data))
        assert (bad.usage.told, bad.usage.output_tokens, bad.certainty.name) == (True, 8, "AT_LEAST")
        good = completion(await heard(face, "chat_completions", chat_events.stream("Hello", figures=told)))
        assert good.usage.cache_write_tokens == 6
        assert good.cost is not None
        assert (good.cost.nano_units, good.cost.certainty.name) == (19_950_000_000, "EXACT")


def unnumbered(*events: Json) -> list[Json]:
    return [
        {name: value for name, value in event.items() if name not in ("output_index", "content_index")}
        for event in events
    ]


@faces
async def test_calls_that_a_server_does_not_number_arrive_apart(face: Face):
    calls = [responses_events.call("look", f'{{"at":{at}}}', f"fc_{at}") for at in (1, 2)]
    opened = [responses_events.added(0, {**call, "id": "", "arguments": ""}) for call in calls]
    pieces: list[dict[str, Any]] = [
        {**responses_events.arguments(0, call["arguments"]), "item_id": call["call_id"]} for call in calls
    ]
    events = unnumbered(opened[0], pieces[0], opened[1], pieces[1])
    data = sse(responses_events.created(), *events, responses_events.ended(*calls))
    got = await heard(face, "openai_responses", data)
    assert [call.arguments_json for call in completion(got).tool_calls] == ['{"at":1}', '{"at":2}']
    if face == "stream":
        assert got.arguments == ('{"at":1}', '{"at":2}')
