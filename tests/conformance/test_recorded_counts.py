"""Every recorded answer of a counting endpoint over a real socket, through the service and the client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fault_server import FaultServer, Reply
from tests.support.material import MISSING, SHARED, has_material
from tests.support.provider_service import provider_service

FAMILIES = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "gemini": "gemini",
    "openai-responses": "openai_responses",
}


def _load() -> list[dict[str, Any]]:
    if not has_material():
        return []
    outcomes = json.loads((SHARED / "streams/outcomes.json").read_text())["files"]
    says = {
        each["file"]: each for each in json.loads((SHARED / "streams/expected.json").read_text())["files"]
    }
    return [
        says[each["file"]] | {"model": _model(says[each["file"]])}
        for each in outcomes
        if each["kind"] == "COUNT"
    ]


def _model(says: dict[str, Any]) -> str:
    named = says["file"].partition("/")[2].replace("vertex", "gemini")
    return next(kind for family, kind in FAMILIES.items() if named.startswith(family))


COUNTS = _load()


def test_no_recorded_count_is_passed_over() -> None:
    assert len(COUNTS) == (5 if has_material() else 0)


@pytest.mark.skipif(not COUNTS, reason=MISSING)
@pytest.mark.parametrize("says", COUNTS, ids=[each["file"] for each in COUNTS])
async def test_a_recorded_count_arrives_as_it_was_recorded(says: dict[str, Any]) -> None:
    body = (SHARED / "streams" / says["file"]).read_bytes()
    reply = Reply(headers={"content-type": "application/json"}, chunks=[body[:7], body[7:]])
    async with FaultServer(reply) as provider, provider_service(provider) as service:
        count = await service.client.count_tokens(says["model"], "Hi")
    assert (count.input_tokens, count.is_estimate, count.upper_bound) == (says["input_tokens"], False, None)
    assert service.memory.outcomes == []  # nothing was bought, so that nothing is booked
