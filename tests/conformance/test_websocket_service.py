"""Recorded WebSocket transcripts and hand-made cases, over a real socket, through the service and the client."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from modelmeter import Completion, ModelmeterError
from modelmeter_server.core.outcomes import Certainty
from tests.support.material import MISSING, SHARED, has_material
from tests.support.provider_service import provider_service
from tests.support.socket_server import Reply, answered, socket_server

pytestmark = pytest.mark.skipif(not has_material(), reason=MISSING)

CASES: list[dict[str, Any]] = (
    [
        document
        for path in sorted((SHARED / "cases").glob("*.json"))
        if (document := json.loads(path.read_text()))["transport"] == "websocket"
    ]
    if has_material()
    else []
)
EXPECTED: dict[str, dict[str, Any]] = (
    {
        document["file"]: document
        for document in json.loads((SHARED / "streams" / "expected.json").read_text())["files"]
        if document["file"].endswith(".ws.jsonl")
    }
    if has_material()
    else {}
)


async def ask(session, **options):
    turn = await session.turn("Hello", **options)
    try:
        return await turn.result(), turn.end
    except ModelmeterError as error:
        return error, turn.end


def usage_of(result):
    told = result.usage
    return {
        name: getattr(told, name)
        for name in ("input_tokens", "output_tokens")
        if getattr(told, name) is not None
    }


def judge(case, result, end):
    expect = case["expect"]
    is_answer = isinstance(result, Completion)
    assert ("completion" if is_answer else result.kind.name.lower()) == expect["outcome"]
    assert result.certainty.name == expect["certainty"]
    if is_answer:
        assert (result.text, result.stop_reason) == (expect["text"], expect["stop_reason"])
    else:
        assert (result.code.name, result.disposition.name) == (expect["grpc_code"], expect["disposition"])
        assert result.provider_code == expect.get("detail_code", result.provider_code)
        delay = expect["retry_after_ms"]
        assert result.retry_after == (None if delay is None else delay / 1000)
    wanted = expect["usage"] or {}
    assert {name: wanted[name] for name in usage_of(result)} == usage_of(result)
    assert bool(usage_of(result)) == bool(wanted)
    told = expect.get("session", {})
    assert end.status == told.get("turn_status", end.status)
    if told.get("safe_to_repeat"):
        assert not result.may_have_generated or result.kind.name == "UNAVAILABLE"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_a_case_comes_to_what_it_should(case):
    close = (case["ws"]["close"] or {}).get("code")
    previous = case["ws"]["session"].get("previous_response_id")
    reply = Reply(case["body_chunks"], close=close, reset=case["ends"] == "reset")
    async with socket_server(reply) as provider, provider_service(provider) as service:
        async with service.client.session("openai_responses") as session:
            result, end = await ask(session, previous_response_id=previous)
        assert provider.asked[0].document.get("previous_response_id") == previous
        assert len(provider.asked) == 1
    judge(case, result, end)
    assert session.ended is not None
    assert session.ended.totals.turns == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_the_next_turn_goes_over_the_same_socket_only_if_that_is_fit_for_it(case):
    close = (case["ws"]["close"] or {}).get("code")
    async with (
        socket_server(Reply(case["body_chunks"], close=close), Reply(answered("resp_next"))) as provider,
        provider_service(provider) as service,
        service.client.session("openai_responses") as session,
    ):
        await ask(session)
        completion, end = await ask(session, previous_response_id="")
    assert isinstance(completion, Completion)
    told = case["expect"].get("session", {})
    if "socket_reusable" in told:
        assert (end.connection == 1) == told["socket_reusable"]
    elif close is None:
        assert end.connection == 1


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_transcript_comes_to_what_its_provider_said(name):
    lines = [json.loads(line) for line in (SHARED / "streams" / name).read_text().splitlines()]
    sent = [line["data"] for line in lines if line["dir"] == "send"]
    frames = [json.dumps(line["data"]) for line in lines if line["dir"] == "recv"]
    expected = EXPECTED[name]
    async with socket_server(Reply(frames)) as provider, provider_service(provider) as service:
        async with service.client.session("openai_responses") as session:
            previous = sent[0].get("previous_response_id")
            result, end = await ask(session, previous_response_id=previous)
        assert provider.asked[0].document["type"] == sent[0]["type"]
        assert provider.asked[0].document.get("previous_response_id") == previous
        (outcome,) = service.memory.outcomes
        assert outcome.result.certainty.name == result.certainty.name
    if not expected["complete"]:
        assert isinstance(result, ModelmeterError)
        assert (result.provider_code, end.status) == (expected["error"]["code"], "error")
        return
    assert isinstance(result, Completion)
    assert result.certainty.name == Certainty.EXACT.name
    assert usage_of(result) == {
        "input_tokens": expected["input_tokens"],
        "output_tokens": expected["output_tokens"],
    }
    assert hashlib.sha256(result.text.encode()).hexdigest() == expected["text_sha256"]
    assert len(result.tool_calls) == len(expected["tool_calls"])
    assert end.next_previous_response_id == result.provider_response_id
